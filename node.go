package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
)

// Node is one member of the cluster, embedded in a process. Its methods are safe
// for concurrent use.
type Node struct {
	cfg       Config // with its defaults
	now       func() int64
	identity  identity
	counts    *bucket.Store // what is held here: as owner, and as this node's own budget
	cluster   cluster.Cluster
	view      atomic.Pointer[view]
	swap      sync.Mutex // orders what replaces view
	meters    meters
	exchanges sync.Pool // of *exchange
	lifetime
}

// lifetime owns the node's goroutines.
type lifetime struct {
	starting atomic.Bool
	closed   atomic.Bool
	life     context.Context
	end      context.CancelFunc
	tasks    sync.WaitGroup
	places   chan struct{} // one for each background task
	closer   sync.Once
}

// maxBackground bounds the checks that a node hands on at once; beyond it they
// are refused, and answered from their asker's budget.
const maxBackground = 4096

// settle is how long Start waits to hear the members it has joined.
const settle = time.Second

// Start listens, joins the cluster, and returns a node that answers at once. ctx
// bounds Start only. That no member to join is found is no error: the node
// starts, says so in its log and its Stats, serves within Config.Expect's share,
// and keeps trying. The error is ErrInvalid for a Config that Validate refuses,
// and otherwise says what to do: a port that is taken, a secret or Seed that the
// cluster refuses.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	name, err := incarnation(cfg.Name, cfg.Rand)
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg:      cfg,
		now:      cfg.clock(),
		identity: newIdentity(cfg.Seed),
		counts:   bucket.NewStore(cfg.MaxKeys),
	}
	n.exchanges.New = func() any { return new(exchange) }
	n.life, n.end = context.WithCancel(context.Background())
	n.places = make(chan struct{}, maxBackground)
	n.starting.Store(true)
	n.view.Store(newView(n.now(), &cluster.View{Self: -1}, cfg.Expect, nil))
	n.cluster = cfg.cluster(name, n.identity.fingerprint())
	if err := n.cluster.Start(ctx, inbound{n}); err != nil {
		n.end()
		return nil, fmt.Errorf("weir: %w", err)
	}
	inbound{n}.Changed()
	n.tasks.Go(n.compact)
	n.hearOthers(ctx)
	n.starting.Store(false)
	return n, nil
}

// hearOthers waits a moment until every living member is heard, so that the
// first checks need no budget.
func (n *Node) hearOthers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !n.view.Load().hearsAll() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (v *view) hearsAll() bool {
	for i := range v.Members {
		if v.lost[i] != 0 && v.Members[i].State != cluster.Dead {
			return false
		}
	}
	return true
}

// Limiter checks l and returns what checks keys against it. It is cheap and may
// be called as often as limits change. The error is ErrInvalid, naming every
// field that is wrong, or ErrClosed.
func (n *Node) Limiter(l Limit) (*Limiter, error) {
	if n.closed.Load() {
		return nil, ErrClosed
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return &Limiter{node: n, limit: l, numbers: l.numbers(), prefix: prefix(l.Name)}, nil
}

// Members is the roster as this node knows it, sorted by name: every member that
// is alive, or that died without saying goodbye and is not yet forgotten.
func (n *Node) Members() []Member {
	v := n.view.Load()
	members := make([]Member, len(v.Members))
	for i := range members {
		members[i] = v.member(i)
	}
	return members
}

// Stats is a snapshot of the node's counters.
func (n *Node) Stats() Stats {
	return Stats{
		Decisions: n.meters.outcomes(),
		Served:    n.meters.served.Load(),
		Passed:    n.meters.passed.Load(),
		LateUnits: n.meters.lateUnits.Load(),
		Keys:      n.counts.Len(),
		Evicted:   n.counts.Evicted(),
		Cluster:   n.cluster.Stats(),
	}
}

// Ready says that the node is a member and answers for what it owns. It is false
// after Leave and after Close.
func (n *Node) Ready() bool {
	v := n.view.Load()
	return !n.closed.Load() && v.Self >= 0 && v.Members[v.Self].State == cluster.Serving
}

// Forget takes a dead member off the roster at once, because it will not come
// back. It is ErrInvalid if member is not in the roster or not Dead.
func (n *Node) Forget(member string) error {
	if n.closed.Load() {
		return ErrClosed
	}
	if err := n.cluster.Forget(member); err != nil {
		return fmt.Errorf("%w member: %w", ErrInvalid, err)
	}
	return nil
}

// Leave says goodbye: the other members take this node off the roster, and own
// what it owned. From then on it only asks, until Close; to leave again does
// nothing. It returns ctx.Err if ctx is done before the others have been told,
// ErrClosed if Close comes first, and an error if the goodbye reached nobody
// within some seconds.
func (n *Node) Leave(ctx context.Context) error {
	if n.closed.Load() {
		return ErrClosed
	}
	err := n.cluster.Leave(ctx)
	switch {
	case errors.Is(err, cluster.ErrClosed):
		return ErrClosed
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("weir: leaving: %w", err)
	}
	return nil
}

// Close stops the node at once, like a crash, and waits for what it started.
// From then on every check is ErrClosed.
func (n *Node) Close() error {
	var err error
	n.closer.Do(func() {
		n.closed.Store(true)
		n.end()
		err = n.cluster.Close()
		n.tasks.Wait()
	})
	return err
}

// background runs f in a goroutine that Close ends, false if too many are
// running already.
func (n *Node) background(f func(context.Context)) bool {
	if n.closed.Load() {
		return false
	}
	select {
	case n.places <- struct{}{}:
	default:
		return false
	}
	n.tasks.Go(func() {
		f(n.life)
		<-n.places
	})
	return true
}

// compact gives back, little by little, the memory of counts that have
// recovered.
func (n *Node) compact() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.counts.Compact(n.now())
		case <-n.life.Done():
			return
		}
	}
}
