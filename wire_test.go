package weir

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
)

func TestWhatIsSentIsWhatArrives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := bucket.Limit{
			Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
			Rate:      rapid.Int64Range(1, 100_000).Draw(t, "rate"),
			Per:       time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "per")),
			Version:   rapid.Uint64().Draw(t, "version"),
		}
		if limit.Algorithm == TokenBucket || limit.Algorithm == LeakyBucket {
			limit.Burst = rapid.Int64Range(0, 100_000).Draw(t, "burst")
		}
		if limit.Algorithm == FixedWindow {
			limit.Start = rapid.Int64Range(-1<<62, 1<<62).Draw(t, "start")
		}
		h := header{
			op: op(rapid.IntRange(int(opTake), int(opReset)).Draw(t, "op")), flags: rapid.Byte().Draw(t, "flags") &^ flagTraced,
			hops: rapid.ByteRange(0, maxHops).Draw(t, "hops"), asks: rapid.ByteRange(1, 5).Draw(t, "asks"),
			wait: time.Duration(rapid.Uint32Range(0, 60_000_000).Draw(t, "wait")) * time.Microsecond, to: rapid.Uint64().Draw(t, "to"),
		}
		var trace TraceContext
		if h.op <= opPeek && rapid.Bool().Draw(t, "traced") {
			h.flags |= flagTraced
			copy(trace.TraceID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "trace"))
			copy(trace.SpanID[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "span"))
			trace.Flags = rapid.Byte().Draw(t, "trace flags")
		}
		request := h.append(nil)
		var asks []ask
		for range h.asks {
			a := ask{
				id:    bucket.ID{Hi: rapid.Uint64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")},
				limit: &limit, partition: PartitionPolicy(rapid.IntRange(0, int(FailClosed)).Draw(t, "partition")),
				shadow: rapid.Bool().Draw(t, "shadow"), units: rapid.Int64Range(0, 1<<62).Draw(t, "units"), receipt: bucket.Receipt(rapid.Int64().Draw(t, "receipt")),
				stoodIn: rapid.Bool().Draw(t, "granted without authority"), lease: drawLease(t), resetNumber: rapid.Uint64().Draw(t, "reset number"),
			}
			a.global = isGlobal(a.id)
			asks = append(asks, a)
			request = a.append(request)
		}
		if h.flags&flagTraced != 0 {
			request = trace.append(request)
		}
		got, err := parseHeader(request)
		if err != nil || got != h {
			t.Fatalf("%+v came as %+v, %v", h, got, err)
		}
		if c := traceOf(request, len(asks)); c != trace {
			t.Fatalf("%+v came as %+v", trace, c)
		}
		for i := range asks {
			var numbers bucket.Limit
			a, err := parseAsk(request, i, &numbers)
			if err != nil || numbers != limit || idOf(request, i) != asks[i].id {
				t.Fatalf("%+v came as %+v, %v", limit, numbers, err)
			}
			a.limit = &limit
			if a != asks[i] {
				t.Fatalf("%+v came as %+v", asks[i], a)
			}
		}

		answer := appendAnswer(nil, statusDone, len(asks))
		var results []result
		for range asks {
			positive := rapid.Int64Range(1, 1<<62)
			r := result{bucket.Result{
				Allowed: rapid.Bool().Draw(t, "allowed"), Limit: positive.Draw(t, "limit"), Remaining: positive.Draw(t, "remaining"),
				RetryAfter: time.Duration(positive.Draw(t, "retry")), ResetAfter: time.Duration(positive.Draw(t, "reset")),
				Receipt: bucket.Receipt(rapid.Int64().Draw(t, "receipt")),
			}, Source(rapid.IntRange(1, int(sources)-1).Draw(t, "source")), rapid.Bool().Draw(t, "without authority"), false, drawLease(t), rapid.Uint64().Draw(t, "reset number"), 0}
			r.firm = !r.Allowed && rapid.Bool().Draw(t, "firm")
			results = append(results, r)
			answer = r.append(answer)
		}
		if s, err := parseAnswer(answer, len(asks)); err != nil || s != statusDone {
			t.Fatal(s, err)
		}
		for i := range results {
			if r := parseResult(answer, i); r != results[i] {
				t.Fatalf("%+v came as %+v", results[i], r)
			}
		}
	})
}

func drawLease(t *rapid.T) wireLease {
	return wireLease{rapid.Uint32().Draw(t, "lease"), rapid.Uint16Range(0, 500).Draw(t, "term"), rapid.Uint32().Draw(t, "until")}
}

// A time less such a duration, or more by it, is a time that a clock can show.
func TestDurationsOfAMessageAreBounded(t *testing.T) {
	limit := bucket.Limit{Rate: 1, Per: time.Second}
	request := (&ask{limit: &limit, units: 1}).append(header{op: opTake, asks: 1}.append(nil))
	answer := new(result).append(appendAnswer(nil, statusDone, 1))
	entry := (&kvEntry{Published: Published{Name: "a", Version: 1}}).append(nil, 0)
	entry = entry[:len(entry)-1] // without its age
	wait := func(b []byte) time.Duration {
		h, err := parseHeader(b)
		require.NoError(t, err)
		return h.wait
	}
	for _, c := range []struct {
		about string
		in    []byte // a message with a duration from at on, whose bits are all set
		at    int
		bytes int
		of    func([]byte) time.Duration
		most  time.Duration
	}{
		{"how long an asker waits", request, 4, 4, wait, time.Minute},
		{"the term of a lease that is asked for", request, headerBytes + 80, 2, func(b []byte) time.Duration {
			a, err := parseAsk(b, 0, new(bucket.Limit))
			require.NoError(t, err)
			return time.Duration(a.lease.term) * time.Millisecond
		}, longestLease},
		{"the term of a lease that is granted", answer, answerHeaderBytes + 58, 2, func(b []byte) time.Duration {
			return time.Duration(parseResult(b, 0).lease.term) * time.Millisecond
		}, longestLease},
		{"RetryAfter", answer, answerHeaderBytes + 18, 8, func(b []byte) time.Duration { return parseResult(b, 0).RetryAfter }, longestReset},
		{"ResetAfter", answer, answerHeaderBytes + 26, 8, func(b []byte) time.Duration { return parseResult(b, 0).ResetAfter }, longestReset},
		{"the age of a tombstone", append(entry, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), len(entry), 0, func(b []byte) time.Duration {
			list, err := parseEntries(b, 0)
			require.NoError(t, err)
			return time.Duration(-list[0].since)
		}, tombstoneFor},
	} {
		b := slices.Clone(c.in)
		for i := range c.bytes {
			b[c.at+i] = 0xff
		}
		if c.bytes == 8 {
			b[c.at+7] = 0x7f // the longest time.Duration
		}
		require.Equal(t, c.most, c.of(b), c.about)
	}
}

// What no release sends is refused before any of it is carried out.
func TestWhatNoMemberAsksIsRefused(t *testing.T) {
	n := solo(t, Config{Logger: quiet})
	l := limiter(t, n, Limit{Rate: 10, Per: time.Hour})
	limit := bucket.Limit{Rate: 10, Per: time.Hour}
	a := ask{id: l.id("key"), limit: &limit, units: 1}
	with := func(change func(h *header, a *ask, l *bucket.Limit)) []byte {
		h, one, numbers := header{op: opTake, asks: 1}, a, limit
		one.limit = &numbers
		change(&h, &one, &numbers)
		return one.append(h.append(nil))
	}
	good := with(func(*header, *ask, *bucket.Limit) {})
	for about, request := range map[string][]byte{
		"nothing":                    nil,
		"half a header":              good[:headerBytes-1],
		"no op":                      with(func(h *header, _ *ask, _ *bucket.Limit) { h.op = 0 }),
		"an op of another release":   append(header{op: opDeclare + 1}.append(nil), 0),
		"too many hops":              with(func(h *header, _ *ask, _ *bucket.Limit) { h.hops = maxHops + 1 }),
		"an ask that is not counted": with(func(h *header, _ *ask, _ *bucket.Limit) { h.asks = 0 }),
		"no asks":                    header{op: opTake}.append(nil),
		"an ask that is not there":   with(func(h *header, _ *ask, _ *bucket.Limit) { h.asks = 2 }),
		"half an ask":                good[:len(good)-1],
		"more than the asks":         append(slices.Clone(good), 0),
		"asks of what is no check":   header{op: opDeclare, asks: 1}.append(nil), // without any it says nothing, which is well
		"a trace that is not there":  with(func(h *header, _ *ask, _ *bucket.Limit) { h.flags = flagTraced }),
		"half a trace":               append(with(func(h *header, _ *ask, _ *bucket.Limit) { h.flags = flagTraced }), make([]byte, traceBytes-1)...),
		"a trace that is not told":   append(slices.Clone(good), make([]byte, traceBytes)...),
		"a reset within a trace":     append(with(func(h *header, _ *ask, _ *bucket.Limit) { h.op, h.flags = opReset, flagTraced }), make([]byte, traceBytes)...),
		"a question within a trace":  header{op: opDeclare, flags: flagTraced}.append(nil),
		"units below zero":           with(func(_ *header, a *ask, _ *bucket.Limit) { a.units = -1 }),
		"an unknown policy":          with(func(_ *header, a *ask, _ *bucket.Limit) { a.partition = FailClosed + 1 }),
		"no rate":                    with(func(_ *header, _ *ask, l *bucket.Limit) { l.Rate = 0 }),
		"no time":                    with(func(_ *header, _ *ask, l *bucket.Limit) { l.Per = 0 }),
		"an unknown algorithm":       with(func(_ *header, _ *ask, l *bucket.Limit) { l.Algorithm = 99 }),
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
	for _, request := range [][]byte{good, with(func(h *header, a *ask, _ *bucket.Limit) { h.hops, a.units, a.partition = maxHops, 0, FailClosed })} {
		got := make(chan []byte, 1)
		b := cluster.NewBatch("other", within(got))
		b.Requests = [][]byte{request}
		inbound{n}.Serve(b)
		s, err := parseAnswer(<-got, 1)
		require.NoError(t, err)
		require.Equal(t, statusDone, s)
	}
}

// An answer that does not fit its request is as good as none.
func TestAnAnswerFitsItsRequest(t *testing.T) {
	done := func(counted, results, more int) []byte {
		b := appendAnswer(nil, statusDone, counted)
		for range results {
			b = new(result).append(b)
		}
		return append(b, make([]byte, more)...)
	}
	unreached := appendAnswer(nil, statusUnreached, 0)
	for about, c := range map[string]struct {
		answer []byte
		asks   int
		good   bool
	}{
		"one":                          {done(1, 1, 0), 1, true},
		"two":                          {done(2, 2, 0), 2, true},
		"what answers no check":        {done(0, 0, 9), 0, true},
		"not reached":                  {unreached, 1, true},
		"nothing":                      {nil, 1, false},
		"half a header":                {unreached[:1], 1, false},
		"fewer than were asked":        {done(1, 1, 0), 2, false},
		"more than were asked":         {done(2, 2, 0), 1, false},
		"counted wrong":                {done(2, 1, 0), 1, false},
		"half a result":                {done(1, 1, 0)[:answerHeaderBytes+resultBytes-1], 1, false},
		"more than the results":        {done(1, 1, 1), 1, false},
		"results of what is no check":  {done(1, 1, 0), 0, false},
		"not reached, and more":        {append(slices.Clone(unreached), 0), 1, false},
		"a status of another release":  {appendAnswer(nil, statusUnreached+1, 0), 0, false},
		"a status that is none at all": {appendAnswer(nil, 0, 0), 0, false},
	} {
		_, err := parseAnswer(c.answer, c.asks)
		require.Equal(t, c.good, err == nil, about)
	}
}

// Whatever a member answers, it is a decision that can be counted and waited for.
func FuzzAnswer(f *testing.F) {
	for _, source := range []Source{0, Owner, FailedClosed, sources, 255} {
		r := result{bucket.Result{Limit: -1, Remaining: -5, RetryAfter: -7, ResetAfter: -9}, source, false, source == Owner, wireLease{uint32(source), 1, 2}, 3, 0}
		f.Add(r.append(appendAnswer(nil, statusDone, 1)))
	}
	var m limitMeter
	f.Fuzz(func(t *testing.T, answer []byte) {
		if s, err := parseAnswer(answer, 1); err != nil || s != statusDone {
			return
		}
		r := parseResult(answer, 0)
		m.decided(bucket.ID{}, &r, false)
		require.GreaterOrEqual(t, min(r.Limit, r.Remaining, int64(r.RetryAfter), int64(r.ResetAfter)), int64(0))
		require.True(t, r.Allowed || r.RetryAfter > 0)
	})
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
	for _, op := range []op{opTake, opDebit, opRefund, opPeek, opLend, opReturn, opReset} {
		one := ask{id: bucket.ID{Hi: 1, Lo: 2}, limit: &limit, units: 1, lease: wireLease{5, 100, 7}}
		f.Add(one.append(header{op: op, asks: 1}.append(nil)))
		two := ask{id: bucket.ID{Hi: 1, Lo: 3}, limit: &limit, units: 1}
		f.Add(two.append(one.append(header{op: op, asks: 2}.append(nil))))
		f.Add(one.append(one.append(header{op: op, asks: 2}.append(nil))))
		f.Add(traceFor(f).append(one.append(header{op: op, flags: flagTraced, asks: 1}.append(nil))))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		got := make(answers, 1)
		b := cluster.NewBatch("fuzz", got)
		b.Requests = [][]byte{request}
		inbound{n}.Serve(b)
		all := s.taken(t)
		h, err := parseHeader(request)
		if err != nil {
			require.Empty(t, got[0])
			require.Empty(t, all)
			return
		}
		if len(got[0]) > 0 {
			_, err := parseAnswer(got[0], int(h.asks))
			require.NoError(t, err)
		}
		inbound{n}.Late(nobody{}, request, got[0])
	})
}

// nobody takes what it is told, and has no answer.
type nobody struct{ cluster.Peer }

func (nobody) Tell([]byte) {}
