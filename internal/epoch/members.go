package epoch

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// lookEvery is how often a node asks the members again that did not respond, and one of the
	// others: the clock of a suspended machine may have stopped.
	lookEvery = 2 * time.Second
	// lookRested is that time once each member has had its turn, and the epoch has not changed since. If
	// the clock of this node stops for longer than the failure detection takes, the node corrects it at
	// once, because all its connections are new then.
	lookRested = 10 * time.Second
	// beginEvery is how often a node begins an epoch if it has none.
	beginEvery = time.Minute
	// askWait bounds a request, and askedAtOnce is how many are sent at once.
	askWait     = time.Second
	askedAtOnce = 16
)

// Config is what Members need of their node.
type Config struct {
	Env *env.Env
	// Exact is the longest round trip of a response that is exact enough for Date.
	Exact time.Duration
}

// Members keeps the Clock of a node in agreement with those of the members that it is connected to. It is
// safe for concurrent use.
type Members struct {
	Clock *Clock
	cfg   Config
	began atomic.Int64 // when this cluster began to count, on the monotonic clock of this node

	wake   chan struct{} // signals that the view has changed
	agrees atomic.Bool   // all members that this node is connected to are in met
	mu     sync.Mutex
	met    map[uint64]bool // the members that this node is connected to, true if they have responded since
}

// NewMembers returns the Members of a node that starts.
func NewMembers(cfg Config) *Members {
	m := &Members{Clock: New(cfg.Env.Monotonic()), cfg: cfg, wake: make(chan struct{}, 1)}
	m.began.Store(cfg.Env.Monotonic())
	return m
}

// A node asks another one for the run of its cluster:
//
//	response  for how long the cluster counts, in ns | State

// Serve appends the response.
func (m *Members) Serve(_, dst []byte) ([]byte, error) {
	now := m.cfg.Env.Monotonic()
	dst = binary.AppendUvarint(dst, uint64(max(0, now-m.began.Load())))
	s := m.Clock.State(now)
	return s.Append(dst), nil
}

// Age returns the age of the cluster, as far as this node knows. Package holds uses this age to
// number the renewals, because it never decreases. The age of an epoch can: a node may adopt a younger epoch.
func (m *Members) Age() time.Duration {
	return time.Duration(m.cfg.Env.Monotonic() - m.began.Load())
}

// Date returns Age, or 0 if there is a member that this node is connected to and has not asked: that member
// may count for much longer. Otherwise this node is behind the members that it is connected to by Exact at
// most.
func (m *Members) Date() time.Duration {
	if !m.agrees.Load() {
		return 0
	}
	return m.Age()
}

// Swapped updates the list of members that have responded if the view changes. It does not block.
func (m *Members) Swapped(v *view.View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	heard := v.ConnectedMembers()
	met := make(map[uint64]bool, len(heard))
	for _, i := range heard {
		met[v.Hashes[i]] = m.met[v.Hashes[i]]
	}
	m.met = met
	m.compareMet()
	env.Signal(m.wake)
}

// compareMet updates agrees. The caller must hold mu.
func (m *Members) compareMet() {
	agrees := true
	for _, met := range m.met {
		agrees = agrees && met
	}
	m.agrees.Store(agrees)
}

// meet asks the members that this node is connected to and has not asked.
func (m *Members) meet(ctx context.Context, v *view.View) {
	heard := v.ConnectedMembers()
	m.mu.Lock()
	heard = slices.DeleteFunc(heard, func(i int) bool { return m.met[v.Hashes[i]] })
	m.mu.Unlock()
	env.Gather(len(heard), askedAtOnce, func(i int) {
		member, sent := v.Hashes[heard[i]], m.cfg.Env.Monotonic()
		if m.ask(ctx, v, heard[i]) != nil || m.cfg.Env.Monotonic()-sent > int64(m.cfg.Exact) {
			return // it is asked again
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if _, heard := m.met[member]; heard {
			m.met[member] = true
		}
		m.compareMet()
	})
}

// Ask asks all members that this node is connected to. It reports whether each has responded.
func (m *Members) Ask(ctx context.Context) (all bool) {
	v := m.cfg.Env.View()
	heard := v.ConnectedMembers()
	failed := atomic.Bool{}
	env.Gather(len(heard), askedAtOnce, func(i int) {
		if m.ask(ctx, v, heard[i]) != nil {
			failed.Store(true)
		}
	})
	return !failed.Load()
}

// ask asks a member, and applies its response.
func (m *Members) ask(ctx context.Context, v *view.View, i int) error {
	h := wire.Header{Op: wire.OpSince, Wait: askWait, To: v.Hashes[i]}
	response, err := env.Call(ctx, v.Members[i].Peer, h, nil, askWait)
	now := m.cfg.Env.Monotonic()
	if err != nil {
		return err
	}
	c := wire.NewCursor(response)
	counts := time.Duration(c.Number(maxAge))
	s := Read(&c)
	if c.Left() > 0 {
		c.Fail()
	}
	if err := c.Err(); err != nil {
		return err
	}
	m.countsFor(counts, now)
	m.Clock.Meet(s, now)
	return nil
}

func (m *Members) countsFor(age time.Duration, now int64) {
	for {
		began := m.began.Load()
		if began <= now-int64(age) || m.began.CompareAndSwap(began, now-int64(age)) {
			return
		}
	}
}

// Begin starts an epoch if this node has none. It asks all members first, because they may
// have one.
func (m *Members) Begin(ctx context.Context) {
	if m.Clock.Now(0).Epoch != 0 {
		return
	}
	m.Ask(ctx)
	if v := m.cfg.Env.View(); v.Self >= 0 {
		m.Clock.Begin(v.Hashes[v.Self]) // no other node and no other start has it
	}
}

// Run asks each member that this node begins to hear, and one in turn each lookEvery or lookRested. It calls
// Begin every minute until there is an epoch, the first time after an offset that depends on the name of
// this node. So most nodes adopt the epoch that another node has begun.
func (m *Members) Run(ctx context.Context) {
	tick := time.NewTimer(lookEvery)
	defer tick.Stop()
	begin := m.cfg.Env.Monotonic() + int64(m.cfg.Env.View().Offset(beginEvery))
	agreed, rests := 0, false // agreed counts the turns since the last change
	for turn := 0; ; {
		ticked := false
		select {
		case <-tick.C:
			ticked = true
		case <-m.wake:
			if agreed = 0; rests {
				rests = false
				tick.Reset(lookEvery)
			}
		case <-ctx.Done():
			return
		}
		v, before := m.cfg.Env.View(), m.Clock.Now(0).Epoch
		m.meet(ctx, v)
		heard := v.Neighbors()
		if ticked && len(heard) > 0 {
			turn++
			agreed++
			if m.ask(ctx, v, heard[turn%len(heard)]) != nil {
				agreed = 0 // its turn comes again
			}
		}
		now := m.cfg.Env.Monotonic()
		if now >= begin {
			begin = now + int64(beginEvery)
			m.Begin(ctx)
		}
		epoch := m.Clock.Now(0).Epoch
		if epoch != before {
			agreed = 0
		}
		if !ticked {
			continue
		}
		switch rests = agreed >= len(heard) && m.agrees.Load(); {
		case !rests:
			tick.Reset(lookEvery)
		case len(heard) > 0:
			tick.Reset(lookRested)
		case epoch == 0:
			tick.Reset(time.Duration(max(1, begin-now)))
		}
	}
}
