package epoch

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// lookEvery is how often a node looks for members that it has not asked.
	lookEvery = 2 * time.Second
	// askEvery is how often it asks one of the others again.
	askEvery = time.Minute
	// askWait bounds a request, and askedAtOnce is how many are sent at once.
	askWait     = time.Second
	askedAtOnce = 16
)

// Config is what Members need of their node.
type Config struct {
	Clock env.Clock
	View  func() *view.View
	// Old is the age of a cluster that does not know the question.
	Old time.Duration
}

// Members keeps the Clock of a node in agreement with those of the members that it hears. It is
// safe for concurrent use.
type Members struct {
	Clock *Clock
	cfg   Config
	began atomic.Int64 // when this cluster began to count, on the steady clock of this node
}

// NewMembers returns the Members of a node that starts.
func NewMembers(cfg Config) *Members {
	m := &Members{Clock: New(cfg.Clock.Steady()), cfg: cfg}
	m.began.Store(cfg.Clock.Steady())
	return m
}

// A node asks another one for the run of its cluster:
//
//	response  for how long the cluster counts, in ns | State

// Serve appends the response.
func (m *Members) Serve(_, dst []byte) ([]byte, error) {
	now := m.cfg.Clock.Steady()
	dst = binary.AppendUvarint(dst, uint64(max(0, now-m.began.Load())))
	s := m.Clock.State(now)
	return s.Append(dst), nil
}

// Counts returns the age of the cluster, as far as this node knows. Holds number their renewals by
// it, because it never decreases. The age of an epoch can: a node may adopt a younger epoch.
func (m *Members) Counts() time.Duration {
	return time.Duration(m.cfg.Clock.Steady() - m.began.Load())
}

// Ask asks all members that this node hears. It reports whether each has responded.
func (m *Members) Ask(ctx context.Context) (all bool) {
	v := m.cfg.View()
	heard := v.Heard()
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
	now := m.cfg.Clock.Steady()
	if errors.Is(err, wire.ErrUnknownOp) {
		m.countsFor(m.cfg.Old, now)
		return nil
	}
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
	if v := m.cfg.View(); v.Self >= 0 {
		m.Clock.Begin(v.Hashes[v.Self]) // no other node and no other start has it
	}
}

// Run asks each member that this node begins to hear, and then one in turn. It calls Begin
// every minute, the first time after an offset that depends on the name of this node. So most
// nodes adopt the epoch that another node has begun.
func (m *Members) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	met := make(map[uint64]bool)
	next := m.cfg.Clock.Steady() + int64(m.cfg.View().Offset(askEvery))
	for turn := 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		v, before := m.cfg.View(), met
		heard := v.Heard()
		met = make(map[uint64]bool, len(heard))
		for _, i := range heard {
			met[v.Hashes[i]] = before[v.Hashes[i]] || m.ask(ctx, v, i) == nil
		}
		if now := m.cfg.Clock.Steady(); now >= next {
			next = now + int64(askEvery)
			m.Begin(ctx)
			if len(heard) > 0 {
				turn++
				_ = m.ask(ctx, v, heard[turn%len(heard)]) // its turn comes again
			}
		}
	}
}
