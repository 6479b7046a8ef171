package weir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/regions"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// foreignNode is a handler for a node of another region that sends arbitrary requests. Its
// answers are empty.
type foreignNode struct{}

func (foreignNode) Changed()                                {}
func (foreignNode) Answered()                               {}
func (foreignNode) HandleLate(cluster.Peer, []byte, []byte) {}
func (foreignNode) Serve(b *cluster.Batch) {
	for i := range b.Requests {
		b.Reply(i, nil)
	}
}

// declareBody returns the body of a request that declares a limit to a member.
func declareBody(l *Limit) (message []byte) {
	message = wire.AppendText(nil, l.Name)
	for _, number := range []int64{int64(l.Version), int64(l.Algorithm), l.Rate, int64(l.Per), l.Burst, l.Keep, int64(l.Scope), int64(l.Partition), int64(l.Calendar)} {
		message = binary.AppendUvarint(message, uint64(number))
	}
	return wire.AppendText(message, l.Zone)
}

// A node of another region may send exchanges about Global limits, and resets of their counts.
// It may not send any other message that members of one region send to each other, because the
// regions do not share counts or published values.
func TestForeignNodesMayOnlyExchangeAndReset(t *testing.T) {
	t.Parallel()
	n := fleet(t, 1, func(_ int, cfg *Config) {
		cfg.Region = "near"
		cfg.Regions = map[string][]string{"far": {"127.0.0.1:1"}, "third": {"127.0.0.1:1"}}
		cfg.Secrets = [][]byte{[]byte("of members, near")}
		cfg.RegionSecrets = map[string][][]byte{"far": {[]byte("of near and far.")}, "third": {[]byte("near and third..")}}
	})[0]
	l := limiter(t, n, Limit{Name: "calls", Rate: 10, Per: time.Hour})
	far := cluster.NewGossip(cluster.Config{
		Name: "stranger-1", Bind: "127.0.0.1:0", Region: "far", Regions: map[string][]string{"near": {n.handover.View().Members[0].Addr}},
		Secrets: [][]byte{[]byte("of members, far.")}, RegionSecrets: map[string][][]byte{"near": {[]byte("of near and far.")}},
		Seed: n.identity.Fingerprint(), Logger: quiet,
	})
	require.NoError(t, far.Start(t.Context(), foreignNode{}))
	t.Cleanup(func() { require.NoError(t, far.Close()) })

	key := l.id("key")
	numbers := bucket.Limit{Rate: 10, Per: time.Hour}
	one := func(o wire.Op, units int64) []byte {
		a := wire.Ask{ID: key, Limit: &numbers, Units: units, Reset: uint64(units)}
		return a.Append(wire.Header{Op: o, Asks: 1}.Append(nil))
	}
	with := func(o wire.Op, body []byte) []byte { return append(wire.Header{Op: o}.Append(nil), body...) }
	frame := []byte{1, 0}                                                                        // version, flags
	for _, number := range []uint64{view.NameHash("member-1"), n.handover.View().Hashes[0], 1} { // from, to, number
		frame = binary.LittleEndian.AppendUint64(frame, number)
	}
	frame = append(frame, 0) // items
	declared := Limit{Name: "calls", Rate: 99, Per: time.Hour}
	speaking := func(region string) []byte {
		return with(wire.OpExchange, (&countsync.Exchange{Region: region}).Append(nil))
	}
	abroad := func(request []byte) []byte {
		answer, err := far.Region("near").Ask(t.Context(), request, nil, 5*time.Second)
		require.NoError(t, err)
		return answer
	}
	lab.Eventually(t, "the region is reached", func() bool {
		_, err := far.Region("near").Ask(t.Context(), speaking("far"), nil, time.Second)
		return err == nil
	})

	cases := []struct {
		op      wire.Op
		request []byte
		crosses bool
	}{
		{wire.OpTake, one(wire.OpTake, 3), false},
		{wire.OpDebit, one(wire.OpDebit, 3), false},
		{wire.OpRefund, one(wire.OpRefund, 3), false},
		{wire.OpPeek, one(wire.OpPeek, 1), false},
		{wire.OpWait, one(wire.OpWait, 1), false},
		{wire.OpLend, one(wire.OpLend, 0), false},
		{wire.OpReturn, one(wire.OpReturn, 0), false},
		{wire.OpReset, one(wire.OpReset, 0), false},
		{wire.OpStream, with(wire.OpStream, frame), false},
		{wire.OpPublish, with(wire.OpPublish, publishBody("a", 1, "b")), false},
		{wire.OpCompare, with(wire.OpCompare, []byte{0}), false},
		{wire.OpExchange, speaking("far"), true},
		{wire.OpDeclare, with(wire.OpDeclare, declareBody(&declared)), false},
		{wire.OpLocate, with(wire.OpLocate, handover.AppendRanges(make([]byte, 8), countsync.All())), false},
		{wire.OpTop, with(wire.OpTop, nil), false},
		{wire.OpTotals, with(wire.OpTotals, nil), false},
	}
	require.Len(t, cases, int(wire.OpTotals))
	for i, c := range cases {
		require.EqualValues(t, i+1, c.op)
		if answer := abroad(c.request); c.crosses {
			require.NotEmpty(t, answer, "op %d", c.op)
		} else {
			require.Empty(t, answer, "op %d", c.op)
		}
		require.EqualValues(t, 10, remaining(t, l, "key"), "op %d", c.op)
	}
	require.Empty(t, abroad(speaking("third")), "an exchange in the name of another region is refused")
	refused := len(cases) - 1 + 1 // all cases except the exchange, and the exchange in the name of the third region
	for op := wire.OpTotals + 1; op <= wire.OpPause; op++ {
		request := with(op, nil)
		if op.AskBytes() > 0 {
			request = one(op, 1)
		}
		require.Empty(t, abroad(request), "op %d", op)
		refused++
	}
	require.EqualValues(t, refused, n.Stats().Regions["far"].Refused)
	published, _ := n.Published("")
	require.Empty(t, published)
	require.Zero(t, n.Stats().Conflicts)

	for _, c := range cases { // a member of this region may send all of them
		if c.op == wire.OpExchange {
			require.Empty(t, serveFrom(n, "near", c.request), "members of one region send each other no exchanges of their own")
			c.request[1] = wire.FlagAbroad // the member forwards the exchange of another region
		}
		require.NotEmpty(t, serveFrom(n, "near", c.request), "op %d", c.op)
	}
	published, _ = n.Published("")
	require.Len(t, published, 1)
	require.EqualValues(t, 1, n.Stats().Conflicts)
}

// answerChan receives an answer.
type answerChan chan<- []byte

func (w answerChan) Reply(_ int, body []byte) { w <- append([]byte(nil), body...) }

func (w answerChan) Defer(int) cluster.Later { return func(body []byte) { w.Reply(0, body) } }

// serveFrom returns the answer of a node to a request from a region.
func serveFrom(n *Node, region string, request []byte) []byte {
	got := make(chan []byte, 1)
	b := cluster.NewBatch(region+"-1", answerChan(got))
	b.Region, b.Requests = region, [][]byte{bytes.Clone(request)}
	n.checks.Serve(b)
	return <-got
}

// newBorderNode starts a node of region "near" that also has region "far" in its Config. It returns
// the node, and a Regional and a Global limit with equal numbers. The count of "key" is used up
// in both.
func newBorderNode(t *testing.T, edit func(*Config)) (n *Node, regional, global *Limiter) {
	cfg := Config{Region: "near", Regions: map[string][]string{"far": {"127.0.0.1:1"}}, Cluster: cluster.NewSolo("near-1", "near"), Logger: quiet}
	if edit != nil {
		edit(&cfg)
	}
	n = solo(t, cfg)
	regional = limiter(t, n, Limit{Name: "regional", Algorithm: SlidingLog, Rate: 10, Per: time.Hour})
	global = limiter(t, n, Limit{Name: "global", Algorithm: SlidingLog, Rate: 10, Per: time.Hour, Scope: Global})
	require.True(t, allow(t, regional, "key", 10).Allowed)
	debit(t, global, "key", 10)
	return n, regional, global
}

// resetRequest returns a request to reset the count of a key, with the given number.
func resetRequest(l *Limiter, key string, number int64) []byte {
	a := wire.Ask{ID: l.id(key), Limit: &l.numbers, Reset: uint64(number)}
	return a.Append(wire.Header{Op: wire.OpReset, Asks: 1}.Append(nil))
}

func used(n *Node, l *Limiter, key string) int64 {
	units, _, _ := n.counts.Used(l.id(key), n.env.Now())
	return units
}

// A request from a foreign region does not determine the member that receives it, or the member
// that stands in.
func TestForeignRequestCannotChooseReceiver(t *testing.T) {
	n, _, _ := newBorderNode(t, nil)
	b, h := cluster.NewBatch("far-1", nil), wire.Header{Op: wire.OpExchange, Flags: wire.FlagStandIn, To: view.NameHash("near-2")}
	b.Region = "far"
	refusal, err := n.regions.Border(b, &h, nil, n.env.Now())
	require.NoError(t, err)
	require.Nil(t, refusal)
	require.Equal(t, wire.Header{Op: wire.OpExchange, Flags: wire.FlagAbroad}, h)
}

// The ID of a count determines whether the count is Global. A request of another region has no
// influence on this.
func TestForeignRequestLeavesRegionalCountsUnchanged(t *testing.T) {
	n, regional, global := newBorderNode(t, nil)
	require.Empty(t, serveFrom(n, "far", resetRequest(regional, "key", n.env.Now())))
	require.EqualValues(t, 10, used(n, regional, "key"))

	print := n.regions.Holdings.Exchange(nil).Print
	stating := func(l *Limiter) []byte {
		st := countsync.Statement{ID: l.id("key"), Limit: l.numbers, Number: n.env.Now(), From: 7, Wants: 10, Must: 10, Spent: 9, Series: 1}
		return (&countsync.Exchange{Region: "far", Print: print, Statements: []countsync.Statement{st}}).Append(wire.Header{Op: wire.OpExchange}.Append(nil))
	}
	require.Empty(t, serveFrom(n, "far", stating(regional)))
	n.regions.Holdings.Limit(global.id("key"), &global.numbers, n.env.Time()) // creates a holding
	kept := n.regions.Holdings.Len()
	require.EqualValues(t, 10, used(n, regional, "key"))
	require.Zero(t, n.regions.Holdings.SpentElsewhere(regional.id("key"), n.env.Now()))
	require.EqualValues(t, 2, n.Stats().Regions["far"].Refused)

	answer := serveFrom(n, "far", stating(global))
	e, err := countsync.ParseExchange(answer[wire.ResponseHeaderBytes:])
	require.NoError(t, err)
	require.Len(t, e.Statements, 1)
	require.Equal(t, global.id("key"), e.Statements[0].ID)
	require.EqualValues(t, 9, n.regions.Holdings.SpentElsewhere(global.id("key"), n.env.Now()))
	require.Equal(t, kept, n.regions.Holdings.Len())
	require.NotEmpty(t, serveFrom(n, "far", resetRequest(global, "key", n.env.Now())))
	require.Zero(t, used(n, global, "key"))
	require.EqualValues(t, 2, n.Stats().Regions["far"].Refused)

	require.Empty(t, serveFrom(n, "nowhere", resetRequest(global, "key", n.env.Now())), "a region that is not in Regions")
	require.Empty(t, serveFrom(n, "", resetRequest(global, "key", n.env.Now())))
}

// A node accepts from a member only those forwarded requests that another region may make: exchanges
// of that region, and resets of Global counts.
func TestForwardedForeignRequestsAreRestricted(t *testing.T) {
	t.Parallel()
	n, regional, global := newBorderNode(t, nil)
	handed := func(request []byte) []byte {
		request[1] |= wire.FlagAbroad
		return serveFrom(n, "near", request)
	}
	take := wire.Ask{ID: regional.id("key"), Limit: &regional.numbers, Units: 1}
	require.Empty(t, handed(take.Append(wire.Header{Op: wire.OpTake, Asks: 1}.Append(nil))))
	require.Empty(t, handed(resetRequest(regional, "key", n.env.Now())))
	require.EqualValues(t, 10, used(n, regional, "key"))
	require.NotEmpty(t, handed(resetRequest(global, "key", n.env.Now())))
	own := (&countsync.Exchange{Region: "near"}).Append(wire.Header{Op: wire.OpExchange, Flags: wire.FlagAbroad}.Append(nil))
	require.Equal(t, wire.AppendResponse(nil, wire.Unreached, 0), serveFrom(n, "near", own), "a member cannot forward a request in the name of its own region")
}

func TestOnlyExchangesOfOtherRegionsAreForwarded(t *testing.T) {
	t.Parallel()
	lab.WhileHealthy(t, func(t *testing.T) decisions {
		nodes := fleet(t, 2, func(_ int, cfg *Config) {
			cfg.Region, cfg.Regions = "near", map[string][]string{"far": {"127.0.0.1:1"}}
		})
		ls := limiters(t, nodes, Limit{Name: "regional", Algorithm: SlidingLog, Rate: 10, Per: time.Hour})
		key := findOwnedKey(t, ls[1], nodes[1])
		d := allow(t, ls[1], key, 10)
		requireOwners(t, d)
		require.True(t, d.Allowed)
		request := resetRequest(ls[0], key, nodes[0].env.Now())
		v := nodes[0].handover.View()
		binary.LittleEndian.PutUint64(request[8:], v.Hashes[1-v.Self])
		request[2] = wire.MaxHops
		require.Empty(t, serveFrom(nodes[0], "far", request))
		require.EqualValues(t, 10, used(nodes[1], ls[1], key))
		require.Zero(t, nodes[0].Stats().Passed)

		// The other node answers the statements of a region about an ID for which it decides.
		globals := limiters(t, nodes, Limit{Name: "global", Rate: 10, Per: time.Hour, Scope: Global})
		st := countsync.Statement{ID: globals[0].id(findOwnedKey(t, globals[1], nodes[1])), Limit: globals[0].numbers, Number: nodes[0].env.Now(), From: 7, Series: 1}
		e := countsync.Exchange{Region: "far", Print: nodes[0].regions.Holdings.Exchange(nil).Print, Statements: []countsync.Statement{st}}
		answered := serveFrom(nodes[0], "far", e.Append(wire.Header{Op: wire.OpExchange, Flags: wire.PassBits}.Append(nil)))
		if st, err := wire.ParseResponse(answered, wire.OpExchange, 0); err != nil || st != wire.Done {
			return unanswered()
		}
		answer, err := countsync.ParseExchange(answered[wire.ResponseHeaderBytes:])
		require.NoError(t, err)
		if len(answer.Statements) == 0 {
			return unanswered()
		}
		require.Len(t, answer.Statements, 1)
		require.Zero(t, nodes[0].Stats().Regions["far"].Served)
		require.EqualValues(t, 1, nodes[1].Stats().Regions["far"].Served)
		return nil
	})
}

// The number of a reset is a time. If a number in the far future were accepted, later resets
// would fail.
func TestResetInFarFutureIsRefused(t *testing.T) {
	for region, slack := range map[string]time.Duration{"far": regions.SlackAbroad, "near": countsync.ResetSlack} {
		t.Run(region, func(t *testing.T) {
			n, _, global := newBorderNode(t, nil)
			for _, number := range []int64{math.MaxInt64, n.env.Now() + int64(slack) + int64(time.Minute)} {
				require.Empty(t, serveFrom(n, region, resetRequest(global, "key", number)))
				require.EqualValues(t, 10, used(n, global, "key"), "a refused reset changes nothing")
			}
			require.NotEmpty(t, serveFrom(n, "near", resetRequest(global, "key", n.env.Now())), "the refused numbers do not prevent later resets")
			require.Zero(t, used(n, global, "key"))

			debit(t, global, "key", 10)
			require.NotEmpty(t, serveFrom(n, region, resetRequest(global, "key", n.env.Now()+int64(slack)-int64(time.Second))), "the clock of the sender may be ahead")
			require.Zero(t, used(n, global, "key"))
			debit(t, global, "key", 10)
			_ = global.Reset(t.Context(), "key") // resets in this region; no node of the other region answers
			require.Zero(t, used(n, global, "key"), "a reset by this node gets a number above the one that is ahead")
		})
	}
}

// A count keeps the latest window that it has received. If a window in the future were accepted
// from a foreign region, the count would deny until this window begins.
func TestFutureWindowOfOtherRegionIsRefused(t *testing.T) {
	n, _, _ := newBorderNode(t, nil)
	l := limiter(t, n, Limit{Name: "day", Algorithm: FixedWindow, Rate: 10, Per: 24 * time.Hour, Scope: Global})
	today := l.window.Numbers(&l.numbers, n.env.TimeOfDay())
	window := func(key string) time.Duration { // time from now until the start of the window of the count
		part := n.regions.Holdings.Limit(l.id(key), today, n.env.Time())
		return time.Duration(part.Start - n.env.Now())
	}
	print := n.regions.Holdings.Exchange(nil).Print
	for about, c := range map[string]struct {
		ahead time.Duration
		taken int
	}{
		"a year ahead": {365 * 24 * time.Hour, 0}, "as far as numbers go": {1<<62 - time.Duration(n.env.Now()) - time.Hour, 0},
		"two minutes": {2 * time.Minute, 0}, "half a minute": {30 * time.Second, 1}, "now": {0, 1}, "yesterday": {-24 * time.Hour, 1},
	} {
		before := n.Stats().Regions["far"].Refused
		require.Less(t, window(about), time.Duration(0))
		numbers := l.numbers
		numbers.Start = n.env.Now() + int64(c.ahead)
		st := countsync.Statement{ID: l.id(about), Limit: numbers, Number: n.env.Now(), From: 7, Spent: 9, Series: 1}
		e := countsync.Exchange{Region: "far", Print: print, Statements: []countsync.Statement{st}}
		answer, err := countsync.ParseExchange(serveFrom(n, "far", e.Append(wire.Header{Op: wire.OpExchange}.Append(nil)))[wire.ResponseHeaderBytes:])
		require.NoError(t, err)
		require.Len(t, answer.Statements, c.taken, about)
		n.regions.Learn("far", e)
		require.Less(t, window(about), time.Minute, about)
		require.EqualValues(t, 1-c.taken, n.Stats().Regions["far"].Refused-before, about)
	}
}

// The number and the size of the requests of a region are bounded for each second. Requests
// beyond the bound are refused and counted, and other regions are still answered.
func TestForeignRequestsAreBoundedEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, global := newBorderNode(t, func(c *Config) { c.Regions["third"] = []string{"127.0.0.1:1"} })
		speaking := func(region string) []byte {
			return (&countsync.Exchange{Region: region}).Append(wire.Header{Op: wire.OpExchange}.Append(nil))
		}
		over := wire.AppendResponse(nil, wire.Unreached, 0)
		for range regions.MaxRequests {
			require.NotEqual(t, over, serveFrom(n, "far", speaking("far")))
		}
		for range 10 {
			require.Equal(t, over, serveFrom(n, "far", speaking("far")))
		}
		require.EqualValues(t, 10, n.Stats().Regions["far"].Refused)
		require.NotEqual(t, over, serveFrom(n, "third", speaking("third")))
		time.Sleep(time.Second)
		require.NotEqual(t, over, serveFrom(n, "far", speaking("far")))

		time.Sleep(time.Second)
		reset := resetRequest(global, "key", n.env.Now())
		for range regions.MaxResets {
			require.NotEqual(t, over, serveFrom(n, "far", reset))
		}
		require.Equal(t, over, serveFrom(n, "far", reset))
		require.NotEqual(t, over, serveFrom(n, "far", speaking("far")))

		time.Sleep(time.Second)
		large := append(speaking("far"), make([]byte, 60<<10)...) // a malformed request, which is counted
		admitted := 0
		for len(serveFrom(n, "far", large)) == 0 {
			admitted++
		}
		require.Equal(t, regions.MaxBytes/len(large), admitted)
	})
}

// regionalCounts returns the number of units in use for each Regional count of a node.
func regionalCounts(n *Node) map[bucket.ID]int64 {
	counts := make(map[bucket.ID]int64)
	var ids []bucket.ID
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		cursor, ids = n.counts.Scan(cursor, ids[:0])
		for _, id := range ids {
			if !wire.IsGlobal(id) {
				counts[id], _, _ = n.counts.Used(id, n.env.Now())
			}
		}
	}
	return counts
}

// FuzzRequestsFromAnotherRegion sends arbitrary requests from a node of another region, over a
// real connection, to a node of a cluster of two. The requests must not change the Regional
// counts, the published values or the members of the two nodes. Both nodes forward only
// exchanges, and there must be a response to each request.
func FuzzRequestsFromAnotherRegion(f *testing.F) {
	nodes := fleet(f, 2, func(_ int, cfg *Config) {
		cfg.Region, cfg.Regions = "near", map[string][]string{"far": {"127.0.0.1:1"}}
	})
	near := nodes[0]
	v := near.handover.View()
	far := cluster.NewGossip(cluster.Config{
		Name: "far-1", Bind: "127.0.0.1:0", Region: "far", Regions: map[string][]string{"near": {v.Members[v.Self].Addr}},
		Seed: near.identity.Fingerprint(), Logger: quiet,
	})
	require.NoError(f, far.Start(f.Context(), foreignNode{}))
	f.Cleanup(func() { require.NoError(f, far.Close()) })

	// Each of the two nodes owns a Regional count of each algorithm. With a Per of a year, no
	// unit returns during the test.
	type pair struct{ regional, global bucket.ID }
	var (
		pairs   []pair
		numbers []bucket.Limit
	)
	for _, algorithm := range algorithms {
		l := Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 100, Per: 24 * 365 * time.Hour}
		global := l
		global.Name, global.Scope = "global "+l.Name, Global
		regionals, globals := limiters(f, nodes, l), limiters(f, nodes, global)
		for _, owner := range nodes {
			key := findOwnedKey(f, regionals[0], owner)
			d, err := regionals[0].AllowN(f.Context(), key, 40)
			require.NoError(f, err)
			require.True(f, d.Allowed)
			pairs = append(pairs, pair{regionals[0].id(key), globals[0].id(key)})
			numbers = append(numbers, l.declared().Numbers())
		}
	}
	require.NoError(f, near.Publish("name", 7, []byte("value")))
	copied := func() bool { // whether each node has the replicas of the other node
		for _, n := range nodes {
			counts := regionalCounts(n)
			if len(counts) != len(pairs) || slices.Min(slices.Collect(maps.Values(counts))) < 40 {
				return false
			}
			if values, _ := n.Published(""); len(values) != 1 {
				return false
			}
		}
		return true
	}
	lab.Eventually(f, "each node has the copies", copied)
	request := func(o wire.Op, flags, hops uint8, body []byte) []byte {
		return append(wire.Header{Op: o, Flags: flags, Hops: hops, Wait: 50 * time.Millisecond}.Append(nil), body...)
	}
	speak := func(t *testing.T, asked []byte, tell bool) {
		near.regions.Pardon("far") // fuzzing sends more than a region may send
		if tell {
			far.Region("near").Send(asked)
			asked = nil // the response shows that the message was handled before
		}
		_, err := far.Region("near").Ask(t.Context(), asked, nil, 10*time.Second)
		// If the machine is paused, a connection may be closed, and is then opened again. A
		// request that closes the connection by itself does so each time.
		lost := func() bool { return errors.Is(err, cluster.ErrDisconnected) || errors.Is(err, cluster.ErrBroken) }
		if lost() {
			lab.Eventually(t, "the connection is opened again", func() bool {
				_, err = far.Region("near").Ask(t.Context(), asked, nil, 10*time.Second)
				return !lost()
			})
		}
		require.NoError(t, err)
	}
	lab.Eventually(f, "the region is reached", func() bool {
		_, err := far.Region("near").Ask(f.Context(), nil, nil, time.Second)
		return err == nil
	})

	before := make(map[*Node]map[bucket.ID]int64)
	members := make(map[*Node][]Member)
	for _, n := range nodes {
		before[n], members[n] = regionalCounts(n), n.Members()
	}
	print := near.regions.Holdings.Exchange(nil).Print
	for i, p := range pairs {
		one := func(o wire.Op, id bucket.ID, units int64) []byte {
			h := wire.Header{Op: o, Asks: 1, Hops: wire.MaxHops, Wait: 50 * time.Millisecond}
			a := wire.Ask{ID: id, Limit: &numbers[i], Units: units, Reset: uint64(units)}
			return a.Append(h.Append(nil))
		}
		for _, id := range []bucket.ID{p.regional, p.global, countsync.ElsewhereID(p.regional)} {
			for o := wire.OpTake; o <= wire.OpReset; o++ {
				units := int64(1)
				if o == wire.OpReset {
					units = near.env.Now()
				}
				f.Add(one(o, id, units), byte(i%3), o == wire.OpDebit)
			}
			st := countsync.Statement{ID: id, Limit: numbers[i], Number: near.env.Now(), From: 7, Received: 1, Wants: 10, Must: 10, Spent: 9, Series: 1, Forgot: i%2 == 0}
			e := countsync.Exchange{Region: "far", Print: print, Statements: []countsync.Statement{st}}
			f.Add(request(wire.OpExchange, 0, 0, e.Append(nil)), byte(i%3), false)
			f.Add(request(wire.OpExchange, wire.FlagAbroad, 0, e.Append(nil)), byte(i%3), true)
		}
		f.Add(one(wire.OpReset, p.global, math.MaxInt64), byte(0), false)
	}
	f.Add(request(wire.OpPublish, 0, 0, publishBody("name", 9, "b")), byte(0), false)
	f.Add(request(wire.OpCompare, 0, 0, []byte{0}), byte(0), false)
	f.Add(request(wire.OpDeclare, 0, 0, declareBody(&Limit{Name: "fixed_window", Rate: 99, Per: time.Hour})), byte(0), false)
	f.Add(request(wire.OpTop, 0, 0, nil), byte(0), false)
	f.Add(request(wire.OpTotals, 0, 0, nil), byte(0), false)
	f.Add(request(wire.OpLocate, 0, 0, handover.AppendRanges(make([]byte, 8), countsync.All())), byte(0), false)
	frame := []byte{1, 0} // version, flags
	for _, number := range []uint64{v.Hashes[1-v.Self], v.Hashes[v.Self], 1} {
		frame = binary.LittleEndian.AppendUint64(frame, number)
	}
	f.Add(request(wire.OpStream, 0, 0, append(binary.LittleEndian.AppendUint64(nil, 0), frame...)), byte(1), false)
	f.Add(request(wire.OpExchange, 0, 0, (&countsync.Exchange{Region: "near"}).Append(nil)), byte(0), false)

	f.Fuzz(func(t *testing.T, asked []byte, to byte, tell bool) {
		asked = bytes.Clone(asked)
		if len(asked) >= wire.HeaderBytes && to%3 > 0 { // sent to near, or to the other node
			binary.LittleEndian.PutUint64(asked[8:], v.Hashes[(v.Self+int(to%3))%2])
		}
		speak(t, asked, tell)
		for _, n := range nodes {
			require.Equal(t, before[n], regionalCounts(n))
			if !slices.Equal(members[n], n.Members()) { // the nodes may be disconnected for a moment if the machine is busy
				lab.Eventually(t, "they see each other again", func() bool { return slices.Equal(members[n], n.Members()) })
			}
			values, _ := n.Published("")
			require.Equal(t, []Published{{"name", 7, []byte("value")}}, values)
			is := n.Stats()
			require.Zero(t, is.Conflicts)
			require.Zero(t, is.Passed)
		}
	})
}
