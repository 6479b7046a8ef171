package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

// The times of connections to other regions. A round trip there may take 300 ms, and
// paths lose packets, each of which TCP resends after some 200 ms to a second.
const (
	// pingAbroad is the time between pings, with up to a tenth more.
	pingAbroad = time.Second
	// patienceAbroad is how long a node may send no frame before a different node is tried, and the
	// maximum time of an attempt to connect.
	patienceAbroad = 3 * time.Second
	// writeWaitAbroad is writeWait for other regions. writeWaitAbroad is longer than patienceAbroad, so
	// that the connection to a slow node ends because frames are missing, and not because a write takes
	// long.
	writeWaitAbroad = 10 * time.Second
	// The pause between attempts to connect doubles from firstPauseAbroad to
	// lastPauseAbroad while attempts fail. Jitter shortens it by up to half.
	firstPauseAbroad = 100 * time.Millisecond
	lastPauseAbroad  = 10 * time.Second
)

// errSilence is the reason for giving up a connection to a region.
var errSilence = errors.New("cluster: the node has not answered for some seconds: a different node is tried")

// region sends requests to any node of a different region, and is the Peer of that region. There is at
// most one connection, which is replaced when it ends, until the cluster is closed.
//
// One goroutine, in run, connects and pings. Callers never dial and never write, so that no check waits
// for a path to a region.
type region struct {
	asking
	ctx     context.Context // done once the cluster is closed
	name    string
	entries []string

	// The goroutine in run owns the following fields.
	peers    *peers
	network  Network
	failures map[string]int // failures of each address since the last answer of the region
	tries    int            // attempts to connect since the last answer of the region
}

func newRegion(ctx context.Context, name string, entries []string) *region {
	return &region{ctx: ctx, name: name, entries: slices.Clone(entries), failures: map[string]int{}}
}

// reach starts a goroutine that keeps the connection to r open until p is closed. It resolves names
// with n.
func (p *peers) reach(r *region, n Network) {
	r.peers, r.network = p, n
	p.wg.Go(r.run)
}

// Ask implements Peer.
func (r *region) Ask(ctx context.Context, request, answer []byte, wait time.Duration) ([]byte, error) {
	return ask(ctx, r, r.session.Load(), request, answer, wait)
}

// Delay implements Peer.
func (r *region) Delay() time.Duration { return 0 }

func (r *region) unreachableError() error {
	if r.ctx.Err() != nil {
		return ErrClosed
	}
	return ErrDisconnected
}

func (r *region) handleEnd(s *session) { r.session.CompareAndSwap(s, nil) }

// handleMissed and handleResumed do nothing: the wait of an ask may be shorter than a round trip, so an
// ask that times out does not prevent further asks. Silence of the node ends the connection.
func (r *region) handleMissed(*session)  {}
func (r *region) handleResumed(*session) {}

// run keeps a connection open until the cluster is closed.
func (r *region) run() {
	for r.peers.ctx.Err() == nil {
		addr, s, err := r.connect()
		if s != nil {
			err = r.keep(s)
			if s.answered.Load() > 0 {
				clear(r.failures)
				r.tries = 0
			}
		}
		if err != nil && r.peers.ctx.Err() == nil {
			r.peers.abroad.add(r.name, addr, err)
		}
		if addr != "" {
			r.failures[addr]++ // choose prefers other addresses
		}
		sleep(r.peers.ctx, r.pause())
	}
}

// pause returns the time until the next attempt.
func (r *region) pause() time.Duration {
	d := lastPauseAbroad
	if r.tries < 16 {
		d = min(d, firstPauseAbroad<<r.tries)
	}
	r.tries++
	return d/2 + rand.N(d/2)
}

// connect opens a connection to an address that the entries now resolve to, and performs the handshake.
// If that fails, s is nil.
func (r *region) connect() (addr string, s *session, err error) {
	addrs, problems := addresses(lookUpAll(r.peers.ctx, r.network, r.entries, ""))
	if addr = r.choose(addrs); addr == "" {
		return "", nil, fmt.Errorf("cluster: no address of region %q to connect to: %s", r.name, strings.Join(problems, "; "))
	}
	ctx, cancel := context.WithTimeout(r.peers.ctx, patienceAbroad)
	defer cancel()
	conn, peer, err := r.peers.dial(ctx, addr, r.name)
	if err != nil {
		return addr, nil, err
	}
	s = newSession(r.peers, r, conn, peer)
	s.out.wait = writeWaitAbroad
	return addr, s, nil
}

// choose returns a random address among those with the fewest failures, or "" if addrs is empty.
// Failures of addresses that are not in addrs are forgotten.
func (r *region) choose(addrs map[string]bool) string {
	maps.DeleteFunc(r.failures, func(addr string, _ int) bool { return !addrs[addr] })
	var best []string
	for addr := range addrs {
		if len(best) > 0 && r.failures[addr] < r.failures[best[0]] {
			best = best[:0]
		}
		if len(best) == 0 || r.failures[addr] == r.failures[best[0]] {
			best = append(best, addr)
		}
	}
	if len(best) == 0 {
		return ""
	}
	return best[rand.N(len(best))]
}

// keep uses s until the connection ends, and sends pings. It closes the connection after patienceAbroad
// without a frame, and when the cluster is closed.
func (r *region) keep(s *session) error {
	over := make(chan struct{})
	r.session.Store(s)
	r.peers.wg.Go(func() { s.readUntilEnd(func() { close(over) }) })
	ping, due := time.NewTimer(0), time.Now()
	defer ping.Stop()
	var quiet detect.Silence
	for id := uint64(1); ; {
		select {
		case <-r.peers.ctx.Done():
			s.shut()
			<-over
			return nil
		case <-over:
			return nil
		case <-ping.C:
			now := time.Now()
			if hasGone(&quiet, s.silence(), due, now) {
				s.shut()
				<-over
				return errSilence
			}
			s.out.put(kindPing, id, nil)
			s.forget(now)
			id++
			next := pingAbroad + rand.N(pingAbroad/10)
			due = now.Add(next)
			ping.Reset(next)
		}
	}
}

// hasGone checks a node that has been silent for the given time, and reports whether it is given
// up. The argument due is the time for which the check was planned.
func hasGone(quiet *detect.Silence, silence time.Duration, due, now time.Time) bool {
	if answered := now.Add(-silence); answered.After(quiet.Start()) {
		quiet.Restart(answered)
	}
	return quiet.Check(patienceAbroad, due, now)
}

func (r *region) handlePong(*session, frame) (took time.Duration, inTime bool, err error) {
	return 0, true, nil
}

func (r *region) handleRecord([]byte) error {
	return fmt.Errorf("%w: a node of another region sent a record of a member", errGarbage)
}

func (r *region) recordProof() {} // no member of this side has answered

func (r *region) handleLate([]byte, []byte) {} // dropped (see Peer)

var _ interface {
	Peer
	way
} = (*region)(nil)
