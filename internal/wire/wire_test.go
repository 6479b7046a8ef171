package wire

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	_ "github.com/weir-go/weir/internal/testenv"
)

// drawOp returns a random operation whose requests have asks.
func drawOp(t *rapid.T) Op {
	return Op(rapid.IntRange(1, int(lastOp)).Filter(func(op int) bool { return Op(op).AskBytes() > 0 }).Draw(t, "op"))
}

func TestEncodedMessagesDecodeUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := drawOp(t)
		p := op.properties()
		limit := bucket.Limit{Algorithm: bucket.InFlight, Rate: rapid.Int64Range(1, 100_000).Draw(t, "rate"), Version: rapid.Uint64().Draw(t, "version")}
		if !p.ofHold {
			limit.Algorithm = rapid.SampledFrom([]bucket.Algorithm{bucket.SlidingWindow, bucket.SlidingLog, bucket.FixedWindow, bucket.TokenBucket, bucket.LeakyBucket}).Draw(t, "algorithm")
			limit.Per = time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "per"))
		}
		if limit.Algorithm == bucket.TokenBucket || limit.Algorithm == bucket.LeakyBucket {
			limit.Burst = rapid.Int64Range(0, 100_000).Draw(t, "burst")
		}
		if limit.Algorithm == bucket.FixedWindow {
			limit.Start = rapid.Int64Range(-1<<62, 1<<62).Draw(t, "start")
		}
		if !p.ofHold && limit.Algorithm != bucket.LeakyBucket {
			limit.Keep = rapid.Int64Range(0, limit.Capacity()-1).Draw(t, "keep")
		}
		h := Header{
			Op: op, Flags: rapid.Byte().Draw(t, "flags") &^ FlagTraced,
			Hops: rapid.ByteRange(0, MaxHops).Draw(t, "hops"), Asks: rapid.ByteRange(1, 5).Draw(t, "asks"),
			Wait: time.Duration(rapid.Uint32Range(0, 60_000_000).Draw(t, "wait")) * time.Microsecond, To: rapid.Uint64().Draw(t, "to"),
		}
		if p.ofHold {
			h.Asks = 1
		}
		var within Trace
		if op.Traced() != "" && rapid.Bool().Draw(t, "traced") {
			h.Flags |= FlagTraced
			copy(within.TraceID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "trace"))
			copy(within.SpanID[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "span"))
			within.Flags = rapid.Byte().Draw(t, "trace flags")
		}
		request := h.Append(nil)
		asks := make([]Ask, h.Asks)
		for i := range asks {
			asks[i] = drawAsk(t, p.ask, &limit)
			request = asks[i].Append(request)
		}
		if h.Flags&FlagTraced != 0 {
			request = within.Append(request)
		}
		got, err := ParseHeader(request)
		if err != nil || got != h {
			t.Fatalf("%+v came as %+v, %v", h, got, err)
		}
		if c := TraceOf(request); c != within {
			t.Fatalf("%+v came as %+v", within, c)
		}
		for i := range asks {
			var numbers bucket.Limit
			a, err := ParseAsk(request, i, &numbers)
			if err != nil || numbers != limit || IDOf(request, i) != asks[i].ID {
				t.Fatalf("%+v came as %+v, %v", limit, numbers, err)
			}
			a.Limit = &limit
			if a != asks[i] {
				t.Fatalf("%+v came as %+v", asks[i], a)
			}
		}

		answer := AppendResponse(nil, Done, len(asks))
		var results []Result
		for range asks {
			r := drawResult(t, p.result)
			if op == OpTake && r.Allowed && rapid.Bool().Draw(t, "part") {
				r.Granted, r.Remaining = r.Remaining, 0
			}
			switch {
			case !hasTime(op):
			case r.Allowed:
				r.At = int64(r.Receipt) + int64(r.Age)
			default:
				r.At, r.Receipt = int64(r.Receipt), 0
			}
			results = append(results, r)
			answer = r.Append(op, answer)
		}
		if s, err := ParseResponse(answer, op, len(asks)); err != nil || s != Done {
			t.Fatal(s, err)
		}
		for i := range results {
			if r := ParseResult(answer, op, i); r != results[i] {
				t.Fatalf("%+v came as %+v", results[i], r)
			}
		}
	})
}

// drawAsk returns a random ask with the given parts.
func drawAsk(t *rapid.T, p parts, limit *bucket.Limit) Ask {
	a := Ask{
		ID:    bucket.ID{Hi: rapid.Uint64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")},
		Limit: limit, Partition: Policy(rapid.IntRange(0, int(FailClosed)).Draw(t, "partition")),
		Shadow: rapid.Bool().Draw(t, "shadow"), BansKeys: rapid.Bool().Draw(t, "bans"), Pauses: rapid.Bool().Draw(t, "pauses"), AtMost: rapid.Bool().Draw(t, "at most"), Units: rapid.Int64Range(0, 1<<62).Draw(t, "units"),
	}
	a.Global = IsGlobal(a.ID)
	age := func() time.Duration {
		return time.Duration(rapid.Int64Range(-int64(longestReset), int64(longestReset)).Draw(t, "age"))
	}
	if p&takePart != 0 {
		a.Take = Take{rapid.Int64().Draw(t, "sent"), Want{rapid.Uint32().Draw(t, "wanted"), rapid.Uint16Range(0, 500).Draw(t, "term")}}
	}
	if p&spentPart != 0 {
		a.Spent = Spent{
			bucket.Receipt(rapid.Int64().Draw(t, "receipt")), age(), rapid.Uint64().Draw(t, "reset number"),
			rapid.Bool().Draw(t, "stood in"), rapid.Bool().Draw(t, "only last"),
		}
	}
	if p&lentPart != 0 {
		a.Lent = Lent{rapid.Uint32().Draw(t, "lent"), rapid.Uint32().Draw(t, "until")}
	}
	if p&peekPart != 0 {
		a.Peek.Latest = rapid.Bool().Draw(t, "latest")
	}
	if p&waitPart != 0 {
		a.Wait = Wait{rapid.Uint64().Draw(t, "ticket"), rapid.Uint32().Draw(t, "waiting"), ageTick * time.Duration(rapid.Uint32().Draw(t, "waited"))}
	}
	if p&holdPart != 0 {
		a.Hold = Hold{
			rapid.Uint64().Draw(t, "holder"), rapid.Uint64().Draw(t, "number"), time.Duration(rapid.Int64Range(0, int64(LongestTTL)).Draw(t, "ttl")),
			age(), rapid.Bool().Draw(t, "waits"), rapid.Bool().Draw(t, "denied"), rapid.Bool().Draw(t, "shrinks"), rapid.Bool().Draw(t, "reads"),
		}
	}
	if p&resetPart != 0 {
		a.Reset = rapid.Uint64().Draw(t, "reset")
	}
	if p&banPart != 0 {
		for i := range a.Ban {
			a.Ban[i] = time.Duration(rapid.Int64Range(0, int64(LongestBan/time.Second)).Draw(t, "ban")) * time.Second
		}
	}
	return a
}

// drawResult returns a random result with the given parts.
func drawResult(t *rapid.T, p parts) Result {
	positive := rapid.Int64Range(1, 1<<62)
	r := Result{Result: bucket.Result{
		Allowed: rapid.Bool().Draw(t, "allowed"), Limit: positive.Draw(t, "limit"), Remaining: positive.Draw(t, "remaining"),
		RetryAfter: time.Duration(positive.Draw(t, "retry")), ResetAfter: time.Duration(positive.Draw(t, "reset")),
	}, Source: Source(rapid.IntRange(1, int(Sources)-1).Draw(t, "source")), StoodIn: rapid.Bool().Draw(t, "without authority")}
	if r.Allowed {
		r.Age, r.RetryAfter = r.RetryAfter, 0
	}
	r.Firm = !r.Allowed && rapid.Bool().Draw(t, "firm")
	r.Banned = r.Firm && rapid.Bool().Draw(t, "banned")
	r.Paused = r.Banned && rapid.Bool().Draw(t, "paused")
	if p&receiptPart != 0 {
		r.Receipt, r.ResetNumber = bucket.Receipt(rapid.Int64().Draw(t, "receipt")), rapid.Uint64().Draw(t, "reset number")
	}
	if p&leasePart != 0 {
		r.Lease = Lease{rapid.Uint32().Draw(t, "lease"), rapid.Uint16Range(0, 500).Draw(t, "term"), rapid.Uint32().Draw(t, "until")}
	}
	if p&grantedPart != 0 {
		r.Granted = int64(rapid.Uint32().Draw(t, "granted"))
	}
	if p&renewalPart != 0 {
		r.Renewal = rapid.Uint64().Draw(t, "renewal")
	}
	if p&unitsPart != 0 {
		r.Held = positive.Draw(t, "held")
	}
	return r
}

// The bounds are such that a duration can be added to any time of day, and subtracted from it.
func TestDurationsOfAMessageAreBounded(t *testing.T) {
	limit := bucket.Limit{Rate: 1, Per: time.Second}
	request := (&Ask{Limit: &limit, Units: 1}).Append(Header{Op: OpTake, Asks: 1}.Append(nil))
	refund := (&Ask{Limit: &limit, Units: 1}).Append(Header{Op: OpRefund, Asks: 1}.Append(nil))
	answer := new(Result).Append(OpTake, AppendResponse(nil, Done, 1))
	wait := func(b []byte) time.Duration {
		h, err := ParseHeader(b)
		require.NoError(t, err)
		return h.Wait
	}
	for _, c := range []struct {
		about string
		in    []byte // a message; the test sets all bits of the duration at the position at
		at    int
		bytes int
		of    func([]byte) time.Duration
		most  time.Duration
	}{
		{"how long an asker waits", request, 4, 4, wait, time.Minute},
		{"the age of a receipt", refund, HeaderBytes + subjectBytes + 8, 8, func(b []byte) time.Duration {
			a, err := ParseAsk(b, 0, new(bucket.Limit))
			require.NoError(t, err)
			return a.Spent.Age
		}, longestReset},
		{"the term of a requested lease", request, HeaderBytes + subjectBytes + 12, 2, func(b []byte) time.Duration {
			a, err := ParseAsk(b, 0, new(bucket.Limit))
			require.NoError(t, err)
			return time.Duration(a.Take.Want.Term) * time.Millisecond
		}, LongestLease},
		{"the term of a granted lease", answer, len(answer) - 2, 2, func(b []byte) time.Duration {
			return time.Duration(ParseResult(b, OpTake, 0).Lease.Term) * time.Millisecond
		}, LongestLease},
		{"RetryAfter", answer, ResponseHeaderBytes + 18, 8, func(b []byte) time.Duration { return ParseResult(b, OpTake, 0).RetryAfter }, longestReset},
		{"ResetAfter", answer, ResponseHeaderBytes + 26, 8, func(b []byte) time.Duration { return ParseResult(b, OpTake, 0).ResetAfter }, longestReset},
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

func TestAnswerMustFitItsRequest(t *testing.T) {
	done := func(counted, results, more int) []byte {
		b := AppendResponse(nil, Done, counted)
		for range results {
			b = new(Result).Append(OpTake, b)
		}
		return append(b, make([]byte, more)...)
	}
	unreached := AppendResponse(nil, Unreached, 0)
	for about, c := range map[string]struct {
		answer []byte
		asks   int
		good   bool
	}{
		"one result":                   {done(1, 1, 0), 1, true},
		"two results":                  {done(2, 2, 0), 2, true},
		"a body of its own":            {done(0, 0, 9), 0, true},
		"Unreached":                    {unreached, 1, true},
		"no bytes":                     {nil, 1, false},
		"half a header":                {unreached[:1], 1, false},
		"fewer results than asks":      {done(1, 1, 0), 2, false},
		"more results than asks":       {done(2, 2, 0), 1, false},
		"a wrong number of results":    {done(2, 1, 0), 1, false},
		"half a result":                {done(1, 1, 0)[:ResponseHeaderBytes+OpTake.properties().resultBytes-1], 1, false},
		"a byte after the results":     {done(1, 1, 1), 1, false},
		"results without asks":         {done(1, 1, 0), 0, false},
		"Unreached, and a byte":        {append(slices.Clone(unreached), 0), 1, false},
		"Unknown, by an older release": {AppendResponse(nil, Unknown, 0), 0, false},
		"a status of another release":  {AppendResponse(nil, Unknown+1, 0), 0, false},
		"a status of zero":             {AppendResponse(nil, 0, 0), 0, false},
	} {
		_, err := ParseResponse(c.answer, OpTake, c.asks)
		require.Equal(t, c.good, err == nil, about)
	}
}

// Every answer of a member results in a decision with valid units and times.
func FuzzAnswer(f *testing.F) {
	for _, s := range []Source{0, Owner, FailedClosed, Sources, 255} {
		r := Result{Result: bucket.Result{Limit: -1, Remaining: -5, RetryAfter: -7, ResetAfter: -9}, Source: s, Firm: s == Owner, Lease: Lease{uint32(s), 1, 2}, ResetNumber: 3}
		f.Add(r.Append(OpTake, AppendResponse(nil, Done, 1)))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		if s, err := ParseResponse(answer, OpTake, 1); err != nil || s != Done {
			return
		}
		r := ParseResult(answer, OpTake, 0)
		require.True(t, r.Source > 0 && r.Source < Sources)
		require.GreaterOrEqual(t, min(r.Limit, r.Remaining, int64(r.RetryAfter), int64(r.ResetAfter)), int64(0))
		require.True(t, r.Allowed || r.RetryAfter > 0)
	})
}

func TestUnmarkStoodInClearsMarkOfAllResults(t *testing.T) {
	answer := AppendResponse(nil, Done, 2)
	for _, source := range []Source{StandIn, Budget} {
		r := Result{Result: bucket.Result{Allowed: true, Receipt: 7}, Source: source, StoodIn: true, Firm: false, Lease: Lease{}, ResetNumber: 5, Ahead: 0}
		answer = r.Append(OpTake, answer)
	}
	require.True(t, ParseResult(answer, OpTake, 1).StoodIn)
	UnmarkStoodIn(OpTake, answer)
	for i, source := range []Source{StandIn, Budget} {
		r := ParseResult(answer, OpTake, i)
		require.Equal(t, Result{Result: bucket.Result{Allowed: true, Receipt: 7}, Source: source, StoodIn: false, Firm: false, Lease: Lease{}, ResetNumber: 5, At: 7, Ahead: 0}, r)
	}
	UnmarkStoodIn(OpTake, AppendResponse(nil, Unreached, 0))
}
