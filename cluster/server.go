package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

const (
	// idleWait is how long a connection may carry no whole frame. Members send pings more than once a
	// second.
	idleWait = 3 * time.Second
	// idleAbroad replaces idleWait for connections of other regions, whose nodes send a ping
	// each second, over paths that lose packets.
	idleAbroad = 10 * time.Second
	// idleOnDemand replaces idleWait for connections of members that do not watch this node. Such a
	// connection may rest for restAfter. If no frame has arrived for idleWait, only a ping with flagWakes
	// wakes the connection. Any other frame ends it, because a partition has delayed this frame and the
	// requests that follow.
	idleOnDemand = restAfter + 15*time.Second
	// If this process notices late that the time of a connection has passed, it reads for another
	// 1/secondLook of that time.
	secondLook = 3
	// maxBatch bounds the requests that are served and answered together. Callers on the other side
	// continue with these answers while the next requests are served.
	maxBatch = 64
	// keepReplies is the largest buffer of replies that is kept.
	keepReplies = 256 << 10
)

// incoming is the answering side of a connection, and the Replier of its batches.
type incoming struct {
	peers  *peers
	conn   net.Conn
	out    *outbox
	batch  *Batch
	abroad bool          // the other side is of another region, and may only ask, tell and ping
	idle   time.Duration // how long the connection may carry no whole frame
	// onDemand is set if the other side does not watch this node, and so is silent while it has no
	// requests.
	onDemand bool

	ids     []uint64 // ids of the requests in batch; noAnswer for a request of Send
	replies []byte   // frames that answer the batch
}

func newIncoming(p *peers, conn net.Conn, peer hello) *incoming {
	c := &incoming{peers: p, conn: conn, out: newOutbox(conn, &p.wg), abroad: peer.isAbroad(), idle: idleWait}
	if c.abroad {
		c.idle, c.out.wait = idleAbroad, writeWaitAbroad
	}
	c.batch = NewBatch(peer.Name, c)
	c.batch.Region = peer.Region
	c.batch.Protocol, _ = p.cfg.Self.agree(peer) // the handshake has ended otherwise
	return c
}

// noAnswer is the id of a request of Send. The id of an ask contains a generation, and is never 0.
const noAnswer = 0

// Reply implements Replier.
func (c *incoming) Reply(i int, body []byte) {
	if c.ids[i] == noAnswer {
		return
	}
	if len(body) > MaxMessage {
		c.peers.reportOverlong(c.batch.From, len(body))
		return
	}
	c.replies = appendFrame(c.replies, kindAnswer, c.ids[i], body)
}

// Defer implements Replier.
func (c *incoming) Defer(i int) Later {
	id, from := c.ids[i], c.batch.From
	return func(body []byte) {
		switch {
		case id == noAnswer:
		case len(body) > MaxMessage:
			c.peers.reportOverlong(from, len(body))
		case !c.out.put(kindAnswer, id, body):
			c.peers.dropped.Add(1)
		}
	}
}

// read handles frames until the connection ends. Pings and records are answered before requests that
// were read with them, because connectivity depends on these answers, and requests must not delay them.
func (c *incoming) read() error {
	var (
		in       intake
		requests [][]byte
		ids      []uint64
	)
	last := time.Now()
	due := last.Add(c.patience())
	c.conn.SetReadDeadline(due)
	for {
		if err := in.fill(c.conn); err != nil {
			now := time.Now()
			if !errors.Is(err, os.ErrDeadlineExceeded) || now.Sub(due) <= detect.DelayTolerance {
				return err
			}
			// This process did not run, and frames that arrived meanwhile may be in the socket.
			due = now.Add(c.patience() / secondLook)
			c.conn.SetReadDeadline(due)
			continue
		}
		c.batch.Read = time.Now()
		requests, ids = requests[:0], ids[:0]
		whole, pinged := false, false
		for {
			f, ok, err := in.nextFrame()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if !whole && c.onDemand && !f.isWakingPing() && c.batch.Read.Sub(last) > idleWait {
				return fmt.Errorf("cluster: a connection that rested was not woken: %w", os.ErrDeadlineExceeded)
			}
			whole = true
			switch f.kind {
			case kindAsk:
				requests, ids = append(requests, f.body), append(ids, f.id)
			case kindTell:
				requests, ids = append(requests, f.body), append(ids, noAnswer)
			default:
				pinged = pinged || f.kind == kindPing
				if err := c.judge(f); err != nil {
					return err
				}
			}
		}
		c.ids = nil
		c.send()
		for from := 0; from < len(requests); from += maxBatch {
			to := min(from+maxBatch, len(requests))
			c.batch.Requests, c.ids = requests[from:to], ids[from:to]
			c.peers.handler.Serve(c.batch)
			c.send()
		}
		clear(requests) // they refer to the buffer of in
		in.makeRoom()
		if pinged && shrinkIdle(c.conn, &in) && cap(c.replies) > keepIdle {
			c.replies = nil
		}
		if whole {
			last, due = c.batch.Read, c.batch.Read.Add(c.patience())
			c.conn.SetReadDeadline(due)
		}
	}
}

// patience returns how long the connection may carry no whole frame.
func (c *incoming) patience() time.Duration {
	if c.onDemand {
		return idleOnDemand
	}
	return c.idle
}

// judge handles a frame that is not a request.
func (c *incoming) judge(f frame) error {
	switch f.kind {
	case kindPing:
		c.out.relieve(0)
		if c.abroad {
			c.replies = appendFrame(c.replies, kindPong, f.id, nil) // without the delay of this node
			return nil
		}
		if len(f.body) < pingSize {
			return fmt.Errorf("%w: a ping has %d bytes, and needs at least %d", errGarbage, len(f.body), pingSize)
		}
		flags := f.body[4]
		c.onDemand = flags&flagWatches == 0
		delay := c.peers.recordPing(c.batch.From, min(time.Duration(binary.BigEndian.Uint32(f.body))*time.Millisecond, maxSaid), flags&flagChosen != 0)
		var pong [pongSize]byte
		binary.BigEndian.PutUint32(pong[:], uint32(delay/time.Millisecond))
		c.replies = appendFrame(c.replies, kindPong, f.id, pong[:])
	case kindRows:
		if c.abroad {
			return fmt.Errorf("%w: a node of another region sent rows of connectivity", errGarbage)
		}
		rows, err := detect.ParseRows(f.body)
		if err != nil {
			return fmt.Errorf("%w: %v", errGarbage, err)
		}
		c.peers.merge(c.batch.From, rows)
	case kindNews:
		if c.abroad {
			return fmt.Errorf("%w: a node of another region sent a record of a member", errGarbage)
		}
		c.handleRecord(f.body)
	default:
		if f.kind.isKnown() {
			return fmt.Errorf("%w: the asking side sent a frame of kind %d", errGarbage, f.kind)
		}
	}
	return nil
}

// handleRecord handles a record that the member has sent.
func (c *incoming) handleRecord(body []byte) {
	if c.peers.cfg.HandleRecord == nil {
		return
	}
	if answer := c.peers.cfg.HandleRecord(c.batch.From, body); answer != nil {
		c.replies = appendFrame(c.replies, kindNews, 0, answer)
	}
}

// send queues the replies, or drops them if there is no room. If no other goroutine writes, send writes them
// with a single write.
func (c *incoming) send() {
	if len(c.replies) == 0 {
		return
	}
	c.out.mu.Lock()
	if c.out.fits(len(c.replies)) || len(c.out.buf) == 0 {
		c.out.buf = append(c.out.buf, c.replies...)
	} else {
		c.peers.dropped.Add(uint64(len(c.ids)))
	}
	duty := c.out.claim()
	c.out.mu.Unlock()
	if cap(c.replies) > keepReplies {
		c.replies = nil
	}
	c.replies = c.replies[:0]
	if duty {
		c.out.flush()
	}
}
