package page

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/weirtest"
)

func TestNodeShowsMembersAndSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Logger: slog.New(slog.DiscardHandler)}})
		require.NoError(t, err)
		defer c.Close()
		nodes := []*weir.Node{c.Node("a"), c.Node("b"), c.Node("c")}
		limiter := testnode.Limiter(t, nodes[0], weir.Limit{Name: "per user", Rate: 90, Per: time.Minute, NoLeases: true})
		source := &Node{Node: nodes[0], Limiters: []*weir.Limiter{limiter}}
		for range 10 {
			_, err := limiter.Allow(t.Context(), "alice")
			require.NoError(t, err)
		}
		s := source.Snapshot()
		require.Len(t, s.Members, 3)
		sum := 0.0
		for _, m := range s.Members {
			require.Equal(t, Serving, m.Health, m.Name)
			sum += m.Share
			if m.Self {
				require.Equal(t, s.Name, m.Name)
				require.Equal(t, m.Process, s.Counters[0].Process)
			}
		}
		require.InDelta(t, 1, sum, 1e-9)
		require.Equal(t, []string{"per user"}, s.Limits)
		require.Len(t, s.Counters, 1)

		w, err := source.Watch(t.Context(), "per user", "alice")
		require.NoError(t, err)
		require.Equal(t, Watched{Limit: 90, Used: 10, Per: time.Minute, Owner: newLabels(nodes[0].Members()).shorten(limiter.Owner("alice").Name), Source: w.Source, Reset: w.Reset, Counted: -1}, w)
		require.Positive(t, w.Reset)
		require.LessOrEqual(t, w.Reset, 2*time.Minute)
		top, err := source.Top(t.Context())
		require.NoError(t, err)
		require.Equal(t, "alice", top.Asked[0].Key)

		elsewhere := testnode.Limiter(t, nodes[1], limiter.Limit())
		for range 7 {
			_, err := elsewhere.AllowN(t.Context(), "bob", 90)
			require.NoError(t, err)
		}
		counters, silent, err := source.Gather(t.Context())
		require.NoError(t, err)
		require.Empty(t, silent)
		require.Len(t, counters, 3)
		allowed, denied := uint64(0), uint64(0)
		for _, of := range counters {
			allowed, denied = allowed+of.Limits["per user"].Allowed, denied+of.Limits["per user"].Denied
		}
		require.Equal(t, []uint64{11, 6}, []uint64{allowed, denied}, "what every node was asked for")

		// Owners report the held units, wherever the holders are.
		streams := weir.Limit{Name: "streams", Algorithm: weir.InFlight, Rate: 4}
		for i, node := range nodes {
			l := testnode.Limiter(t, node, streams)
			for _, key := range []string{"alice", "bob"}[:min(i, 1)+1] {
				h, err := l.Hold(t.Context(), key, 1)
				require.NoError(t, err)
				require.True(t, h.Decision().Allowed)
			}
			if i == 0 {
				source.Limiters = append(source.Limiters, l)
			}
		}
		top, err = source.Top(t.Context())
		require.NoError(t, err)
		require.Len(t, top.Held, 2)
		for i, want := range []weir.HeldKey{{TopKey: weir.TopKey{Key: "alice"}, Held: 3, Most: 4}, {TopKey: weir.TopKey{Key: "bob"}, Held: 2, Most: 4}} {
			require.Equal(t, want, weir.HeldKey{TopKey: weir.TopKey{Key: top.Held[i].Key}, Held: top.Held[i].Held, Most: top.Held[i].Most})
		}
		w, err = source.Watch(t.Context(), "streams", "alice")
		require.NoError(t, err)
		require.Equal(t, Watched{Limit: 4, Used: 3, InFlight: true, Owner: w.Owner, Source: w.Source, Counted: -1}, w)

		c.Kill("c")
		time.Sleep(5 * time.Second)
		missing := 0
		for _, m := range source.Snapshot().Members {
			if m.Health == Missing {
				missing++
				require.NotEmpty(t, m.State)
			}
		}
		require.Equal(t, 1, missing)
		_, silent, err = source.Gather(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"c"}, silent)

		require.Empty(t, source.Snapshot().Past, "the outage goes on")
		time.Sleep(7 * time.Minute) // the other members forget it
		past := source.Snapshot().Past
		require.Len(t, past, 1)
		require.Regexp(t, `^c-[0-9a-f]{16}$`, strings.Join(past[0].Missing, " "), "no label tells what is forgotten")
		require.True(t, past[0].Until.After(past[0].Since))
	})
}

func TestUniqueLabelsReplaceNames(t *testing.T) {
	const one, two = "-0123456789abcdef", "-fedcba9876543210"
	short := newLabels([]weir.Member{{Name: "gw-0" + one}, {Name: "gw-1" + one}, {Name: "gw-1" + two}, {Name: "db" + one}, {Name: "db"}})
	require.Equal(t, []string{"gw-0", "gw-1" + one, "gw-1" + two, "db" + one, "db", "who left"},
		short.shortenAll([]string{"gw-0" + one, "gw-1" + one, "gw-1" + two, "db" + one, "db", "who left"}))
}

func TestWatchUsesRules(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	_, err := (&Node{Node: node}).Watch(t.Context(), "api/hourly", "alice")
	require.ErrorContains(t, err, `no limit "api/hourly"`)

	book := testnode.Book(t, node, `
rules:
- {name: api, key: user, limits: [{name: hourly, rate: 60, per: 1h}, {name: burst, algorithm: token_bucket, rate: 1, per: 1s, burst: 5}]}
- {name: partner, key: api_key, limit: {name: minute, rate: 9, per: 1m}}
`)
	source := &Node{Node: node, Book: book}
	require.Equal(t, []string{"api/hourly", "api/burst", "partner/minute"}, source.Snapshot().Limits)
	limit, _, _ := book.Current().Limit("api/hourly")
	_, err = book.Current().Limiter(limit, "", "alice").AllowN(t.Context(), "alice", 7)
	require.NoError(t, err)
	w, err := source.Watch(t.Context(), "api/hourly", "alice")
	require.NoError(t, err)
	require.EqualValues(t, 7, w.Used)
	require.EqualValues(t, 60, w.Limit)
	require.Zero(t, w.Free)
	_, err = book.Current().Limiter(limit, "", "alice").AllowN(t.Context(), "alice", 53)
	require.NoError(t, err)
	w, err = source.Watch(t.Context(), "api/hourly", "alice")
	require.NoError(t, err)
	require.Positive(t, w.Free, "until a unit is there again")
	require.LessOrEqual(t, w.Free, w.Reset)
	s := source.Snapshot()
	want := &Rules{Rules: *admin.NewRules(book, weir.Stats{}), Switched: []string{}, Adapted: []string{}, Changes: []string{}, Hot: []string{}}
	want.Outcomes, want.Factors = nil, nil
	require.Equal(t, want, s.Rules)
	require.Equal(t, []any{2, 3, book.Stats().Hash}, []any{s.Rules.Rules.Rules, s.Rules.Limits, s.Rules.Hash})
	require.Equal(t, []string{"partner/minute"}, s.Secret, "of which the page shows no key")
	_, err = source.Watch(t.Context(), "api/hourly", strings.Repeat("k", 2<<10))
	require.Error(t, err)
}

func TestNodeShowsBlocksAndBans(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, "deny: {ip: [192.0.2.1]}\nrules: [{name: api, key: user, ban: {denials: 1, within: 1m, for: 1h}, limit: {rate: 1, per: 1h}}]")
	source := &Node{Node: node, Book: book}
	require.Empty(t, source.Snapshot().Rules.Bans)
	limit, _, _ := book.Current().Limit("api")
	for range 4 {
		_, err := book.Current().Limiter(limit, "", "ada").Allow(t.Context(), "ada")
		require.NoError(t, err)
	}
	s := source.Snapshot().Rules
	require.Equal(t, []any{1, uint64(0)}, []any{s.Blocks, s.Blocked["ip"]})
	require.Equal(t, "1 begun and 2 checks denied by this node", s.Bans)
}

func TestPublishedTextIsShown(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, "rules: []")
	source := &Node{Node: node, Book: book}
	set, err := rules.Parse("rules.yaml", []byte("version: 7\nrules: []"))
	require.NoError(t, err)
	p, err := book.Publish(set, rules.Control{By: "jo", Reason: "a launch"})
	require.NoError(t, err)
	require.NoError(t, node.Publish("rules/text/00000000000000000008", 0, fmt.Appendf(nil, `{"hash":"%064d","size":9,"id":"%016d","chunks":1,"by":"al","at":"2025-11-30T08:00:00Z"}`, 0, 0)))
	require.Eventually(t, func() bool { return source.Snapshot().Rules.RefusedText != nil }, 10*time.Second, 5*time.Millisecond)
	s := source.Snapshot().Rules
	require.Equal(t, []any{uint64(7), "jo", p.At.UTC(), "a launch"}, []any{s.Published.Version, s.Published.By, s.Published.At, s.Published.Reason})
	require.Equal(t, []any{uint64(8), "al", "not all chunks of the text have arrived"}, []any{s.RefusedText.Version, s.RefusedText.By, s.RefusedText.Error})
}

func TestFactorsAndHotKeysAreShown(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, "rules: [{name: r, key: user, adapt: {latency: 1s}, raise: {}, limit: {rate: 9, per: 1m}}]")
	source := &Node{Node: node, Book: book}
	require.Empty(t, source.Snapshot().Rules.Adapted, "a factor that never changed")
	inHours := func(n time.Duration) string { return time.Now().Add(n * time.Hour).Format(time.RFC3339) }
	require.NoError(t, node.Publish("adapt/r", 0, []byte(`{"factor":0.5,"reason":"slow","at":"2025-11-30T08:00:00Z"}`)))
	require.NoError(t, node.Publish("hot/r/"+strings.Repeat("0", 32), 0, fmt.Appendf(nil, `{"denied":0.75,"since":%q,"rate":18,"at":%q,"until":%q}`, inHours(-1), inHours(0), inHours(1))))
	require.Eventually(t, func() bool { return len(source.Snapshot().Rules.Hot) == 1 }, 10*time.Second, 5*time.Millisecond)
	s := source.Snapshot().Rules
	require.Equal(t, []string{"r: 50 % at 08:00:00Z (slow)"}, s.Adapted)
	require.Equal(t, s.Adapted, s.Changes)
	require.Equal(t, []string{"r " + strings.Repeat("0", 32) + ": 75 % denied, suggested rate 18"}, s.Hot)
	source.Book = testnode.Book(t, node, "rules: [{name: r, key: user, adapt: {latency: 1s}, limit: {rate: 9, per: 1m}}]")
	shown, err := json.Marshal(source.Snapshot().Rules)
	require.NoError(t, err)
	require.Contains(t, string(shown), `"adapted":["r: 50 % at 08:00:00Z (slow)"],"changes":[],"hot":[]`, "a Book that has seen no change")
}
