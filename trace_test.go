package weir

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// spans is a Tracer that records all spans, for several nodes.
type spans struct {
	mu  sync.Mutex
	all []*recorded
}

type recorded struct {
	parent  TraceContext
	context TraceContext
	serves  bool // whether the span was created by Incoming
	hops    []HopEvent
	ends    []TraceEvent
	of      *spans
}

type traceKey struct{}

// withinTrace returns a context in the given trace.
func withinTrace(ctx context.Context, c TraceContext) context.Context {
	return context.WithValue(ctx, traceKey{}, c)
}

func traceFor(testing.TB) TraceContext {
	return TraceContext{TraceID: [16]byte{4, 7, 1, 1}, SpanID: [8]byte{9}, Flags: 1}
}

func (s *spans) Outgoing(ctx context.Context) Span {
	c, _ := ctx.Value(traceKey{}).(TraceContext)
	if !c.Sampled() {
		return nil
	}
	return s.begin(c, false)
}

func (s *spans) Incoming(parent TraceContext, _ time.Time) Span { return s.begin(parent, true) }

func (s *spans) begin(parent TraceContext, serves bool) Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &recorded{parent: parent, context: parent, serves: serves, of: s}
	binary.BigEndian.PutUint64(r.context.SpanID[:], uint64(len(s.all)+1))
	s.all = append(s.all, r)
	return r
}

func (r *recorded) Context() TraceContext { return r.context }

func (r *recorded) Hopped(e HopEvent) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.hops = append(r.hops, e)
}

func (r *recorded) End(e TraceEvent) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.ends = append(r.ends, e)
}

// takeAll returns the recorded spans and removes them. Each of them must have ended once. The
// spans of the node that asks come first.
func (s *spans) takeAll(t testing.TB) (all []recorded) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.all {
		require.Len(t, r.ends, 1)
		all = append(all, *r)
	}
	s.all = nil
	return all
}

// tracedFleet starts nodes that share a Tracer. Their Timeout is long enough for a busy machine.
func tracedFleet(t testing.TB, nodes int) ([]*Node, *spans) {
	s := new(spans)
	return fleet(t, nodes, func(_ int, cfg *Config) { cfg.Tracer, cfg.Timeout = s, lab.GiveUp }), s
}

func TestOwnerSpanIsChildOfAskerSpan(t *testing.T) {
	t.Parallel()
	lab.WhileHealthy(t, func(t *testing.T) decisions {
		nodes, spans := tracedFleet(t, 2)
		l := limiters(t, nodes, Limit{Name: "logins", Algorithm: SlidingLog, Rate: 3, Per: time.Hour, NoLeases: true})[0]
		key, parent := findOwnedKey(t, l, nodes[1]), traceFor(t)
		ctx := withinTrace(t.Context(), parent)
		asker, owner := nodes[0].handover.View(), nodes[1].handover.View()

		allow := func(units int64) (Decision, error) { return l.AllowN(ctx, key, units) }
		for _, step := range []struct {
			operation, outcome string
			units              int64
			do                 func(units int64) (Decision, error)
		}{
			{"take", "allowed", 2, allow},
			{"take", "denied", 2, allow},
			{"peek", "allowed", 1, func(int64) (Decision, error) { return l.Peek(ctx, key) }},
			{"refund", "done", 1, func(units int64) (Decision, error) { return Decision{Source: Forwarded}, l.Refund(ctx, key, units) }},
			{"debit", "allowed", 2, func(units int64) (Decision, error) { return l.Debit(ctx, key, units) }},
		} {
			d, err := step.do(step.units)
			require.NoError(t, err)
			requireOwners(t, d)
			all := spans.takeAll(t)
			if step.operation == "refund" && all[0].ends[0].Outcome != "done" {
				return unanswered() // Refund returns no Decision to check
			}
			require.Len(t, all, 2, step.operation)
			asked, served := all[0], all[1]
			require.Equal(t, []bool{false, true}, []bool{asked.serves, served.serves})
			require.Equal(t, parent, asked.parent)
			require.Equal(t, asked.context, served.parent)

			end := asked.ends[0]
			require.Equal(t, []string{step.operation, step.outcome, ""}, []string{end.Operation, end.Outcome, end.From})
			require.NoError(t, end.Err)
			require.Equal(t, []TracedCheck{{Limit: "logins", Units: step.units, Allowed: end.Checks[0].Allowed, Source: Forwarded}}, end.Checks)
			require.Len(t, asked.hops, 1)
			require.Equal(t, owner.Members[owner.Self].Name, asked.hops[0].To)
			require.NoError(t, asked.hops[0].Err)

			end = served.ends[0]
			require.Equal(t, []string{step.operation, step.outcome, asker.Members[asker.Self].Name}, []string{end.Operation, end.Outcome, end.From})
			require.Equal(t, []TracedCheck{{Units: step.units, Allowed: end.Checks[0].Allowed, Source: Owner}}, end.Checks)
			require.Empty(t, served.hops)
		}
		return nil
	})
}

// The request, renewal and release of a hold are in the trace of the caller, on both nodes.
func TestForwardedHoldsAreTraced(t *testing.T) {
	t.Parallel()
	lab.WhileHealthy(t, func(t *testing.T) decisions {
		nodes, spans := tracedFleet(t, 2)
		l := limiters(t, nodes, Limit{Name: "flights", Algorithm: InFlight, Rate: 10})[0]
		ctx, key := withinTrace(t.Context(), traceFor(t)), findOwnedKey(t, l, nodes[1])
		text, d, err := l.HoldFor(ctx, key, 1, time.Minute)
		require.NoError(t, err)
		requireOwners(t, d)
		require.True(t, d.Allowed)
		require.NoError(t, l.RenewHold(ctx, key, text, time.Minute))
		require.NoError(t, l.ReleaseHold(ctx, key, text))
		var ended []string
		for _, s := range spans.takeAll(t) {
			ended = append(ended, s.ends[0].Operation+" "+s.ends[0].Outcome)
		}
		require.Equal(t, []string{"hold allowed", "hold allowed", "renew allowed", "renew allowed", "release allowed", "release allowed"}, ended)
		return nil
	})
}

func TestUnsampledAndLocalChecksHaveNoSpan(t *testing.T) {
	t.Parallel()
	nodes, spans := tracedFleet(t, 2)
	l := limiters(t, nodes, Limit{Name: "logins", Rate: 1, Per: time.Hour, NoLeases: true})[0]
	away, here := findOwnedKey(t, l, nodes[1]), findOwnedKey(t, l, nodes[0])
	unsampled := traceFor(t)
	unsampled.Flags = 0
	for _, ctx := range []context.Context{t.Context(), withinTrace(t.Context(), unsampled)} {
		for range 2 {
			_, err := l.Allow(ctx, away)
			require.NoError(t, err)
		}
	}
	require.Empty(t, spans.takeAll(t))
	sampled := withinTrace(t.Context(), traceFor(t))
	makesNone := func(source Source, key string) {
		t.Helper()
		lab.Eventually(t, fmt.Sprint("a check is decided by ", source), func() bool {
			_, err := l.Allow(t.Context(), key) // the node remembers a denial of this check for the next check
			require.NoError(t, err)
			d, err := l.Allow(sampled, key)
			require.NoError(t, err)
			made := spans.takeAll(t)
			if d.Source == source {
				require.Empty(t, made)
			}
			return d.Source == source
		})
	}
	makesNone(Owner, here)
	makesNone(Pushback, away)
}

func TestAllowAllHasOneSpanPerOwner(t *testing.T) {
	t.Parallel()
	lab.WhileHealthy(t, func(t *testing.T) decisions {
		nodes, spans := tracedFleet(t, 3)
		a := limiters(t, nodes, Limit{Name: "a", Rate: 1, Per: time.Hour, NoLeases: true})[0]
		b := limiters(t, nodes, Limit{Name: "b", Rate: 1, Per: time.Hour, NoLeases: true})[0]
		asks := []Ask{
			{Limiter: a, Key: findOwnedKey(t, a, nodes[1])}, {Limiter: b, Key: findOwnedKey(t, b, nodes[1]), Units: 5, Shadow: true},
			{Limiter: a, Key: findOwnedKey(t, a, nodes[2])}, {Limiter: b, Key: findOwnedKey(t, b, nodes[0])},
		}
		ds, err := nodes[0].AllowAll(withinTrace(t.Context(), traceFor(t)), asks...)
		require.NoError(t, err)
		requireOwners(t, ds...)
		require.True(t, ds.Allowed())
		var checks [][]TracedCheck
		all := spans.takeAll(t)
		require.Len(t, all, 4, "neither the own counts of the asking node nor the refunds have spans")
		for _, s := range all {
			if !s.serves {
				require.Equal(t, "allowed", s.ends[0].Outcome)
				checks = append(checks, s.ends[0].Checks)
			}
		}
		require.ElementsMatch(t, [][]TracedCheck{
			{{Limit: "a", Units: 1, Allowed: true, Source: Forwarded}, {Limit: "b", Units: 5, Shadow: true, Source: Forwarded}},
			{{Limit: "a", Units: 1, Allowed: true, Source: Forwarded}},
		}, checks)
		return nil
	})
}

// In a batch, only the sampled requests have spans. All requests are answered.
func TestBatchTracesOnlySampledRequests(t *testing.T) {
	s := new(spans)
	n := solo(t, Config{Logger: quiet, Tracer: s})
	l := limiter(t, n, Limit{Name: "logins", Rate: 100, Per: time.Hour})
	unsampled, nowhere, odd := traceFor(t), TraceContext{Flags: 1}, traceFor(t)
	unsampled.Flags, odd.Flags = 254, 255
	requests := [][]byte{
		takeRequest(l, "key", nil), takeRequest(l, "key", new(traceFor(t))), takeRequest(l, "key", &unsampled),
		takeRequest(l, "key", &nowhere), takeRequest(l, "key", nil), takeRequest(l, "key", &odd),
	}
	got := serveAll(n, requests...)
	for i := range requests {
		st, err := wire.ParseResponse(got[i], wire.OpTake, 1)
		require.NoError(t, err)
		require.Equal(t, wire.Done, st)
		require.EqualValues(t, 99-i, wire.ParseResult(got[i], wire.OpTake, 0).Remaining)
	}
	all := s.takeAll(t)
	require.Len(t, all, 2)
	require.Equal(t, []TraceContext{traceFor(t), odd}, []TraceContext{all[0].parent, all[1].parent})
}

// takeRequest returns a request of a member to take a unit, in the trace c unless it is nil.
func takeRequest(l *Limiter, key string, c *TraceContext) []byte {
	a := wire.Ask{ID: l.id(key), Limit: &l.numbers, Units: 1}
	h := wire.Header{Op: wire.OpTake, Asks: 1, Hops: wire.MaxHops}
	if c == nil {
		return a.Append(h.Append(nil))
	}
	h.Flags |= wire.FlagTraced
	return wire.Trace(*c).Append(a.Append(h.Append(nil)))
}

// The span of a node that forwards a check is between the spans of the asking node and the
// owner. A node without a Tracer forwards the trace context unchanged.
func TestRelayIsPartOfTrace(t *testing.T) {
	t.Parallel()
	for _, tracesOnTheWay := range []bool{true, false} {
		lab.WhileHealthy(t, func(t *testing.T) decisions {
			s := new(spans)
			nodes := fleet(t, 3, func(i int, cfg *Config) {
				if i != 1 || tracesOnTheWay {
					cfg.Tracer = s
				}
			})
			l := limiters(t, nodes, Limit{Name: "logins", Rate: 10, Per: time.Hour})[0]
			v := nodes[0].handover.View()
			request := takeRequest(l, findOwnedKey(t, l, nodes[2]), new(traceFor(t)))
			binary.LittleEndian.PutUint32(request[4:], uint32(lab.GiveUp.Microseconds()))
			binary.LittleEndian.PutUint64(request[8:], v.Hashes[2])
			answer, err := v.Members[1].Peer.Ask(t.Context(), request, nil, lab.GiveUp)
			if errors.Is(err, cluster.ErrDisconnected) || errors.Is(err, cluster.ErrBroken) || errors.Is(err, cluster.ErrStalled) {
				return unanswered()
			}
			require.NoError(t, err)
			st, err := wire.ParseResponse(answer, wire.OpTake, 1)
			require.NoError(t, err)
			if st == wire.Unreached {
				return unanswered()
			}
			require.Equal(t, wire.Done, st)
			result := wire.ParseResult(answer, wire.OpTake, 0)
			requireOwners(t, Decision{Source: Source(result.Source)})
			require.EqualValues(t, 9, result.Remaining)

			all := s.takeAll(t)
			owner := all[len(all)-1]
			require.Equal(t, v.Members[1].Name, owner.ends[0].From)
			if !tracesOnTheWay {
				require.Len(t, all, 1)
				require.Equal(t, traceFor(t), owner.parent)
				return nil
			}
			require.Len(t, all, 2)
			onTheWay := all[0]
			require.Equal(t, traceFor(t), onTheWay.parent)
			require.Equal(t, onTheWay.context, owner.parent)
			require.Equal(t, "allowed", onTheWay.ends[0].Outcome)
			require.Len(t, onTheWay.hops, 1)
			require.Equal(t, v.Members[2].Name, onTheWay.hops[0].To)
			return nil
		})
	}
}

// The span of an unanswered check has the member to which it was sent, and the error.
func TestSpanOfUnansweredCheckHasMemberAndError(t *testing.T) {
	t.Parallel()
	nodes, s := tracedFleet(t, 2)
	l := limiters(t, nodes, Limit{Name: "logins", Rate: 10, Per: time.Hour, NoLeases: true})[0]
	key := findOwnedKey(t, l, nodes[1])
	lost := errors.New("lost")
	// asked returns the span of an ask that was sent to p. A new report about connectivity restores the
	// real member, so asked tries again.
	asked := func(p failingPeer, ask func()) (end TraceEvent) {
		t.Helper()
		lab.Eventually(t, "an ask is sent to the member that answers nothing", func() bool {
			edit(nodes[0], func(v *view.View) { v.Members[1].Peer = p })
			ask()
			all := s.takeAll(t)
			if len(all) != 1 || len(all[0].hops) == 0 {
				return false
			}
			end = all[0].ends[0]
			return errors.Is(all[0].hops[0].Err, p.err)
		})
		return end
	}
	ctx := withinTrace(t.Context(), traceFor(t))
	var d Decision
	var err error
	silent := failingPeer{err: errors.Join(cluster.ErrTimeout, lost)}
	end := asked(silent, func() { d, err = l.Allow(ctx, key) })
	require.NoError(t, err)
	require.Equal(t, d.Source, end.Checks[0].Source)
	require.Contains(t, []Source{Budget, StandIn}, d.Source)

	end = asked(silent, func() { err = l.Refund(ctx, key, 1) })
	require.NoError(t, err)
	require.Equal(t, "unanswered", end.Outcome, "the owner may have executed the unanswered refund")

	cancelled, cancel := context.WithCancel(ctx)
	end = asked(failingPeer{err: context.Canceled, before: cancel}, func() { _, err = l.Allow(cancelled, key) })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "unanswered", end.Outcome)
	require.ErrorIs(t, end.Err, context.Canceled)
}

// failingPeer is a Peer whose requests fail.
type failingPeer struct {
	err    error
	before func()
}

func (p failingPeer) Ask(context.Context, []byte, []byte, time.Duration) ([]byte, error) {
	if p.before != nil {
		p.before()
	}
	return nil, p.err
}

func (failingPeer) Send([]byte) {}

func (failingPeer) Delay() time.Duration       { return 0 }
func (failingPeer) Protocol() cluster.Protocol { return cluster.Protocol{Version: cluster.Version} }

func TestRefundOfLateAnswerHasNoTrace(t *testing.T) {
	n := solo(t, Config{Logger: quiet})
	l := limiter(t, n, Limit{Name: "logins", Rate: 10, Per: time.Hour})
	answer := (&wire.Result{Result: bucket.Result{Allowed: true, Limit: 10, Remaining: 9, Receipt: 7}, Source: wire.Owner}).Append(wire.OpTake, wire.AppendResponse(nil, wire.Done, 1))
	var to recordingPeer
	n.checks.HandleLate(&to, takeRequest(l, "key", new(traceFor(t))), answer)
	require.Len(t, to.requests, 1)
	h, err := wire.ParseHeader(to.requests[0])
	require.NoError(t, err)
	require.Equal(t, wire.Header{Op: wire.OpRefund, Asks: 1, Hops: wire.MaxHops}, h)
}

func TestUnsampledCheckDoesNotAllocate(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector has pools forget")
	}
	s := new(spans)
	n := solo(t, Config{Logger: quiet, Tracer: s})
	l := limiter(t, n, Limit{Name: "logins", Rate: 1e9, Per: time.Hour})
	ctx := withinTrace(t.Context(), TraceContext{})
	require.Zero(t, testing.AllocsPerRun(200, func() { _, _ = l.Allow(ctx, "203.0.113.7") }))
	require.Zero(t, testing.AllocsPerRun(200, func() { _ = tracer{s}.Outgoing(ctx) }))
	require.Len(t, takeRequest(l, "key", nil), wire.HeaderBytes+wire.OpTake.AskBytes(), "an untraced request has no bytes of a trace")
}

// A check with arbitrary bytes in the place of its trace context is refused if the bytes have another
// length than a context. Otherwise the check is answered like a check without a trace. It has a span,
// which ends, if and only if the bytes are a valid and sampled context.
func FuzzTraceContext(f *testing.F) {
	s := new(spans)
	n, err := Start(f.Context(), Config{Logger: quiet, Tracer: s})
	require.NoError(f, err)
	f.Cleanup(func() { n.Close() })
	l, err := n.Limiter(Limit{Name: "logins", Rate: 1e9, Per: time.Hour})
	require.NoError(f, err)
	c := traceFor(f)
	f.Add(wire.Trace(c).Append(nil))
	f.Add(wire.Trace{Flags: 255}.Append(nil))
	f.Add(wire.Trace{TraceID: c.TraceID, Flags: 1}.Append(nil))
	f.Add([]byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, context []byte) {
		request := takeRequest(l, "key", nil)
		request[1] |= wire.FlagTraced
		request = append(request, context...)
		got := serveAll(n, request)
		all := s.takeAll(t)
		if len(context) != wire.TraceBytes {
			require.Empty(t, got[0])
			require.Empty(t, all)
			return
		}
		st, err := wire.ParseResponse(got[0], wire.OpTake, 1)
		require.NoError(t, err)
		require.Equal(t, wire.Done, st)
		c := TraceContext(wire.TraceOf(request))
		require.Equal(t, context, wire.Trace(c).Append(nil))
		require.Equal(t, c.Valid() && c.Sampled(), len(all) == 1)
	})
}

func TestObserversReceiveEqualEvents(t *testing.T) {
	require.Nil(t, Observers())
	require.Nil(t, Observers(nil, nil))
	one, other := new(observed), new(observed)
	require.Same(t, one, Observers(nil, one))
	n := solo(t, Config{Logger: quiet, Observer: Observers(one, nil, other)})
	l := limiter(t, n, Limit{Name: "logins", Rate: 1, Per: time.Hour})
	ask(t, l, "key", 3)
	n.cfg.Observer.Hopped(t.Context(), HopEvent{To: "other"})
	require.Len(t, one.decisions, 3)
	require.Equal(t, one.decisions, other.decisions)
	require.Equal(t, []HopEvent{{To: "other"}}, other.hops)
	require.Equal(t, one.hops, other.hops)
}
