package countsync

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

// play runs a script on nodes 1 to 3. The script is a list of steps, separated by newlines or
// semicolons. All steps concern one ID.
//
//	1 holds to 2 3        has authority, and these targets
//	1 answers 2 to 3      regards 2 as the member that answers, and has these targets
//	1 take 5, 1 refund 5, 1 reset
//	1 owes 2              all counts; with "it" only this ID, with "both" also the next hash, with
//	                      "others" only other hashes
//	1 gives 2             authority over all hashes
//	1 meets 2 3           knows no other members
//	1 collects, reviews, requests, yields, sweeps, compacts or forgets its tallies
//	1>2                   collects, and sends all waiting frames
//	1>2 2>1               the same, repeated until no frame is sent
//	1 delays 2            builds a frame that arrives with the step "2 is late"
//	pass 30m              time
//	1 has 5               units in use
//	1 knows 2             has a tally of 2
//	1 lost it             its store has no count
//	1 is idle for 2       has no data to send
func (x *trio) play(t *testing.T, limit *bucket.Limit, script string) {
	t.Helper()
	id := someID(0)
	var delayed []byte
	number := func(word string) int {
		n, err := strconv.Atoi(word)
		require.NoError(t, err, word)
		return n
	}
	members := func(words []string) (list []Member) {
		for _, word := range words {
			list = append(list, Member(number(word)))
		}
		return list
	}
	targets := func(words []string) []Member {
		if to := slices.Index(words, "to"); to >= 0 {
			return members(words[to+1:])
		}
		return nil
	}
	for _, step := range regexp.MustCompile(`[;\n]`).Split(script, -1) {
		words := strings.Fields(step)
		if len(words) == 0 {
			continue
		}
		if strings.Contains(words[0], ">") {
			for sent := true; sent; {
				sent = false
				for _, pair := range words {
					from, to, _ := strings.Cut(pair, ">")
					sent = x.exchange(t, number(from)-1, number(to)-1) || sent
				}
				sent = sent && len(words) > 1
			}
			continue
		}
		if words[0] == "pass" {
			d, err := time.ParseDuration(words[1])
			require.NoError(t, err)
			x.now += int64(d)
			continue
		}
		n := number(words[0]) - 1
		store, s, rest := x.stores[n], x.streams[n], words[2:]
		switch words[1] {
		case "holds":
			*x.roles[n] = fixed{holds: true, answers: Member(n + 1), targets: targets(rest)}
		case "answers":
			*x.roles[n] = fixed{answers: Member(number(rest[0])), targets: targets(rest)}
		case "take":
			require.True(t, store.Take(id, limit, x.now, int64(number(rest[0]))).Allowed, step)
		case "refund":
			store.Refund(id, limit, x.now, int64(number(rest[0])), 0, false)
		case "reset":
			s.Reset(id, x.now)
		case "owes":
			owed := map[string]Ranges{"": All(), "it": {{id.Hi, id.Hi}}, "both": {{id.Hi, id.Hi + 1}}, "others": {{1, 2}}}
			s.Owe(Member(number(rest[0])), owed[strings.Join(rest[1:], "")])
		case "gives":
			s.Transfer(Member(number(rest[0])), 1, All(), x.now)
		case "meets":
			s.Meet(members(rest))
		case "collects":
			s.Collect(x.now, false, x.roles[n])
		case "reviews":
			s.Review(x.now, x.roles[n])
		case "requests":
			s.RequestCounts()
		case "yields":
			s.Yield(All(), x.now)
		case "sweeps":
			s.Sweep(x.now)
		case "compacts":
			for range 2048 {
				store.Compact(x.now)
			}
		case "forgets":
			s.ledger.drop(id)
		case "delays":
			delayed = s.Next(Member(number(rest[0])), x.now, x.roles[n], nil, 16<<10)
			s.Lost(Member(number(rest[0])))
		case "has":
			require.EqualValues(t, number(rest[0]), x.copy(n, id).used, step)
		case "knows":
			require.NotNil(t, s.ledger.find(id, Member(number(rest[0]))), step)
		case "lost":
			_, held := store.Judge(id)
			require.False(t, held, step)
		case "is":
			if rest[0] == "late" {
				_, _, err := s.Serve(x.now, delayed, x.roles[n], nil)
				require.NoError(t, err)
				continue
			}
			require.True(t, s.Idle(Member(number(rest[2]))), step)
		default:
			require.Fail(t, "no such step", step)
		}
	}
}

func TestUnitsCountOnceByAnyPath(t *testing.T) {
	hourly := bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 1000, Per: time.Hour}
	window := limitOf(bucket.FixedWindow)
	const stood = "1 holds to 2; 1 take 5; 1>2; 2 meets 2 3; 3 meets 2 3; 2 answers 3; 3 answers 3"
	const refunded = `1 holds to 2 3; 1 take 8; 1>2; 1>3
		2 answers 2 to 3; 2 take 1; 2 collects; 1 take 4; 1>3
		2 answers 1; 1 holds to 2; 1 refund 4; 1 reviews; 2 reviews; 3 reviews
		2>3 1>2 2>1 3>1 1>3; 1 has 9; 2 has 9
		`
	const another = `2 answers 2 to 3; 3 answers 2 to 1; 2 take 8; 2>3; 3 refund 3
		2 answers 1 to 3; 2 reviews; 3 answers 1 to 1; 3 reviews
		`
	const gone = "1 meets 2 4; 1 holds to 4; 1 take 5; 1 collects; 1 holds to 2 4; "
	const follows = "; 1>2; 1 take 1; 1 collects; 1 meets 2; 2 holds; 1>2; 2 has 6"
	const pair = "1 holds to 2; 2 answers 1 to 1; "
	const supposed = "2 answers 3; 3 answers 2; 2 take 5; 2>3; 3 meets 1; 3 answers 1; "
	const apart = "2 holds to 1; 1 take 4; 1 collects; 2 take 5; 2 collects; "
	for name, c := range map[string]struct {
		limit  bucket.Limit
		script string
	}{
		// A former target has a copy from before a refund.
		"an old copy reaches a stand-in after a refund":  {window, refunded + "2 answers 2 to 3; 3 answers 2; 2 owes 3; 3 owes 2; 3>2 2>3; 2 has 9; 3 has 9"},
		"an old copy is a stand-in's own after a refund": {window, refunded + "2 answers 3; 3 answers 3 to 2; 2 owes 3; 3 owes 2; 3>2 2>3; 2 has 9; 3 has 9"},
		// A scan omits empty counts.
		"a holder learns that its copy as a stand-in is empty": {window, `1 holds to 2; 1 take 4; 1>2
			2 answers 2 to 3; 3 answers 2; 2 owes 3; 2>3
			2 answers 1; 1 refund 4; 1>2; 1 answers 2; 2 holds to 3; 2 owes 3; 1 reviews; 2 reviews; 3 reviews
			3>2; 2>3; 3>2; 2>3; 3>2; 2>3; 1 has 0; 2 has 0; 3 has 0`},
		// The refund arrives by way of the second node, and the count with the refunded units
		// later.
		"a refund before its units takes nothing of others": {window, `1 holds to 2 3; 1 take 2; 1>2; 1>3; 2 answers 3; 2 take 1; 2>3
			1 take 18; 1 collects; 1 refund 3; 1 answers 3; 1 gives 3; 1>2
			2 reviews; 2>3; 3 knows 1; 1>3; 3 has 18`},
		"a refund of a member's own units is not withheld": {limitOf(bucket.SlidingLog), `1 answers 3; 2 answers 3; 3 answers 3
			1 take 5; 1>3; pass 5400h; 2 take 5; 2>3; pass 3600h; 2 take 1; 2>3; 2 refund 4; 2>3; 3 has 2`},
		"a refund of units that never come lapses": {window, `1 holds to 2; 1 take 5; 1>2; 1 answers 3; 2 answers 3; 3 answers 3
			2 refund 3; 2>3; pass 21600h; 2 take 4; 2>3; 3 has 4`},
		// Units that were spent since the last Collect are in the cell, but not in a tally yet.
		"a state comes before units were collected":  {window, "1 holds to 2; 2 take 5; 1 take 3; 1>2; 2 has 8; 2>1; 1>2; 1 has 8; 2 has 8"},
		"a vector comes before units were collected": {window, "1 holds to 2; 1 take 5; 2 take 3; 2>1; 1 has 8; 1>2; 2>1; 1 has 8; 2 has 8"},
		"a refund outlasts its count in the table": {window, `1 holds to 2; 1 take 5; 1>2; 2 answers 3; 2 refund 5; 2 collects; 2 compacts; 2 lost it
			pass 1h; 2 sweeps; 2 answers 1; 2 reviews; 1 take 2; 2>1; 1 has 2`},
		"a member that yields has a copy of the other": {window, apart + "2>1; 1 take 2; 1 answers 2; 1 yields; 1>2 2>1; 1 has 11; 2 has 11"},
		"a member that yields has no copy":             {window, apart + "1 take 2; 1 answers 2; 1 yields; 1>2 2>1; 1 has 11; 2 has 11"},
		// The last receiver has left, possibly without the counts.
		"a copy of a copy": {window, `1 meets 2 3 4 5; 1 holds to 2 4; 1 owes 2; 1>2; 1 take 5; 1>2; 1 answers 2; 1 gives 5
			2 answers 2 to 3; 3 answers 2; 2 owes 3; 2>3; 1 meets 2 3 4
			1>2; 2 reviews; 2>3; 3>2; 1>2; 2 reviews; 2>3; 3>2; 1>2; 2 reviews; 2>3; 3>2; 1 has 5; 2 has 5; 3 has 5`},
		// 3 waits for authority from 2, but 2 has no authority and crashes.
		"a spend of a supposed holder is passed on":              {window, supposed + "3 reviews; 3>1; 1 has 5"},
		"a state of a supposed holder is passed on":              {window, "2 answers 2 to 3; 3 answers 2; 2 take 5; 2>3; 3 meets 1; 3 answers 1; 3 reviews; 3>1; 1 has 5"},
		"a sweep leaves such a spend to the next review":         {hourly, "3 answers 2; 3 take 1; 3 collects; pass 5h; " + supposed + "pass 30s; 3 sweeps; 3 reviews; 3>1; 1 has 5"},
		"a spend that comes just before a transfer is passed on": {window, "1 holds to 3; 2 answers 1; 2 take 5; 2>1; 1 answers 3; 1 gives 3; 1>3; 3 has 5"},
		"a copy that comes just before a transfer is passed on":  {window, "1 holds to 3; 2 answers 2 to 1; 2 take 5; 2>1; 1 answers 3; 1 gives 3; 1>3; 3 has 5"},
		"a misdirected copy is passed on":                        {window, "3 answers 3 to 2; 3 take 4; 3>2; 2>1; 1 has 4"},
		"a vector with the used units of its sender":             {hourly, "2 take 5; 2 collects; pass 30m; 2 take 3; 2 collects; pass 40m; 2>1; 1 has 3"},
		"a copy of which more has recovered":                     {hourly, "2 take 4; 2 collects; pass 30m; 2>1; pass 42m; 1 take 5; 1 collects; 1 has 9; 2 take 3; 2 answers 2 to 1; 2>1; 1 has 8; 2 take 2; 2>1; 1 has 10"},
		"a reset for the sender of an older count":               {window, "1 reset; 1>2; 2 take 5; 2>1; 1 has 0; 1>2; 2 has 0"},
		"a request during a scan is served after it":             {window, "1 holds to 2; 1 take 5; 1>2; 2 answers 2 to 3; 3 answers 2; 2 owes 3 others; 3 requests; 3>2 2>3; 3 has 5"},
		"a tally that its origin has forgotten":                  {window, "1 holds to 2; 2 take 5; 2>1; 2 forgets; 1 take 1; 1>2; 2 knows 2; 2 take 2; 2>1; 1 has 8"},
		"an older copy replaces nothing":                         {window, "1 holds to 2 3; 1 take 5; 1>2; 1>3; 1 holds to 3; 1 take 2; 1>3; 2 answers 2 to 3; 3 answers 2; 2 owes 3; 2>3; 3 has 7; 3 reviews; 3>2; 2 has 7"},
		"an authority without counts requests copies":            {window, stood + "; 3 requests; 3>2 2>3; 3 has 5; 2 is idle for 3"},
		"an authority requests copies during a scan":             {window, stood + "; 2 owes 3; 3 requests; 3>2 2>3; 3 has 5; 2 is idle for 3"},
		"a refund of another's units comes first":                {window, another + "3>1; 2>1; 3>1; 2>1; 1 has 5"},
		"a refund of another's units comes last":                 {window, another + "2>1; 3>1; 2>1; 3>1; 1 has 5"},
		"authority beside units of a stand-in":                   {window, "1 holds to 2; 3 answers 3 to 2; 1 take 5; 1>2; 3 take 1; 3>2; 1 answers 2; 1 gives 2; 1>2; 2 has 6"},
		// The count has neither the take nor the refund, and the take arrives by another path.
		"an early refund reaches copies": {window, `1 holds to 3; 1 take 5; 1>3; 2 answers 3; 2 take 3; 2 collects; 2 delays 3
			2 answers 1; 2 refund 3; 2>1; 1>3; 3 is late; 1 has 5; 3 has 5`},
		"a reset reaches a member that missed it":    {window, pair + "1 take 5; 1>2 2>1; 2 take 3; 1 collects; 2 reset; 2 has 0; 2 take 2; 1>2 2>1; 1 has 2; 2 has 2"},
		"a tally that begins again":                  {bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 10, Per: time.Minute}, pair + "2 take 5; 1>2 2>1; pass 1m; 2 sweeps; 2 take 2; 1>2 2>1; 1 has 2; 2 has 2"},
		"two members that both began with authority": {window, "1 holds to 2; 2 holds to 1; 1 take 2; 2 take 3; 1>2 2>1; 1 has 5; 2 has 5"},
		"a frame that was not sent is built again":   {window, "1 holds to 2; 1 take 1; 1 collects; 1 delays 2; 1 take 1; 1 collects; 1 delays 2; 1>2; 2 has 2; 2 is late; 2 has 2"},
		"waiting items of a lost member":             {window, gone + "1 collects" + follows},
		"scanned items of a lost member":             {window, gone + "1 owes 2 it" + follows},
		"items of a larger scan for a lost member":   {window, gone + "1 owes 2 both" + follows},
		"items of two scans for a lost member":       {window, gone + "1 owes 2 it; 1 owes 2 both" + follows},
	} {
		t.Run(name, func(t *testing.T) { newTrio().play(t, &c.limit, c.script) })
	}
	for _, algorithm := range algorithms { // only the vector of an empty count has the refund
		t.Run("a new target learns that a count is empty "+algorithm.String(), func(t *testing.T) {
			limit := limitOf(algorithm)
			newTrio().play(t, &limit, `1 holds to 2; 1 take 3; 1>2; 2 has 3; 1 holds; 1 refund 3; 1>2; 2 has 3; 1 compacts
				1 holds to 2; 1 owes 2; 1>2; 1>2; 1>2; 2 has 0`)
		})
	}
}
