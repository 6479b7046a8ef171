package epoch

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// lookEvery is the time between two rounds. In a round, a node asks the neighbors that
	// have not responded. It also asks the next neighbor in turn, because the clock of a
	// suspended machine may have stopped.
	lookEvery = 2 * time.Second
	// lookRested replaces lookEvery once each neighbor has had a turn since the last change. If the
	// clock of this node stops for longer than the failure detection takes, all connections are new
	// after that, and the node corrects the age at once.
	lookRested = 10 * time.Second
	// beginEvery is how often a node without an epoch tries to begin an epoch.
	beginEvery = time.Minute
	// askWait bounds a request, and askedAtOnce the number of requests at a time. Before it loads
	// snapshots or begins an epoch, a node also asks at most askedAtOnce members that are not
	// neighbors.
	askWait     = time.Second
	askedAtOnce = 16
	// exactParts determines tolerance: if the age rises by more than Config.Exact/exactParts,
	// a node asks all neighbors again.
	exactParts = 8
)

// Config contains the dependencies of Members.
type Config struct {
	Env *env.Env
	// Exact is the maximum round trip of a response whose age is exact enough for Date.
	Exact time.Duration
}

// Members keeps the Clock of a node in agreement with the clocks of its neighbors (view.View.Neighbors),
// and so with the clocks of all members that the node reaches. If the age of a node rises by more than a
// tolerance, or the epoch changes, the node asks all of its neighbors again. Each request contains the age
// and the epoch of the sender, and a neighbor that is behind asks its own neighbors. So a node that starts
// asks about eight neighbors, and in Ask at most 16 other members, whatever the size of the cluster. Members
// is safe for concurrent use.
type Members struct {
	Clock *Clock
	cfg   Config
	began atomic.Int64 // monotonic time of this node at which the age of the cluster was 0

	wake   chan struct{} // signals a new view or a call of changed
	agrees atomic.Bool   // all neighbors have responded since the last change
	mu     sync.Mutex
	met    map[uint64]bool // whether each neighbor has responded since the last change
	change uint64          // number of calls of changed: the age rose, the epoch changed, or another member was ahead
}

// NewMembers returns the Members of a node that starts.
func NewMembers(cfg Config) *Members {
	m := &Members{Clock: New(cfg.Env.Monotonic()), cfg: cfg, wake: make(chan struct{}, 1)}
	m.began.Store(cfg.Env.Monotonic())
	return m
}

// A node asks another member for the run of the cluster:
//
//	request   Age of the sender, in ns | epoch; or nothing
//	response  Age of the receiver, in ns | State

// Serve appends the response to a request. If the sender is ahead of this node, this node asks its
// neighbors. The error is wire.ErrMalformed.
func (m *Members) Serve(request, dst []byte) ([]byte, error) {
	now := m.cfg.Env.Monotonic()
	if len(request) > 0 {
		c := wire.NewCursor(request)
		counts, epoch := time.Duration(c.Number(maxAge)), c.Number(1<<64-1)
		if c.Err() != nil || c.Remaining() > 0 {
			return nil, wire.ErrMalformed
		}
		if counts-m.Age() > m.tolerance() || epoch > m.Clock.Now(now).Epoch {
			m.changed()
		}
	}
	dst = binary.AppendUvarint(dst, uint64(max(0, now-m.began.Load())))
	s := m.Clock.State(now)
	return s.Append(dst), nil
}

// Age returns the age of the cluster, as far as this node knows. It never decreases, so package holds can
// use it for the numbers of renewals. The age of an epoch can decrease, because a node may adopt a younger
// epoch.
func (m *Members) Age() time.Duration {
	return time.Duration(m.cfg.Env.Monotonic() - m.began.Load())
}

// tolerance is the greatest rise or lag of the age for which a node does not ask all neighbors
// again.
func (m *Members) tolerance() time.Duration { return m.cfg.Exact / exactParts }

// changed makes this node ask all of its neighbors again. It does not block.
func (m *Members) changed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change++
	for member := range m.met {
		m.met[member] = false
	}
	m.compareMet()
	env.Signal(m.wake)
}

// Date returns Age, or 0 if a neighbor has not responded since the last change, because the age of that
// neighbor may be much higher. Otherwise this node is behind its neighbors by at most Exact.
func (m *Members) Date() time.Duration {
	if !m.agrees.Load() {
		return 0
	}
	return m.Age()
}

// Swapped updates the list of neighbors after the view was replaced. It does not block.
func (m *Members) Swapped(v *view.View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	heard := v.Neighbors()
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

// meet asks the neighbors that have not responded since the last change.
func (m *Members) meet(ctx context.Context, v *view.View) {
	m.mu.Lock()
	heard := slices.DeleteFunc(slices.Clone(v.Neighbors()), func(i int) bool { return m.met[v.Hashes[i]] })
	change := m.change
	m.mu.Unlock()
	env.Gather(len(heard), askedAtOnce, func(i int) {
		member, sent := v.Hashes[heard[i]], m.cfg.Env.Monotonic()
		if m.ask(ctx, v, heard[i]) != nil || m.cfg.Env.Monotonic()-sent > int64(m.cfg.Exact) {
			return // the member is asked again
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if _, heard := m.met[member]; heard && m.change == change {
			m.met[member] = true
		}
		m.compareMet()
	})
}

// Ask asks the neighbors of this node, and at most 16 other members that it is connected to. The members that
// serve come first, because a member that has just started may know as little as this node.
func (m *Members) Ask(ctx context.Context) {
	v := m.cfg.Env.View()
	asked, others := slices.Clone(v.Neighbors()), v.ConnectedMembers()
	others = slices.DeleteFunc(others, func(i int) bool { return slices.Contains(asked, i) })
	rank := func(i int) int { // the members after this node come first, so that not all nodes ask the same members
		rank := (i - v.Self + len(v.Members)) % len(v.Members)
		if v.Members[i].State == cluster.Joining {
			rank += len(v.Members)
		}
		return rank
	}
	slices.SortFunc(others, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
	asked = append(asked, others[:min(askedAtOnce, len(others))]...)
	env.Gather(len(asked), askedAtOnce, func(i int) {
		_ = m.ask(ctx, v, asked[i]) // after an error, the responses of other members are enough
	})
}

// ask asks a member, and applies the response.
func (m *Members) ask(ctx context.Context, v *view.View, i int) error {
	h := wire.Header{Op: wire.OpSince, Wait: askWait, To: v.Hashes[i]}
	before := m.Clock.Now(m.cfg.Env.Monotonic()).Epoch
	request := binary.AppendUvarint(nil, uint64(m.Age()))
	request = binary.AppendUvarint(request, before)
	response, err := env.Call(ctx, v.Members[i].Peer, h, request, askWait)
	now := m.cfg.Env.Monotonic()
	if err != nil {
		return err
	}
	c := wire.NewCursor(response)
	counts := time.Duration(c.Number(maxAge))
	s := Read(&c)
	if c.Remaining() > 0 {
		c.Fail()
	}
	if err := c.Err(); err != nil {
		return err
	}
	rise := m.raiseAge(counts, now)
	m.Clock.Meet(s, now)
	if rise > m.tolerance() || m.Clock.Now(now).Epoch != before {
		m.changed()
	}
	return nil
}

// raiseAge raises the age of this node to the age that another member has at the time now. It
// returns the rise, which is not positive if the age of this node stays.
func (m *Members) raiseAge(age time.Duration, now int64) (rise time.Duration) {
	for {
		began := m.began.Load()
		if rise = time.Duration(began-now) + age; rise <= 0 || m.began.CompareAndSwap(began, now-int64(age)) {
			return rise
		}
	}
}

// Begin begins an epoch unless this node has an epoch or has left. It asks other members
// first, because they may have an epoch.
func (m *Members) Begin(ctx context.Context) {
	if m.Clock.Now(0).Epoch != 0 {
		return
	}
	m.Ask(ctx)
	if v := m.cfg.Env.View(); v.Self >= 0 {
		m.Clock.Begin(v.Hashes[v.Self]) // this hash differs for each start of a node
		m.changed()
	}
}

// Run asks each new neighbor at once, and every lookEvery or lookRested the next neighbor in turn. It
// calls Begin every beginEvery until there is an epoch, the first time after an offset that depends on
// the name of this node. So most nodes adopt the epoch of another node.
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
				agreed = 0 // the neighbor is asked again in its turn
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
