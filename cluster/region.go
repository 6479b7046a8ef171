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

// The pace of what goes to another region. A round trip there takes 300 ms, and
// paths lose packets, each of which TCP resends after some 200 ms to a second.
const (
	// pingAbroad is the time from one ping to the next, with up to a tenth more.
	pingAbroad = time.Second
	// patienceAbroad is how long a node may answer nothing at all before another
	// one is asked, and how long an attempt to connect takes at most.
	patienceAbroad = 3 * time.Second
	// writeWaitAbroad is writeWait: longer than patienceAbroad, which judges a slow
	// node by what comes back.
	writeWaitAbroad = 10 * time.Second
	// Between attempts to connect it waits, doubling from the first to the last
	// where one after the other fails, and half to all of that.
	firstPauseAbroad = 100 * time.Millisecond
	lastPauseAbroad  = 10 * time.Second
)

// errSilence is why a connection to another region is given up.
var errSilence = errors.New("cluster: the node has not answered for some seconds: another one is tried")

// region is the asking side towards any node of another region: at most one
// connection, kept up from the start to the end. It is a Peer.
//
// One goroutine, in run, connects and pings. Callers never dial and never write, so that
// no check waits for a path to another region.
type region struct {
	asking
	ctx     context.Context // done once the cluster is closed
	name    string
	entries []string

	// What follows is of the goroutine in run.
	peers   *peers
	network Network
	misses  map[string]int // how often each address has failed since the region last answered
	tries   int            // attempts since it did
}

func newRegion(ctx context.Context, name string, entries []string) *region {
	return &region{ctx: ctx, name: name, entries: slices.Clone(entries), misses: map[string]int{}}
}

// reach has r connect, until p is closed. Its names are looked up in n.
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

func (r *region) unreachable() error {
	if r.ctx.Err() != nil {
		return ErrClosed
	}
	return ErrDisconnected
}

func (r *region) lost(s *session) { r.session.CompareAndSwap(s, nil) }

// An ask that times out keeps no other from being sent: its wait may be shorter than
// the way there and back. Silence judges the connection.
func (r *region) missed(*session)  {}
func (r *region) resumed(*session) {}

// run keeps a connection up, until the cluster is closed.
func (r *region) run() {
	for r.peers.ctx.Err() == nil {
		addr, s, err := r.connect()
		if s != nil {
			err = r.keep(s)
			if s.answered.Load() > 0 {
				clear(r.misses)
				r.tries = 0
			}
		}
		if err != nil && r.peers.ctx.Err() == nil {
			r.peers.abroad.add(r.name, addr, err)
		}
		if addr != "" {
			r.misses[addr]++ // others go first
		}
		sleep(r.peers.ctx, r.pause())
	}
}

// pause is how long to wait before the next attempt.
func (r *region) pause() time.Duration {
	d := lastPauseAbroad
	if r.tries < 16 {
		d = min(d, firstPauseAbroad<<r.tries)
	}
	r.tries++
	return d/2 + rand.N(d/2)
}

// connect opens a connection to one of the addresses that the entries stand for
// now, and shakes hands. There is no session if that failed.
func (r *region) connect() (addr string, s *session, err error) {
	addrs, problems := addresses(lookUpAll(r.peers.ctx, r.network, r.entries, ""))
	if addr = r.choose(addrs); addr == "" {
		return "", nil, fmt.Errorf("cluster: no address to reach region %q by: %s", r.name, strings.Join(problems, "; "))
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

// choose picks one, at random, of those addresses that have failed the fewest
// times; it is empty if there is none. It forgets those that are no more.
func (r *region) choose(addrs map[string]bool) string {
	maps.DeleteFunc(r.misses, func(addr string, _ int) bool { return !addrs[addr] })
	var best []string
	for addr := range addrs {
		if len(best) > 0 && r.misses[addr] < r.misses[best[0]] {
			best = best[:0]
		}
		if len(best) == 0 || r.misses[addr] == r.misses[best[0]] {
			best = append(best, addr)
		}
	}
	if len(best) == 0 {
		return ""
	}
	return best[rand.N(len(best))]
}

// keep pings over s until it ends: by itself, for its node has answered nothing
// for long, or because the cluster is closed.
func (r *region) keep(s *session) error {
	over := make(chan struct{})
	r.session.Store(s)
	r.peers.wg.Go(func() { s.hold(func() { close(over) }) })
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

// hasGone takes a look at a node that has been silent for so long, and reports whether it
// is given up. due is when this look was to be.
func hasGone(quiet *detect.Silence, silence time.Duration, due, now time.Time) bool {
	if heard := now.Add(-silence); heard.After(quiet.Start()) {
		quiet.Restart(heard)
	}
	return quiet.Check(patienceAbroad, due, now)
}

func (r *region) ponged(*session, frame) (took time.Duration, inTime bool, err error) {
	return 0, true, nil
}

func (r *region) told([]byte) error {
	return fmt.Errorf("%w: news from another region", errGarbage)
}

func (r *region) proven() {} // nobody on this node's side has answered

func (r *region) late([]byte, []byte) {} // dropped, as Peer says

var _ interface {
	Peer
	way
} = (*region)(nil)
