package weir

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// What no release sends is refused before any of it is carried out.
func TestWhatNoMemberAsksIsRefused(t *testing.T) {
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
		"nothing":                    nil,
		"half a header":              good[:wire.HeaderBytes-1],
		"no op":                      with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Op = 0 }),
		"too many hops":              with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Hops = wire.MaxHops + 1 }),
		"an ask that is not counted": with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Asks = 0 }),
		"no asks":                    wire.Header{Op: wire.OpTake}.Append(nil),
		"an ask that is not there":   with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Asks = 2 }),
		"half an ask":                good[:len(good)-1],
		"more than the asks":         append(slices.Clone(good), 0),
		"asks of what is no check":   wire.Header{Op: wire.OpDeclare, Asks: 1}.Append(nil), // without any it says nothing, which is well
		"a trace that is not there":  with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Flags = wire.FlagTraced }),
		"half a trace":               append(with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Flags = wire.FlagTraced }), make([]byte, wire.TraceBytes-1)...),
		"a trace that is not told":   append(slices.Clone(good), make([]byte, wire.TraceBytes)...),
		"a reset within a trace":     append(with(func(h *wire.Header, _ *wire.Ask, _ *bucket.Limit) { h.Op, h.Flags = wire.OpReset, wire.FlagTraced }), make([]byte, wire.TraceBytes)...),
		"a question within a trace":  wire.Header{Op: wire.OpDeclare, Flags: wire.FlagTraced}.Append(nil),
		"units below zero":           with(func(_ *wire.Header, a *wire.Ask, _ *bucket.Limit) { a.Units = -1 }),
		"an unknown policy":          with(func(_ *wire.Header, a *wire.Ask, _ *bucket.Limit) { a.Partition = wire.FailClosed + 1 }),
		"no rate":                    with(func(_ *wire.Header, _ *wire.Ask, l *bucket.Limit) { l.Rate = 0 }),
		"no time":                    with(func(_ *wire.Header, _ *wire.Ask, l *bucket.Limit) { l.Per = 0 }),
		"an unknown algorithm":       with(func(_ *wire.Header, _ *wire.Ask, l *bucket.Limit) { l.Algorithm = 99 }),
	} {
		got := make(chan []byte, 1)
		b := cluster.NewBatch("other", within(got))
		b.Requests = [][]byte{request}
		inbound{n}.Serve(b)
		require.Empty(t, <-got, about)
		d, err := l.Peek(t.Context(), "key")
		require.NoError(t, err)
		require.EqualValues(t, 10, d.Remaining, about)
	}
	for _, request := range [][]byte{good, with(func(h *wire.Header, a *wire.Ask, _ *bucket.Limit) {
		h.Hops, a.Units, a.Partition = wire.MaxHops, 0, wire.FailClosed
	})} {
		got := make(chan []byte, 1)
		b := cluster.NewBatch("other", within(got))
		b.Requests = [][]byte{request}
		inbound{n}.Serve(b)
		s, err := wire.ParseAnswer(<-got, 1)
		require.NoError(t, err)
		require.Equal(t, wire.Done, s)
	}
}

func TestAnUnknownOpIsAnsweredAsUnknown(t *testing.T) {
	n := solo(t, Config{Logger: quiet})
	for _, op := range []wire.Op{wire.OpSince + 1, 255} {
		got := make(chan []byte, 1)
		b := cluster.NewBatch("other", within(got))
		b.Requests = [][]byte{append(wire.Header{Op: op, Asks: 3}.Append(nil), "what a later release says"...)}
		inbound{n}.Serve(b)
		_, err := wire.ParseAnswer(<-got, 0)
		require.ErrorIs(t, err, wire.ErrUnknownOp)
	}
}

// answers collects what a batch was answered.
type answers [][]byte

func (a answers) Reply(i int, body []byte) { a[i] = slices.Clone(body) }

func (a answers) Later(i int) cluster.Later {
	return func(body []byte) { a[i] = slices.Clone(body) }
}

// Whatever a member sends, it is answered and the node goes on.
func FuzzServe(f *testing.F) {
	s := new(spans)
	n, err := Start(f.Context(), Config{Logger: quiet, Tracer: s})
	require.NoError(f, err)
	f.Cleanup(func() { n.Close() })
	limit := bucket.Limit{Rate: 10, Per: time.Second}
	for _, op := range []wire.Op{wire.OpTake, wire.OpDebit, wire.OpRefund, wire.OpPeek, wire.OpLend, wire.OpReturn, wire.OpReset} {
		one := wire.Ask{ID: bucket.ID{Hi: 1, Lo: 2}, Limit: &limit, Units: 1, Lease: wire.Lease{Units: 5, Term: 100, Until: 7}}
		f.Add(one.Append(wire.Header{Op: op, Asks: 1}.Append(nil)))
		two := wire.Ask{ID: bucket.ID{Hi: 1, Lo: 3}, Limit: &limit, Units: 1}
		f.Add(two.Append(one.Append(wire.Header{Op: op, Asks: 2}.Append(nil))))
		f.Add(one.Append(one.Append(wire.Header{Op: op, Asks: 2}.Append(nil))))
		f.Add(wire.Trace(traceFor(f)).Append(one.Append(wire.Header{Op: op, Flags: wire.FlagTraced, Asks: 1}.Append(nil))))
	}
	f.Add(wire.Header{Op: wire.OpSince + 1, Asks: 1}.Append(nil))
	f.Fuzz(func(t *testing.T, request []byte) {
		got := make(answers, 1)
		b := cluster.NewBatch("fuzz", got)
		b.Requests = [][]byte{request}
		inbound{n}.Serve(b)
		all := s.taken(t)
		h, err := wire.ParseHeader(request)
		if errors.Is(err, wire.ErrUnknownOp) {
			_, told := wire.ParseAnswer(got[0], 0)
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
			_, err := wire.ParseAnswer(got[0], int(h.Asks))
			require.NoError(t, err)
		}
		inbound{n}.Late(nobody{}, request, got[0])
	})
}

// nobody takes what it is told, and has no answer.
type nobody struct{ cluster.Peer }

func (nobody) Tell([]byte) {}
