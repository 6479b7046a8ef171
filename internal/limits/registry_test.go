package limits

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// newLoggedRegistry returns a Registry and a function that returns the lines of its log.
func newLoggedRegistry() (r *Registry, lines func() []string) {
	var text strings.Builder
	r = NewRegistry(slog.New(slog.NewTextHandler(&text, nil)))
	return r, func() []string { return strings.FieldsFunc(text.String(), func(c rune) bool { return c == '\n' }) }
}

// peer is a member. It calls tell with each message.
type peer struct {
	cluster.Peer
	tell func(message []byte)
}

func (p peer) Send(request []byte) { p.tell(request[wire.HeaderBytes:]) }

// connectedView returns the view of a node that is connected to the given number of other members.
func connectedView(members int, tell func(member int, message []byte)) *view.View {
	all := slices.Repeat([]bool{true}, members+1)
	v := &cluster.View{Members: []cluster.Member{{Name: "self"}}, Direct: all, Connected: clustertest.Mesh(members + 1)}
	for i := range members {
		v.Members = append(v.Members, cluster.Member{Name: fmt.Sprint("member ", i), Peer: peer{tell: func(message []byte) { tell(i, message) }}})
	}
	return view.New(0, v, view.Terms{}, nil)
}

// declaredMessages returns the messages that a Registry sends to another member.
func declaredMessages(r *Registry) (messages [][]byte) {
	r.Declare(connectedView(1, func(_ int, message []byte) { messages = append(messages, message) }))
	return messages
}

// Two nodes declare their limits to each other every few seconds.
func Example() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.MessageKey {
			return slog.Attr{}
		}
		return a
	}}))
	here, there := NewRegistry(log), NewRegistry(log)
	_ = here.Add(Limit{Name: "api", Rate: 10, Per: time.Minute}, 0)
	_ = there.Add(Limit{Name: "api", Rate: 20, Per: time.Minute}, 0)
	here.Declare(connectedView(1, func(_ int, message []byte) {
		if err := there.Compare(message, "a", 0); err != nil {
			fmt.Println(err)
		}
	}))
	fmt.Println(here.Conflicts(), there.Conflicts())
	// Output:
	// level=WARN limit=api version=0 numbers="20 per 1m, sliding_window, regional, majority_share" other_numbers="10 per 1m, sliding_window, regional, majority_share" member=a
	// 0 1
}

func TestOtherAlgorithmAtSameVersionIsRefused(t *testing.T) {
	r, _ := newLoggedRegistry()
	first := Limit{Name: "api", Rate: 10, Per: time.Minute, Version: 3}
	another := Limit{Name: "api", Algorithm: bucket.TokenBucket, Rate: 10, Per: time.Minute, Version: 3}
	require.NoError(t, r.Add(first, 0))
	for range 2 {
		err := r.Add(another, 0)
		for _, part := range []string{bucket.SlidingWindow.String(), bucket.TokenBucket.String(), `"api"`, "Version 3", "raise Version", "another Name"} {
			require.ErrorContains(t, err, part)
		}
	}
	varies := another
	varies.Varies = true
	require.Error(t, r.Add(varies, 0), "it is judged by the other all the same")

	older := another
	older.Version = 2
	require.NoError(t, r.Add(older, 0), "the higher version holds")
	older.Algorithm = bucket.FixedWindow
	require.ErrorContains(t, r.Add(older, 0), bucket.TokenBucket.String()+" at the same Version 2")
	other := another
	other.Name = "api/tokens"
	require.NoError(t, r.Add(other, 0))
	require.NoError(t, r.Add(first, 0))
	another.Version = 4
	require.NoError(t, r.Add(another, 0))
	first.Version = 4
	require.Error(t, r.Add(first, 0))
	for another.Version = 5; another.Version < 100; another.Version++ {
		require.NoError(t, r.Add(another, 0))
	}
	require.NoError(t, r.Add(first, 0), "the Algorithm of that Version is forgotten")
	require.Len(t, r.all[0].algorithms, maxVersions)
	first.Version = 100 - maxVersions
	require.Error(t, r.Add(first, 0))
	require.Zero(t, r.Conflicts())
}

func TestIntendedDifferenceIsNoConflict(t *testing.T) {
	r, lines := newLoggedRegistry()
	const day = 1
	for _, l := range []Limit{
		{Name: "window", Rate: 10, Per: time.Minute},
		{Name: "window", Rate: 10, Per: time.Minute},
		{Name: "window", Rate: 20, Per: time.Minute, Version: 1},
		{Name: "window", Rate: 10, Per: time.Minute}, // where Version 1 is not known yet
		{Name: "window", Rate: 30, Per: time.Minute, Version: 1, Varies: true},
		{Name: "window", Rate: 20, Per: time.Minute, Version: 1},

		{Name: "bucket", Algorithm: bucket.LeakyBucket, Rate: 10, Per: time.Minute},
		{Name: "bucket", Algorithm: bucket.LeakyBucket, Rate: 10, Per: time.Minute, Burst: 10},
		{Name: "daily", Algorithm: bucket.FixedWindow, Rate: 10, Calendar: day},
		{Name: "daily", Algorithm: bucket.FixedWindow, Rate: 10, Calendar: day, Zone: "UTC"},

		{Name: "tiers", Rate: 10, Per: time.Minute, Varies: true},
		{Name: "tiers", Rate: 20, Per: time.Hour, Varies: true},
		{Name: "tiers", Rate: 30, Per: time.Minute},
		{Name: "tiers", Rate: 40, Per: time.Minute, Varies: true},
	} {
		require.NoError(t, r.Add(l, 0))
		other, _ := newLoggedRegistry()
		require.NoError(t, other.Add(l, 0))
		for _, message := range declaredMessages(other) {
			require.NoError(t, r.Compare(message, "other", 0))
		}
	}
	require.Zero(t, r.Conflicts())
	require.Empty(t, lines())
}

func TestLatestDeclarationIsCompared(t *testing.T) {
	r, lines := newLoggedRegistry()
	for i, rate := range []int64{10, 20, 20, 10, 10} {
		require.NoError(t, r.Add(Limit{Name: "api", Rate: rate, Per: time.Minute}, 0))
		require.EqualValues(t, []int{0, 1, 1, 2, 2}[i], r.Conflicts())
	}
	require.Len(t, lines(), 1)
}

func TestMemoryAndLogOfConflictsAreBounded(t *testing.T) {
	r, lines := newLoggedRegistry()
	now := int64(time.Hour)
	add := func(i int, rate int64, version uint64) {
		require.NoError(t, r.Add(Limit{Name: fmt.Sprint("user ", i), Rate: rate, Per: time.Minute, Version: version}, now))
	}
	const names = maxNames + 100
	for i := range names {
		add(i, 1, 0)
	}
	require.Len(t, r.all, maxNames)
	require.Len(t, r.at, maxNames)
	for i := range names {
		add(i, 2, 0)
	}
	require.EqualValues(t, maxNames, r.Conflicts())
	require.Len(t, lines(), conflictLines)
	now += int64(conflictPace)
	for i := range names {
		add(i, 3, 0)
	}
	require.Len(t, lines(), 2*conflictLines)
	require.NotEqual(t, lines()[0], lines()[conflictLines], "another name's turn")
	require.NoError(t, r.Add(Limit{Name: fmt.Sprint("user ", names-1), Algorithm: bucket.FixedWindow, Rate: 1, Per: time.Minute}, now), "beyond the bound nothing is compared")
	for i := range maxNames {
		add(i, 1, 1)
	}
	require.Len(t, r.all, maxNames)

	now += int64(conflictPace)
	seen := r.Conflicts()
	for range 3 {
		require.NoError(t, r.Compare((&Limit{Name: "user 0", Rate: 9, Per: time.Minute, Version: 1}).append(nil), "other", now))
	}
	require.Len(t, lines(), 2*conflictLines+1, "once")
	require.Equal(t, seen+3, r.Conflicts(), "each time")
	require.NoError(t, r.Compare((&Limit{Name: "not here", Rate: 9}).append(nil), "other", now))
	require.Len(t, r.all, maxNames)
}

func TestDeclarationsAreSentToMembersInTurn(t *testing.T) {
	r, _ := newLoggedRegistry()
	var turns []int
	tell := func(members int) {
		r.Declare(connectedView(members, func(member int, _ []byte) { turns = append(turns, member) }))
	}
	tell(2)
	require.Empty(t, turns, "there is nothing to tell")
	require.NoError(t, r.Add(Limit{Name: "varies", Rate: 1, Per: time.Second, Varies: true}, 0))
	tell(2)
	require.Empty(t, turns, "what varies is no one's to compare")
	require.NoError(t, r.Add(Limit{Name: "stays", Rate: 1, Per: time.Second}, 0))
	for _, members := range []int{3, 3, 3, 0, 3} {
		tell(members)
	}
	require.Equal(t, []int{2, 0, 1, 0}, turns)
}

func TestDeclarationsRestWhenEachMemberHasThem(t *testing.T) {
	r, _ := newLoggedRegistry()
	v := connectedView(2, func(int, []byte) {})
	one := Limit{Name: "one", Rate: 1, Per: time.Second}
	require.NoError(t, r.Add(one, 0))
	<-r.Changed()
	require.Zero(t, r.Hurry(), "it does not rest")
	require.Equal(t, DeclareEvery, r.Declare(v))
	require.Equal(t, declareRested, r.Declare(v))
	require.NoError(t, r.Add(one, 0))
	require.Empty(t, r.Changed(), "the numbers are the same")
	one.Rate++
	require.NoError(t, r.Add(one, 0))
	<-r.Changed()
	require.Equal(t, DeclareEvery, r.Hurry())
	require.Equal(t, DeclareEvery, r.Declare(v))
	require.Equal(t, declareRested, r.Declare(v))
}

func TestDeclaredLimitsArriveUnchanged(t *testing.T) {
	r, _ := newLoggedRegistry()
	var limits []Limit
	for i := range 1000 {
		l := Limit{
			Name: fmt.Sprint("limit ", i), Algorithm: bucket.Algorithm(i % 5), Rate: int64(i + 1), Per: time.Duration(i) * time.Hour, Burst: int64(i % 7),
			Scope: uint8(i % 2), Partition: wire.Policy(i % 4), Calendar: uint8(i % 4), Zone: strings.Repeat("z", i%9), Version: uint64(i) << 50,
		}
		limits = append(limits, l)
		require.NoError(t, r.Add(l, 0))
	}
	require.NoError(t, r.Add(Limit{Name: "varies", Rate: 1, Per: time.Second, Varies: true}, 0))
	messages := declaredMessages(r)
	require.Greater(t, len(messages), 2)
	var got []Limit
	for _, message := range messages {
		require.Less(t, len(message), messageBytes+2*wire.MaxNameBytes+100)
		some, err := parseLimits(message)
		require.NoError(t, err)
		got = append(got, some...)
	}
	require.Equal(t, limits, got)

	for about, wrong := range map[string]Limit{
		"a long name":             {Name: strings.Repeat("n", wire.MaxNameBytes+1), Rate: 1},
		"a long zone":             {Name: "n", Zone: strings.Repeat("z", wire.MaxNameBytes+1)},
		"a rate that is negative": {Name: "n", Rate: -1},
		"a time that is negative": {Name: "n", Per: -1},
	} {
		require.ErrorIs(t, r.Compare(wrong.append(nil), "other", 0), wire.ErrMalformed, about)
	}
	for cut := 1; cut < len(limits[0].append(nil)); cut++ {
		require.ErrorIs(t, r.Compare(messages[0][:cut], "other", 0), wire.ErrMalformed, cut)
	}
}

// A Registry can compare, log and send the limits of any message. Each limit takes at least ten bytes of the
// message.
func FuzzLimits(f *testing.F) {
	one := Limit{Name: "api", Version: 1 << 63, Algorithm: bucket.FixedWindow, Rate: 10, Per: time.Minute, Calendar: 1, Zone: "Europe/Zurich"}
	two := Limit{Algorithm: 255, Burst: 1<<63 - 1, Scope: 255, Partition: 255}
	f.Add(one.append(two.append(nil)))
	f.Add(one.append(nil)[:20])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, message []byte) {
		limits, err := parseLimits(message)
		if err != nil {
			require.Empty(t, limits)
			return
		}
		require.LessOrEqual(t, 10*len(limits), len(message))
		r, _ := newLoggedRegistry()
		require.NoError(t, r.Add(Limit{Name: "api", Rate: 1}, 0))
		require.NoError(t, r.Compare(message, "other", 0))
		var again []byte
		for _, l := range limits {
			require.LessOrEqual(t, max(len(l.Name), len(l.Zone)), wire.MaxNameBytes)
			require.GreaterOrEqual(t, min(l.Rate, int64(l.Per), l.Burst), int64(0))
			again = l.append(again)
		}
		repeated, err := parseLimits(again)
		require.NoError(t, err)
		require.Equal(t, limits, repeated)
	})
}
