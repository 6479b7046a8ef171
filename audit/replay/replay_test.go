package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
	"github.com/weir-go/weir/audit/replay"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/weirtest"
)

const file = `
version: 3
tiers: {free: {}, gold: {multiply: 3}}
times: [{name: first, from: "00:00", to: "00:01"}]
rules:
- name: api
  match: {path: /api/}
  key: user
  limits:
  - {name: second, algorithm: token_bucket, rate: 5, per: 1s, burst: 10}
  - {name: minute, rate: 60, per: 30s, times: {first: {multiply: 0.5}}, tiers: {gold: {rate: 90}}, values: {u2: {rate: 200}}}
- {name: all, match: {path: /api/}, key: global, limit: {algorithm: fixed_window, rate: 500, per: 20s, keep: 10%}, critical: [{user: u3}]}
- {name: costs, match: {path: /costs}, key: user, cost: {from: header:X-Cost, default: 2}, limit: {algorithm: sliding_log, rate: 100, per: 30s}}
- {name: leaks, match: {path: /leaks}, key: ip, limit: {algorithm: leaky_bucket, rate: 4, per: 1s, burst: 3}, no_leases: true}
- {name: hot, match: {path: /hot}, key: global, limit: {algorithm: token_bucket, rate: 80, per: 1s, burst: 200}}
- {name: day, match: {path: /costs}, key: user, limit: {algorithm: fixed_window, rate: 20, calendar: day, zone: Europe/Berlin}, shadow: true}
`

// member contains the rules and the records of a node.
type member struct {
	book    *rules.Book
	limits  *httplimit.Middleware
	log     *audit.Log
	records bytes.Buffer
}

// observed returns a member and its Observer, for the Config of its node.
func observed(t *testing.T, o audit.Options) *member {
	m := new(member)
	o.Logger, o.Queue = slog.New(slog.DiscardHandler), 1<<16
	var err error
	m.log, err = audit.New(audit.JSONLines(&m.records), o)
	require.NoError(t, err)
	return m
}

// open opens the rules of a node.
func (m *member) open(t *testing.T, n *weir.Node) {
	set, err := rules.Parse("rules.yaml", []byte(file))
	require.NoError(t, err)
	m.book, err = rules.Static(n, set)
	require.NoError(t, err)
	m.limits, err = httplimit.New(n, m.book, httplimit.Options{})
	require.NoError(t, err)
}

// drive starts clients that send requests to all members, and waits until they have ended.
func drive(t *testing.T, members []*member, clients int, pause, within time.Duration) {
	require.NoError(t, members[0].book.Override("api/second", "u1", rules.Override{Rate: 50, Burst: 60}))
	end := time.Now().Add(within)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 7))
			for time.Now().Before(end) {
				user := int(r.ExpFloat64() * 3)
				request := rules.Request{
					Method: http.MethodGet, Path: []string{"/api/v1", "/api/v1", "/costs", "/leaks", "/hot"}[r.IntN(5)],
					User: fmt.Sprint("u", user), Tier: []string{"free", "gold", ""}[user%3],
					Header: http.Header{"X-Cost": {fmt.Sprint(1 + r.IntN(3))}},
				}
				_ = members[r.IntN(len(members))].limits.Check(t.Context(), &request)
				time.Sleep(time.Duration(r.ExpFloat64() * float64(pause)))
			}
		})
	}
	all.Wait()
}

// inputs closes the logs and returns the records of the members.
func inputs(t *testing.T, members []*member) (all []replay.Input) {
	for i, m := range members {
		require.NoError(t, m.log.Close(context.Background()))
		require.Zero(t, m.log.Stats().Dropped)
		t.Logf("%d decisions by leases", bytes.Count(m.records.Bytes(), []byte(`"source":"leased"`)))
		all = append(all, replay.Input{Name: fmt.Sprint("node ", i), Reader: &m.records})
	}
	return all
}

func run(t *testing.T, text string, in []replay.Input, o replay.Options) *replay.Report {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(text))
	require.NoError(t, err)
	r, err := replay.Run(t.Context(), set, in, o)
	require.NoError(t, err)
	return r
}

// requireAlike requires that at least 99.9 % of the decisions are as recorded.
func requireAlike(t *testing.T, r *replay.Report) {
	t.Helper()
	for _, l := range r.Limits {
		t.Logf("%s: recorded %v, replayed %v, newly denied %d, newly allowed %d", l.Name, l.Recorded, l.Replayed, l.NewlyDenied, l.NewlyAllowed)
		for _, k := range l.Keys {
			t.Logf("  %s: newly denied %d, newly allowed %d", k.Key, k.NewlyDenied, k.NewlyAllowed)
		}
		require.NotZero(t, l.Recorded.Denied, l.Name)
		require.NotZero(t, l.Recorded.Allowed, l.Name)
	}
	t.Logf("%d records, agreement %.5f, notes %v", r.Records, r.Agreement(), r.Notes)
	require.Len(t, r.Limits, 7)
	require.Empty(t, r.Damages)
	require.GreaterOrEqual(t, r.Agreement(), 0.999)
}

func TestReplayOfVirtualClusterMakesSameDecisions(t *testing.T) {
	var members []*member
	var in []replay.Input
	synctest.Test(t, func(t *testing.T) {
		byName := make(map[string]*member)
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{
			Config: weir.Config{Logger: slog.New(slog.DiscardHandler)},
			Configure: func(name string, cfg *weir.Config) {
				byName[name] = observed(t, audit.Options{Sample: 1, Keys: true})
				cfg.Observer = byName[name].log
			},
		})
		require.NoError(t, err)
		defer c.Close()
		c.Skew("b", 20*time.Millisecond)
		c.Skew("c", -5*time.Millisecond)
		for _, name := range c.Names() {
			m := byName[name]
			m.open(t, c.Node(name))
			defer m.book.Close()
			members = append(members, m)
		}
		drive(t, members, 12, 25*time.Millisecond, 70*time.Second)
		in = inputs(t, members)
	})
	requireAlike(t, run(t, file, in, replay.Options{Keys: 5}))
}

func TestReplayOfRealClusterMakesSameDecisions(t *testing.T) {
	testenv.SkipUnlessFull(t, "TestReplayOfVirtualClusterMakesSameDecisions")
	var members []*member
	fleet := testnode.Fleet(t, 3, func(_ int, cfg *weir.Config) {
		members = append(members, observed(t, audit.Options{Sample: 1, Keys: true}))
		cfg.Observer = members[len(members)-1].log
	})
	for i, m := range members {
		m.open(t, fleet[i].Node)
		defer m.book.Close()
	}
	drive(t, members, 16, 4*time.Millisecond, 10*time.Second)
	in := inputs(t, members)
	requireAlike(t, run(t, file, in, replay.Options{Keys: 2}))
}

func TestReplayByOtherRulesReportsChangedKeys(t *testing.T) {
	in := strings.NewReader(strings.Join([]string{
		line(0, "k1", `"allowed":true`), line(1, "k1", `"allowed":true`), line(2, "k2", `"allowed":true`), line(3, "k1", `"allowed":false`),
	}, "\n"))
	r := run(t, `rules: [{name: a, key: user, limit: {algorithm: fixed_window, rate: 1, per: 1h}}]`, []replay.Input{{Name: "x", Reader: in}}, replay.Options{Keys: 3})
	require.Len(t, r.Limits, 1)
	l := r.Limits[0]
	require.Equal(t, replay.Counts{Allowed: 3, Denied: 1}, l.Recorded)
	require.Equal(t, replay.Counts{Allowed: 2, Denied: 2}, l.Replayed)
	require.Equal(t, []any{1, 0, 0.75}, []any{l.NewlyDenied, l.NewlyAllowed, r.Agreement()})
	require.Len(t, l.Keys, 1)
	require.Equal(t, "k1", l.Keys[0].Key)
}

// line returns a record of the limit a in the given second. The argument more has further fields.
func line(second int, key, more string) string {
	var id audit.ID
	copy(id[:], key)
	return fmt.Sprintf(`{"time":"2026-12-01T00:00:%02dZ","node":"n","limit":"a","id":"%s","key":%q,"units":1,"operation":"take","source":"owner","sample":1,%s}`, second, id, key, more)
}

func TestRequestSpendsAllOrNone(t *testing.T) {
	const text = `rules:
- {name: a, key: user, limit: {algorithm: fixed_window, rate: 2, per: 1h}}
- {name: b, key: user, limit: {algorithm: fixed_window, rate: 1, per: 1h}}`
	b := func(line string) string { return strings.Replace(line, `"limit":"a"`, `"limit":"b"`, 1) }
	request := func(second int, more string) []string {
		more += fmt.Sprintf(`,"request":%d,"asks":2`, second)
		return []string{line(second, "k", more), b(line(second, "k", more))}
	}
	var lines []string
	for second := 1; second <= 3; second++ {
		lines = append(lines, request(second, `"allowed":true`)...)
	}
	lines = append(lines, line(4, "k", `"allowed":true`), line(5, "k", `"allowed":true`))
	r := run(t, text, []replay.Input{{Name: "x", Reader: strings.NewReader(strings.Join(lines, "\n"))}}, replay.Options{})
	require.Equal(t, replay.Counts{Allowed: 1, Denied: 2}, r.Limits[1].Replayed)
	require.Equal(t, replay.Counts{Allowed: 4, Denied: 1}, r.Limits[0].Replayed, "the denied requests spent no unit of a")

	// The first request was denied by a limit that the rules do not have. So the request spends nothing in
	// the replay, either.
	unseen := line(1, "k", `"allowed":true,"request":9,"asks":2,"refused":true`)
	r = run(t, text, []replay.Input{{Name: "x", Reader: strings.NewReader(unseen + "\n" + strings.Join(lines[6:], "\n"))}}, replay.Options{})
	require.Equal(t, replay.Counts{Allowed: 3}, r.Limits[0].Replayed)
}

func TestDamagedLinesAreReportedAndSkipped(t *testing.T) {
	good := line(1, "k", `"allowed":true,"new_field":{"x":[1]}`)
	text := strings.Join([]string{
		"", good, `{"time":`, strings.Repeat("x", 1<<20), "null", `{"limit":"a","units":0}`, good[:40], "\x00\xff", good,
		line(0, "k", `"allowed":true`), strings.Replace(good, `"a"`, `"gone"`, 1), strings.Replace(good, `"sample":1`, `"sample":0`, 1),
		strings.Replace(good, `"take"`, `"wait"`, 1), line(2, "k", `"allowed":false,"banned":true`), line(2, "k", `"allowed":false,"error":"closed"`),
	}, "\n")
	r := run(t, `rules: [{name: a, key: user, limit: {rate: 9, per: 1h}}]`, []replay.Input{{Name: "empty", Reader: strings.NewReader("")}, {Name: "x", Reader: strings.NewReader(text)}}, replay.Options{})
	require.Equal(t, 6, r.Damaged)
	require.Contains(t, r.Damages[0], "x:3: ")
	require.Contains(t, r.Damages[1], "x:4: the line has more than 65536 bytes")
	require.Equal(t, 8, r.Records)
	require.Len(t, r.Notes, 5)
	for note, n := range r.Notes {
		require.Equal(t, 1, n, note)
	}
	require.Equal(t, replay.Counts{Allowed: 3}, r.Limits[0].Replayed)

	r = run(t, `rules: [{name: a, key: user, limit: {rate: 9, per: 1h}}]`, []replay.Input{{Name: "x", Reader: strings.NewReader(text)}}, replay.Options{From: r.First.Add(time.Second), Until: r.First.Add(2 * time.Second)})
	require.Equal(t, 3, r.Notes["outside of the chosen time: ignored"])
	require.Equal(t, replay.Counts{Allowed: 2}, r.Limits[0].Replayed)
}

func TestUnreadableFileIsAnError(t *testing.T) {
	set, err := rules.Parse("rules.yaml", []byte(`rules: []`))
	require.NoError(t, err)
	_, err = replay.Run(t.Context(), set, []replay.Input{{Name: "x", Reader: io.MultiReader(strings.NewReader("{}\n"), broken{})}}, replay.Options{})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "x: ")
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// BenchmarkReplay reports how many records are replayed in a minute.
func BenchmarkReplay(b *testing.B) {
	set, err := rules.Parse("rules.yaml", []byte(`rules: [{name: a, key: user, limit: {rate: 5, per: 1m}}]`))
	require.NoError(b, err)
	var text bytes.Buffer
	const records = 200_000
	lines := audit.JSONLines(&text)
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	batch := make([]audit.Record, records)
	for i := range batch {
		batch[i] = audit.Record{
			Time: at, Decided: at, Node: "api-1-18b2f0c3a1d2", Region: "eu", Limit: "a", Version: 12, ID: audit.ID{byte(i), byte(i >> 8)}, Units: 1, Operation: "take", Allowed: i%3 > 0, Algorithm: "sliding_window",
			Rate: 5, Per: "1m", Capacity: 5, Used: 2, Source: "owner", Remaining: 3, TookUS: 12, Route: "GET /api/{id}", Client: "203.0.113.0/24", Agent: "Mozilla/5 Chrome/120 Safari/537", Tier: "gold", Sample: 1,
		}
		at = at.Add(time.Millisecond)
	}
	_, err = lines.Write(b.Context(), batch)
	require.NoError(b, err)
	for b.Loop() {
		_, err := replay.Run(b.Context(), set, []replay.Input{{Name: "x", Reader: bytes.NewReader(text.Bytes())}}, replay.Options{})
		require.NoError(b, err)
	}
	b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Minutes(), "records/min")
}

// No input makes Run fail, and each recorded decision has a replayed decision.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(line(1, "k", `"allowed":true,"request":1`)), []byte("{}\n\n"))
	f.Add([]byte(line(1, "k", `"allowed":false,"overridden":true,"rate":-1,"per":"x"`)), []byte(line(1, "k", `"allowed":true,"operation":"debit","took_us":9223372036854775807`)))
	set, err := rules.Parse("rules.yaml", []byte("rules: [{name: a, key: user, limit: {algorithm: sliding_log, rate: 2, per: 1s}}]"))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, one, other []byte) {
		r, err := replay.Run(t.Context(), set, []replay.Input{{Name: "1", Reader: bytes.NewReader(one)}, {Name: "2", Reader: bytes.NewReader(other)}}, replay.Options{Keys: 1})
		require.NoError(t, err)
		require.LessOrEqual(t, r.Records+r.Damaged, 2+bytes.Count(one, []byte("\n"))+bytes.Count(other, []byte("\n")))
		for _, l := range r.Limits {
			require.Equal(t, l.Recorded.Allowed+l.Recorded.Denied, l.Replayed.Allowed+l.Replayed.Denied)
		}
	})
}

// After a rotation of the file, the records of one AllowAll are in two files.
func TestRequestMayHaveRecordsInTwoFiles(t *testing.T) {
	const text = `rules:
- {name: a, key: user, limit: {algorithm: fixed_window, rate: 3, per: 1h}}
- {name: b, key: user, limit: {algorithm: fixed_window, rate: 1, per: 1h}}`
	var files [2][]string
	for second := range 4 {
		one := line(second, "k", fmt.Sprintf(`"allowed":true,"request":%d,"asks":2`, second+1))
		files[second%2] = append(files[second%2], one)
		files[1-second%2] = append(files[1-second%2], strings.Replace(one, `"limit":"a"`, `"limit":"b"`, 1))
	}
	files[1] = append(files[1], line(5, "k", `"allowed":true`), line(6, "k", `"allowed":true`), line(7, "k", `"allowed":true`))
	var in []replay.Input
	for _, lines := range files {
		in = append(in, replay.Input{Name: "x", Reader: strings.NewReader(strings.Join(lines, "\n"))})
	}
	r := run(t, text, in, replay.Options{})
	require.Equal(t, replay.Counts{Allowed: 1, Denied: 3}, r.Limits[1].Replayed)
	require.Equal(t, replay.Counts{Allowed: 6, Denied: 1}, r.Limits[0].Replayed, "the denied requests spent no unit of a")
}

// A file may have more records with the number of one AllowAll than any Log writes.
func TestManyRecordsOfOneAllowAllAreReplayed(t *testing.T) {
	const records = 100_000
	begin := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	var text strings.Builder
	for i := range records {
		at := begin.Add(time.Duration(i%records/2) * time.Millisecond).Format(time.RFC3339Nano)
		text.WriteString(strings.Replace(line(0, "k", `"allowed":true,"request":1`), "2026-12-01T00:00:00Z", at, 1) + "\n")
	}
	began := time.Now()
	r := run(t, `rules: [{name: a, key: user, limit: {rate: 1000000, per: 1h}}]`, []replay.Input{{Name: "x", Reader: strings.NewReader(text.String())}}, replay.Options{})
	require.Less(t, time.Since(began), 20*time.Second)
	require.Equal(t, replay.Counts{Allowed: records}, r.Limits[0].Replayed)
}

func TestDebitsWithEqualRequestNumbersAreReplayed(t *testing.T) {
	for _, operation := range []string{"debit", "at_most"} {
		one := strings.Replace(line(1, "k", `"allowed":true,"request":1`), "take", operation, 1)
		r := run(t, `rules: [{name: a, key: user, limit: {rate: 9, per: 1h}}]`, []replay.Input{{Name: "x", Reader: strings.NewReader(one + "\n" + one)}}, replay.Options{})
		require.Equal(t, replay.Counts{Allowed: 2}, r.Limits[0].Replayed)
	}
}
