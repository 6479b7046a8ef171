package countsync

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

var anID = bucket.ID{Hi: 0x2545f4914f6cdd1d, Lo: 0xd1342543de82ef95}

// twoRegions returns two regions that know each other, and know that nothing was forgotten.
func twoRegions(l bucket.Limit) (w *globe, a, b *region) {
	w = newGlobe(nil, 1, 2, l, network{})
	for _, r := range w.regions {
		r.holdings.inheritKnowledge(0)
	}
	w.now++
	return w, w.regions[0], w.regions[1]
}

func (r *region) serve(t *testing.T, from *region, st Statement) Statement {
	t.Helper()
	st.From = from.member
	answer, ok := r.holdings.Serve(from.name, from.regions.print, &st, r.time())
	require.True(t, ok)
	return answer
}

func (r *region) limit() bucket.Limit {
	l := r.whole()
	return r.holdings.Limit(anID, &l, r.time())
}

func TestRepeatedStatementIsGrantedOnce(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a bucket.Algorithm) {
		_, from, to := twoRegions(bucket.Limit{Algorithm: a, Rate: 100, Per: time.Minute})
		ask := Statement{ID: anID, Limit: from.whole(), Number: 7, Wants: 30, Demand: 1e6, Holding: 50}
		first := to.serve(t, from, ask)
		require.EqualValues(t, 30, first.Granted)
		again := to.serve(t, from, ask)
		require.Equal(t, first, again)
		l := to.limit()
		require.EqualValues(t, 20, l.Capacity())

		ask.Number = 6 // an older number
		require.Zero(t, to.serve(t, from, ask).Granted, "an older statement gets no grant")
		l = to.limit()
		require.EqualValues(t, 20, l.Capacity())

		ask.Number, ask.Wants = 8, 0 // the answers were lost
		require.Zero(t, to.serve(t, from, ask).Granted)
		l = to.limit()
		require.EqualValues(t, 50, l.Capacity(), "units of a lost grant are unspent")
	})
}

func TestBucketGrantMovesUsedUnitsUnlessLost(t *testing.T) {
	_, from, to := twoRegions(bucket.Limit{Algorithm: bucket.TokenBucket, Rate: 1, Per: time.Hour, Burst: 100})
	for range 50 {
		require.True(t, to.ask(1).Allowed)
	}
	to.w.now += 2 * sec
	ask := Statement{ID: anID, Limit: from.whole(), Number: 7, Wants: 30, Must: 100, Demand: 1e12, Holding: 50, Usual: 1e12}
	answer := to.serve(t, from, ask)
	require.EqualValues(t, 30, answer.Granted)
	require.EqualValues(t, 30, answer.Used)
	require.EqualValues(t, 20, to.used())
	ask.Number, ask.Wants = 8, 0
	to.serve(t, from, ask)
	require.EqualValues(t, 50, to.used(), "not taken, it counts here again")
}

// Absurd numbers must not cause a panic, and must not allow any region to spend more.
func TestAbsurdStatementsCreateNoUnits(t *testing.T) {
	huge := []int64{0, 1, 1 << 40, math.MaxInt64 / 2}
	eachAlgorithm(t, func(t *testing.T, a bucket.Algorithm) {
		for _, n := range huge {
			for _, m := range huge {
				w, liar, r := twoRegions(bucket.Limit{Algorithm: a, Rate: 100, Per: time.Minute})
				r.ask(50)
				r.ask(50)
				w.now += int64(ExchangeEvery)
				due, _ := r.holdings.Due(r.time(), func(bucket.ID) bool { return true })
				require.Len(t, due[liar.name], 1)
				st := Statement{
					ID: anID, Limit: liar.whole(), Number: n, From: liar.member, Received: m, Debt: n, Wants: m, Must: n, Demand: m, Usual: n, Holding: m,
					Granted: m, Used: n, Spent: n, Series: m, Retry: time.Duration(m), Forgot: n > 1, More: m > 1,
				}
				x := r.holding(0)
				for _, number := range []int64{due[liar.name][0].Number, n} {
					st.Answers, st.LastNumber = number, number
					r.holdings.Answered(liar.name, liar.regions.print, &st, r.time())
					for i := range x.accounts {
						require.LessOrEqual(t, x.accounts[i].received, int64(50), "of what a region began with it has no more to grant")
						require.LessOrEqual(t, x.accounts[i].granted, int64(50))
						require.GreaterOrEqual(t, x.accounts[i].granted, int64(0))
					}
					r.serve(t, liar, st)
					l := r.limit()
					require.LessOrEqual(t, l.Capacity(), int64(100))
					r.holdings.Due(r.time(), func(bucket.ID) bool { return true })
				}
			}
		}
	})
}

func TestDisagreeingRegionsExchangeNoUnits(t *testing.T) {
	w, from, to := twoRegions(bucket.Limit{Rate: 100, Per: time.Minute})
	st := Statement{ID: anID, Limit: w.limit, Number: 1, Wants: 10}
	_, ok := to.holdings.Serve(from.name, from.regions.print+1, &st, to.time())
	require.False(t, ok)
	_, ok = to.holdings.Serve("elsewhere", from.regions.print, &st, to.time())
	require.False(t, ok)
	_, ok = to.holdings.Serve(to.name, from.regions.print, &st, to.time())
	require.False(t, ok, "nor a region with itself")
	require.Nil(t, to.holding(0))
	to.holdings.Unanswered("elsewhere", []Statement{st}, to.time())
}

func TestSpentUnitsOfOtherRegionsCountOnce(t *testing.T) {
	w, from, to := twoRegions(bucket.Limit{Rate: 100, Per: time.Minute})
	st := Statement{ID: anID, Limit: w.limit, Spent: 10, Series: 5}
	for number := range int64(3) {
		st.Number = number
		to.serve(t, from, st)
	}
	require.EqualValues(t, 10, to.holdings.SpentElsewhere(anID, to.time().Now))
	st.Number, st.Spent = 4, 7 // an older statement
	to.serve(t, from, st)
	st.Number, st.Spent, st.Series = 5, 3, 6 // a new series
	to.serve(t, from, st)
	require.EqualValues(t, 13, to.holdings.SpentElsewhere(anID, to.time().Now))
}

// The traffic about an id is bounded: a statement to each other region and its answer, at most ten
// times a second.
func TestStatementIsShort(t *testing.T) {
	most := int64(math.MaxInt64 / 2)
	l := bucket.Limit{Algorithm: bucket.TokenBucket, Rate: 1e12, Per: 366 * 24 * time.Hour, Burst: 1e12, Version: math.MaxUint64}
	st := Statement{
		ID: anID, Limit: l, Number: most, From: math.MaxUint64, Received: most, Debt: most, Wants: most, Must: most, Demand: most, Usual: most, Holding: most,
		Answers: most, Granted: most, Used: most, LastNumber: most, More: true, Forgot: true, Retry: 366 * 24 * time.Hour, Spent: most, Series: most,
	}
	e := Exchange{Region: "r", Print: 678}
	header := len(e.Append(nil))
	e.Statements = []Statement{st}
	require.LessOrEqual(t, len(e.Append(nil))-header, 200)
	for len(e.Statements) < maxStatements {
		st.Limit.Version--
		e.Statements = append(e.Statements, st)
	}
	got, err := ParseExchange(e.Append(nil))
	require.NoError(t, err)
	require.Equal(t, e, got)
	e.Statements = append(e.Statements, st)
	_, err = ParseExchange(e.Append(nil))
	require.Error(t, err, "one too many")
}

func FuzzExchange(f *testing.F) {
	f.Add((&Exchange{Region: "eu", Print: 2, Statements: []Statement{{ID: anID, Limit: bucket.Limit{Rate: 5, Per: time.Minute}, Number: 1, Wants: 3, Holding: 2}}}).Append(nil))
	f.Add((&Exchange{Region: "r0", Statements: []Statement{{ID: anID, Limit: bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 5, Per: time.Minute, Start: epoch}, Answers: 1, Granted: 3, LastNumber: 1, More: true}}}).Append(nil))
	f.Add([]byte{1, 200})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseExchange(b)
		if err != nil {
			require.Empty(t, e.Statements)
			return
		}
		again, err := ParseExchange(e.Append(nil))
		require.NoError(t, err)
		require.Equal(t, e, again)
		// All parsed statements are applied without a panic, and create no units.
		_, from, to := twoRegions(bucket.Limit{Rate: 100, Per: time.Minute})
		for i := range e.Statements {
			st := &e.Statements[i]
			l := st.Limit
			to.holdings.Limit(st.ID, &l, to.time())
			to.holdings.Serve(from.name, from.regions.print, st, to.time())
			to.holdings.Answered(from.name, from.regions.print, st, to.time())
			mine := to.holdings.Limit(st.ID, &l, to.time())
			x := to.holdings.shard(st.ID).byID[st.ID]
			require.LessOrEqual(t, mine.Capacity(), x.whole.Capacity())
		}
		to.holdings.Due(to.time(), func(bucket.ID) bool { return true })
	})
}

func FuzzHoldingCopy(f *testing.F) {
	w, from, to := twoRegions(bucket.Limit{Rate: 100, Per: time.Minute})
	to.holdings.Serve(from.name, from.regions.print, &Statement{ID: anID, Limit: w.limit, Number: 1, From: from.member, Wants: 10, Holding: 50}, to.time())
	var known limits
	f.Add(to.holdings.appendCopy(nil, anID, &known))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, r, _ := twoRegions(bucket.Limit{Rate: 100, Per: time.Minute})
		var known limits
		rd := reader{b: b}
		r.holdings.adoptCopy(anID, &rd, &known, r.time().Now)
		x := r.holding(0)
		if rd.err != nil {
			require.Nil(t, x)
		}
		if x == nil {
			return // the copy is malformed, or has accounts of another number of regions
		}
		mine := x.part
		require.LessOrEqual(t, mine.Capacity(), x.whole.Capacity())
		r.holdings.Due(r.time(), func(bucket.ID) bool { return true })
	})
}

// If the node of a region dies, its successor has a copy of the holding. The successor grants
// no units until it knows the grants since the copy was made.
func TestSuccessorGrantsNothingBeforeAccountsAreKnown(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a bucket.Algorithm) {
		w, from, to := twoRegions(bucket.Limit{Algorithm: a, Rate: 100, Per: time.Minute})
		w.rule = func(_ demands, both, _, _ int64) int64 { return both }
		ask := Statement{ID: anID, Limit: from.whole(), Number: 7, Wants: 10, Must: 100, Holding: 50}
		require.EqualValues(t, 10, to.serve(t, from, ask).Granted)
		to.saveCopies()
		ask.Number, ask.Received = 8, 10
		require.EqualValues(t, 20, to.serve(t, from, ask).Granted)

		to.restart(to.copies)
		l := to.limit()
		require.EqualValues(t, 40, l.Capacity())
		ask.Number, ask.Received = 9, 20
		refused := to.serve(t, from, ask)
		require.EqualValues(t, 20, refused.Granted, "it keeps its units")

		due, _ := to.holdings.Due(to.time(), func(bucket.ID) bool { return true })
		require.Len(t, due[from.name], 1)
		asks := due[from.name][0]
		require.True(t, asks.Forgot)
		answer := Statement{
			ID: anID, Limit: from.whole(), Number: 10, From: from.member, Received: 20,
			Answers: asks.Number, LastNumber: asks.Number, Holding: 70,
		}
		require.True(t, to.holdings.Answered(from.name, from.regions.print, &answer, to.time()))
		l = to.limit()
		require.EqualValues(t, 30, l.Capacity())
		ask.Number = 11
		require.EqualValues(t, 30, to.serve(t, from, ask).Granted)
	})
}

// A region returns received units that may have been spent: its node has a successor that does not know
// of some of them, or the region has spent more units than it has.
func TestUnitsOfUnknownStateReturnAsSpent(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a bucket.Algorithm) {
		for _, c := range []struct {
			successor                 bool
			received, granted         int64
			debt, used, capacityAfter int64
		}{
			{successor: true, received: 10, granted: 10, used: 20, capacityAfter: 40},
			{received: 0, debt: 12, used: 12, capacityAfter: 50},
		} {
			_, from, to := twoRegions(bucket.Limit{Algorithm: a, Rate: 100, Per: time.Minute})
			ask := Statement{ID: anID, Limit: from.whole(), Number: 7, Wants: 30, Holding: 50, Demand: 1e12}
			require.EqualValues(t, 30, to.serve(t, from, ask).Granted)
			ask.Number, ask.Wants, ask.Received = 8, 0, 30
			if c.successor {
				from.member++
			} else {
				to.serve(t, from, ask)
			}
			ask.Number, ask.Received, ask.Debt = 9, c.received, c.debt
			require.Equal(t, c.granted, to.serve(t, from, ask).Granted)
			require.Equal(t, c.used, to.used())
			l := to.limit()
			require.Equal(t, c.capacityAfter, l.Capacity())
		}
	})
}

// If a limit is lowered, the lower limit is divided again, even if more units of the higher limit
// were granted.
func TestLoweredLimitIsDividedAgain(t *testing.T) {
	_, from, to := twoRegions(bucket.Limit{Rate: 100, Per: time.Minute})
	ask := Statement{ID: anID, Limit: from.whole(), Number: 7, Wants: 30, Holding: 50, Demand: 1e12}
	require.EqualValues(t, 30, to.serve(t, from, ask).Granted)
	ask.Limit.Rate, ask.Limit.Version = 10, 1
	ask.Number, ask.Wants, ask.Received = 8, 0, 30
	require.EqualValues(t, 5, to.serve(t, from, ask).Granted)
	ask.Number, ask.Received = 9, 5
	require.EqualValues(t, 5, to.serve(t, from, ask).Granted)
	l := to.holdings.Limit(anID, &ask.Limit, to.time())
	require.Zero(t, l.Capacity())
}
