package weir

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

func TestMalformedRequestsAreRefused(t *testing.T) {
	n := solo(t, Config{Logger: quiet})
	l := limiter(t, n, Limit{Rate: 10, Per: time.Hour})
	limit := bucket.Limit{Rate: 10, Per: time.Hour}
	a := wire.Ask{ID: l.id("key"), Limit: &limit, Units: 1}
	with := func(change func(h *wire.Header, a *wire.Ask, l *bucket.Limit)) []byte {
		h, one, numbers := wire.Header{Op: wire.OpTake, Asks: 1}, a, limit
		one.Limit = &numbers
		change(&h, &one, &numbers)
		return one.Append(h.Append(nil))
	}
	good := with(func(*wire.Header, *wire.Ask, *bucket.Limit) {})
	for about, request := range map[string][]byte{
		"nothing":                   nil,
		"half a header":             good[:wire.HeaderBytes-1],
		"no op":                     with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Op = 0 }),
		"too many hops":             with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Hops = wire.MaxHops + 1 }),
		"an uncounted ask":          with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Asks = 0 }),
		"no asks":                   wire.Header{Op: wire.OpTake}.Append(nil),
		"a missing ask":             with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Asks = 2 }),
		"half an ask":               good[:len(good)-1],
		"more than the asks":        append(slices.Clone(good), 0),
		"asks of a declaration":     wire.Header{Op: wire.OpDeclare, Asks: 1}.Append(nil), // without an ask, it is an empty declaration, which is valid
		"a missing trace":           with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Flags = wire.FlagTraced }),
		"half a trace":              append(with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Flags = wire.FlagTraced }), make([]byte, wire.TraceBytes-1)...),
		"a trace without its flag":  append(slices.Clone(good), make([]byte, wire.TraceBytes)...),
		"a reset within a trace":    append(with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Op, h.Flags = wire.OpReset, wire.FlagTraced }), make([]byte, wire.TraceBytes)...),
		"a question within a trace": wire.Header{Op: wire.OpDeclare, Flags: wire.FlagTraced}.Append(nil),
		"units below zero":          with(func(_ *wire.Header, a *wire.Ask, _ *bucket.Limit) { a.Units = -1 }),
		"an unknown policy":         with(func(_ *wire.Header, a *wire.Ask, _ *bucket.Limit) { a.Partition = wire.FailClosed + 1 }),
		"no rate":                   with(func(_ *wire.Header, _ *wire.Ask, l *bucket.Limit) { l.Rate = 0 }),
		"no time":                   with(func(_ *wire.Header, _ *wire.Ask, l *bucket.Limit) { l.Per = 0 }),
		"an unknown algorithm":      with(func(_ *wire.Header, _ *wire.Ask, l *bucket.Limit) { l.Algorithm = 99 }),
	} {
		require.Empty(t, serveFrom(n, "", request), about)
		require.EqualValues(t, 10, remaining(t, l, "key"), about)
	}
	for _, request := range [][]byte{good, with(func(h *wire.Header, a *wire.Ask, _ *bucket.Limit) {
		h.Hops, a.Units, a.Partition = wire.MaxHops, 0, wire.FailClosed
	})} {
		s, err := wire.ParseResponse(serveFrom(n, "", request), wire.OpTake, 1)
		require.NoError(t, err)
		require.Equal(t, wire.Done, s)
	}
}

func TestUnknownOpIsAnsweredAsUnknown(t *testing.T) {
	n := solo(t, Config{Logger: quiet})
	for _, op := range []wire.Op{wire.OpPause + 1, 255} {
		_, err := wire.ParseResponse(serveFrom(n, "", append(wire.Header{Op: op, Asks: 3}.Append(nil), "what a later release says"...)), op, 0)
		require.ErrorIs(t, err, wire.ErrUnknownOp)
	}
}

// answers collects the answers to a batch.
type answers [][]byte

func (a answers) Reply(i int, body []byte) { a[i] = slices.Clone(body) }

func (a answers) Defer(i int) cluster.Later {
	return func(body []byte) { a[i] = slices.Clone(body) }
}

// serveAll makes a node serve requests of another member, and returns the answers.
func serveAll(n *Node, requests ...[]byte) answers {
	got := make(answers, len(requests))
	b := cluster.NewBatch("other", got)
	b.Requests = requests
	n.checks.Serve(b)
	return got
}

// A node answers any request of a member, and continues to serve.
func FuzzServe(f *testing.F) {
	s := new(spans)
	n, err := Start(f.Context(), Config{Logger: quiet, Tracer: s})
	require.NoError(f, err)
	f.Cleanup(func() { n.Close() })
	limit := bucket.Limit{Rate: 10, Per: time.Second}
	for _, op := range []wire.Op{wire.OpTake, wire.OpDebit, wire.OpRefund, wire.OpPeek, wire.OpLend, wire.OpReturn, wire.OpReset} {
		one := wire.Ask{ID: bucket.ID{Hi: 1, Lo: 2}, Limit: &limit, Units: 1, Take: wire.Take{Want: wire.Want{Units: 5, Term: 100}}, Lent: wire.Lent{Until: 7}}
		f.Add(one.Append(wire.Header{Op: op, Asks: 1}.Append(nil)))
		two := wire.Ask{ID: bucket.ID{Hi: 1, Lo: 3}, Limit: &limit, Units: 1}
		f.Add(two.Append(one.Append(wire.Header{Op: op, Asks: 2}.Append(nil))))
		f.Add(one.Append(one.Append(wire.Header{Op: op, Asks: 2}.Append(nil))))
		f.Add(wire.Trace(traceFor(f)).Append(one.Append(wire.Header{Op: op, Flags: wire.FlagTraced, Asks: 1}.Append(nil))))
	}
	f.Add(wire.Header{Op: wire.OpPause + 1, Asks: 1}.Append(nil))
	f.Fuzz(func(t *testing.T, request []byte) {
		got := serveAll(n, request)
		all := s.takeAll(t)
		h, err := wire.ParseHeader(request)
		if errors.Is(err, wire.ErrUnknownOp) {
			_, told := wire.ParseResponse(got[0], h.Op, 0)
			require.ErrorIs(t, told, wire.ErrUnknownOp)
			require.Empty(t, all)
			return
		}
		if err != nil {
			require.Empty(t, got[0])
			require.Empty(t, all)
			return
		}
		if len(got[0]) > 0 {
			_, err := wire.ParseResponse(got[0], h.Op, int(h.Asks))
			require.NoError(t, err)
		}
		n.checks.HandleLate(silentPeer{}, request, got[0])
	})
}

// silentPeer is a Peer that discards messages.
type silentPeer struct{ cluster.Peer }

func (silentPeer) Send([]byte) {}

func TestOverdueTakesAreDropped(t *testing.T) {
	n := solo(t, Config{Timeout: lab.GiveUp})
	l := limiter(t, n, Limit{Name: "test", Rate: 10, Per: time.Hour})
	var a, other wire.Ask
	require.NoError(t, l.prepareCounted(t.Context(), "key", 1, &a))
	require.NoError(t, l.prepareCounted(t.Context(), "other key", 1, &other))
	v := n.handover.View()
	request := func(op wire.Op, wait time.Duration) []byte {
		return a.Append(wire.Header{Op: op, Flags: 0, Hops: wire.MaxHops, Asks: 1, Wait: wait, To: v.Hashes[v.Self]}.Append(nil))
	}
	got := make(answers, 5)
	b := cluster.NewBatch("other", got)
	b.Read = time.Now().Add(-50 * time.Millisecond)
	b.Requests = [][]byte{
		request(wire.OpTake, 20*time.Millisecond), // dropped
		request(wire.OpTake, 40*time.Millisecond), // not dropped, because the asker may have been paused for some of the time
		request(wire.OpDebit, 0),                  // not dropped, because no asker waits for an answer
		other.Append(wire.Header{Op: wire.OpReset, Flags: 0, Hops: wire.MaxHops, Asks: 1, Wait: 20 * time.Millisecond, To: v.Hashes[v.Self]}.Append(nil)), // not dropped, because it must take effect
		request(wire.OpRefund, 20*time.Millisecond), // not dropped, because it is sent only once
	}
	n.checks.Serve(b)

	s, err := wire.ParseResponse(got[0], wire.OpTake, 1)
	require.NoError(t, err)
	require.Equal(t, wire.Unreached, s)
	for _, i := range []int{1, 2, 3, 4} {
		s, err := wire.ParseResponse(got[i], wire.Op(b.Requests[i][0]), 1)
		require.NoError(t, err)
		require.Equal(t, wire.Done, s)
	}
	require.EqualValues(t, 9, remaining(t, l, "key"))
	require.EqualValues(t, 1, n.Stats().Overdue)
	require.EqualValues(t, 4, n.Stats().Served)
}

// deaf is a cluster in which m002 never answers a check. The other members answer at once.
type deaf struct {
	*crowd
	held atomic.Int64 // number of checks that wait for m002
}

func newDeaf() *deaf {
	d := &deaf{crowd: newCrowd(4, 0)}
	d.view.Members[2].Peer = deafPeer{d.crowd, d}
	for _, i := range []int{1, 3} {
		d.view.Members[i].Peer = promptPeer{d.crowd}
	}
	return d
}

type deafPeer struct {
	*crowd
	d *deaf
}

func (p deafPeer) Ask(ctx context.Context, request, answer []byte, wait time.Duration) ([]byte, error) {
	if wire.Op(request[0]) > wire.OpPeek {
		return p.crowd.Ask(ctx, request, answer, wait)
	}
	p.d.held.Add(1)
	defer p.d.held.Add(-1)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return answer[:0], cluster.ErrTimeout
}

type promptPeer struct{ *crowd }

func (p promptPeer) Ask(ctx context.Context, request, answer []byte, wait time.Duration) ([]byte, error) {
	if wire.Op(request[0]) > wire.OpPeek {
		return p.crowd.Ask(ctx, request, answer, wait)
	}
	return (&wire.Result{Result: bucket.Result{Allowed: true}}).Append(wire.OpTake, wire.AppendResponse(answer[:0], wire.Done, 1)), nil
}

// openRequests counts the requests of a batch that do not have a response yet.
type openRequests struct{ many, status atomic.Int64 }

func (u *openRequests) Reply(_ int, body []byte) {
	u.many.Add(-1)
	if len(body) > 0 {
		u.status.Store(int64(body[0]))
	}
}

func (u *openRequests) Defer(i int) cluster.Later { return func(body []byte) { u.Reply(i, body) } }

// The header of a request contains its target and the time for which the sender waits. A request
// must not use a slot for longer than the node itself would wait, and the requests of a member
// must not use all of the slots.
func TestSlotsAreBoundedForEachMember(t *testing.T) {
	t.Parallel()
	const bursts, burst, longest = 3, 1500, time.Duration(math.MaxUint32) * time.Microsecond
	for _, c := range []struct {
		about string
		to    string
		flags uint8
		edit  func(n *Node, v *view.View)
	}{
		{"asks for a member that never answers", "m002", 0, nil},
		{"asks to stand in for a member that never answers", "m002", wire.FlagStandIn, nil},
		{"asks that wait for authority", "m000", 2, func(n *Node, v *view.View) {
			*v = *v.WithStates(countsync.All(), view.Entry{State: view.Awaited, Member: "m002", Until: n.env.Monotonic() + int64(2*longest)})
		}},
	} {
		for _, from := range []string{"m001", "made up"} {
			t.Run(c.about+", from "+from, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDeaf()
					n := solo(t, Config{Cluster: d, Logger: quiet, Replicas: -1})
					if c.edit != nil {
						edit(n, func(v *view.View) { c.edit(n, v) })
					}
					asked := func(from, to string, flags uint8, many int) *openRequests {
						u := new(openRequests)
						u.many.Store(int64(many))
						b := cluster.NewBatch(from, u)
						a := wire.Ask{ID: bucket.ID{Hi: 1, Lo: 1}, Limit: &bucket.Limit{Rate: 1, Per: time.Second}, Units: 1}
						for range many {
							b.Requests = append(b.Requests, a.Append(wire.Header{Op: wire.OpTake, Flags: flags, Hops: wire.MaxHops, Asks: 1, Wait: longest, To: view.NameHash(to)}.Append(nil)))
						}
						d.handler.Answered()
						n.checks.Serve(b)
						return u
					}
					var waiting []*openRequests
					for range bursts {
						waiting = append(waiting, asked(from, c.to, c.flags, burst))
					}
					synctest.Wait()
					held := int64(0)
					for _, u := range waiting {
						held += u.many.Load()
					}
					require.Positive(t, held)
					require.LessOrEqual(t, held, int64(env.MaxOfOneSender))
					honest := asked("m003", "m001", 0, 1)
					synctest.Wait()
					require.Zero(t, honest.many.Load())
					require.EqualValues(t, wire.Done, honest.status.Load(), "another member has slots of its own")

					time.Sleep(check.LongestWait(n.cfg.Timeout))
					synctest.Wait()
					for _, u := range waiting {
						require.Zero(t, u.many.Load())
					}
					require.Zero(t, d.held.Load())
				})
			})
		}
	}
}

// The ranges that a node parses must be in order and must not overlap, and their number must not
// exceed that in the message.
func FuzzParseRanges(f *testing.F) {
	f.Add(handover.AppendRanges(nil, countsync.NewRanges(countsync.Range{First: 1, Last: 9}, countsync.Range{First: 20, Last: 1 << 63})))
	f.Add(handover.AppendRanges(nil, countsync.Ranges{{First: 5, Last: 9}, {First: 1, Last: 6}, {First: 10, Last: 10}}))
	f.Add(handover.AppendRanges(nil, countsync.Ranges{{First: 9, Last: 1}}))
	f.Add(make([]byte, 15))
	f.Fuzz(func(t *testing.T, body []byte) {
		ranges, err := handover.ParseRanges(body)
		if err != nil {
			require.Empty(t, ranges)
			return
		}
		require.LessOrEqual(t, len(ranges), len(body)/16)
		for i, r := range ranges {
			require.LessOrEqual(t, r.First, r.Last)
			require.True(t, i == 0 || ranges[i-1].Last < r.First)
		}
		again, err := handover.ParseRanges(handover.AppendRanges(nil, ranges))
		require.NoError(t, err)
		require.Equal(t, ranges, again)
	})
}
