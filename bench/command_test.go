package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/internal/snippets"
)

func TestFlagsAreTakenOrRefused(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // what the error says; none if empty
	}{
		{"", ""},
		{"-for 200ms -count 1 -callers 512 -only hot -json", ""},
		{"-markdown", ""},
		{"-sizing -for 3s -keys 1000000,100000000", ""},
		{"-sizing -json", "tables of its own"},
		{"-sizing -brief", "tables of its own"},
		{"-brief -markdown", ""},
		{"-sizing -keys many", "is no number of keys"},
		{"-only zipf/weir-.*/bucket$", ""},
		{"hot", "flags alone"},
		{"-for 1us", "-for is 1µs"},
		{"-for 2h", "-for is 2h0m0s"},
		{"-for -1s", "-for is -1s"},
		{"-count 0", "-count is 0"},
		{"-callers 0", "-callers is 0"},
		{"-callers 100000", "-callers is 100000"},
		{"-only (", "-only: "},
		{"-json -markdown", "choose one"},
		{"-fast", "not defined: -fast"},
	} {
		_, err := parse(strings.Fields(c.args), io.Discard)
		if c.want == "" {
			require.NoError(t, err, c.args)
			continue
		}
		require.ErrorContains(t, err, c.want, c.args)
	}
}

func TestOnlyChoosesByWorkloadContenderAndAlgorithm(t *testing.T) {
	every := len(worker.Workloads(1))*len(contenders()) - 4 // one key for four nodes is none for each
	for only, want := range map[string]int{
		"":                            every,
		"^hot/":                       len(contenders()),
		"/x-time-rate/":               len(worker.Workloads(1)),
		"^hot/weir-owned/bucket$":     1,
		"^hot-4/weir-owned/":          0,
		"^hot-4/gubernator-owned/":    0,
		"^hot/x-time-rate/sliding$":   0,
		"^(hot|zipf)/x-time-rate/":    2,
		"^hot/(x-time-rate|ulule)/.*": 2,
	} {
		o := options{only: regexp.MustCompile(only)}
		require.Len(t, o.cells(), want, only)
	}
	err := run(context.Background(), []string{"-only", "nobody"}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "nobody")
}

func TestNamesTellCellsApart(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range (&options{only: regexp.MustCompile("")}).cells() {
		require.False(t, seen[c.String()], c.String())
		seen[c.String()] = true
	}
}

// chosen reports whether the default run plays a cell: each contender's first algorithm under
// one workload, and the cell of Weir's in which nodes are asked for their own keys alone. The
// full run plays the others, too.
func chosen(workload int, c cell) bool {
	if c.String() == "zipf/weir-owned/bucket" {
		return true
	}
	var names []string
	for _, other := range contenders() {
		if !slices.Contains(names, other.name) {
			names = append(names, other.name)
			if other.name == c.contender.name {
				return other.algorithm == c.contender.algorithm && (len(names)-1)%len(worker.Workloads(1)) == (workload+2)%len(worker.Workloads(1))
			}
		}
	}
	return false
}

func TestTheDefaultRunHasEachContenderAndWorkload(t *testing.T) {
	contender, workload, all := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for i, w := range worker.Workloads(1) {
		for _, c := range contenders() {
			all[c.name] = true
			if cell := (cell{w, c}); cell.is() && chosen(i, cell) {
				contender[c.name], workload[w.Name] = true, true
			}
		}
	}
	require.Equal(t, all, contender)
	require.Len(t, workload, len(worker.Workloads(1)))
}

func TestEachNodeHasACallerAndMoreAskOnlyOtherProcesses(t *testing.T) {
	all := make(map[string]cell)
	for _, c := range (&options{only: regexp.MustCompile("")}).cells() {
		all[c.String()] = c
	}
	for _, test := range []struct {
		cell          string
		callers, want int
	}{
		{"hot/gubernator-forwarded/bucket", 1, 1},
		{"hot/redis_rate/bucket", 512, 512},
		{"hot-4/redis_rate/bucket", 1, 4},
		{"hot/weir-owned/bucket", 512, runtime.NumCPU()},
	} {
		c, ok := all[test.cell]
		require.True(t, ok, test.cell)
		require.Equal(t, test.want, c.callers(settings{callers: test.callers}), test.cell)
	}
}

// Cells run on a hundredth of their keys and for some milliseconds, in processes as the command
// has them.
func TestCellsComeToFigures(t *testing.T) {
	s := settings{duration: 20 * time.Millisecond, callers: 8, part: 100, redis: sharedRedis(t)}
	s.noGubernator = fmt.Errorf("go run ./bench builds gubernator, as does the full run (%s=1)", full.Variable)
	if full.Enabled(t) {
		var remove func() error
		s.gubernator, remove, s.noGubernator = buildGubernator(t.Context(), t.Output())
		defer func() { require.NoError(t, remove()) }()
	}
	left := 0
	defer func() {
		if left > 0 {
			t.Logf("%d cells are left to the full run (%s=1); shown meanwhile by go run ./bench", left, full.Variable)
		}
	}()
	for i, w := range worker.Workloads(s.part) {
		for _, c := range contenders() {
			cell := cell{w, c}
			if !cell.is() {
				continue
			}
			if !chosen(i, cell) && !full.Enabled(t) {
				left++
				continue
			}
			t.Run(cell.String(), func(t *testing.T) {
				if err := s.missing(c); err != nil {
					t.Skip(err)
				}
				f, err := cell.measure(s)
				require.NoError(t, err)
				require.Positive(t, f.Checks)
				require.Positive(t, f.P50)
				require.LessOrEqual(t, f.P50, f.P99)
				require.LessOrEqual(t, f.P99, f.P999)
				require.Positive(t, f.Granted)
				switch {
				case c.local != nil || c.at == owned && f.Stray == 0:
					require.Equal(t, 1.0, f.Here, "nobody else is asked")
				case c.remote != nil:
					require.Zero(t, f.Here, "Redis is always asked")
				case w.Name == "flood" && !c.elsewhere:
					require.Greater(t, f.Here, .8, "denials are remembered")
				}
				if w.Name == "hot" {
					require.Nil(t, f.Bytes)
				}
				if f.Stray+f.Failed > 0 {
					return // nobody with authority decided, or nobody did
				}
				lies := int64(0) // in leases, as so short a run ends
				if c.at == spread && !c.noLeases {
					lies = f.Granted / 8
				}
				require.LessOrEqual(t, f.Denied, lies, "falsely")
				if w.Nodes == 1 || c.local == nil {
					require.Zero(t, f.Over)
				}
			})
		}
	}
}

// Without a shared count each of the four instances grants the limit: the oracle must
// see that.
func TestInstancesOnTheirOwnAdmitTooMuch(t *testing.T) {
	c, w, err := find("go-limiter", fixed, "zipf", 100)
	require.NoError(t, err)
	var f result
	for d := 20 * time.Millisecond; f.Over == 0 && d < time.Minute; d *= 4 { // until a key is asked for often enough
		f, err = cell{w, c}.measure(settings{duration: d, callers: 8, part: 100})
		require.NoError(t, err)
	}
	require.Positive(t, f.Over)
	require.Zero(t, f.Denied)
}

func TestATableSaysWhatIsMissing(t *testing.T) {
	cells := (&options{only: regexp.MustCompile("^hot/(go-limiter|redis_rate)/")}).cells()
	var text strings.Builder
	require.NoError(t, printTable(&text, environment{}, []row{{cell: cells[0], result: result{Checks: 12}}, {cell: cells[1], missing: errNoRedis.Error()}}))
	require.Regexp(t, `(?m)^ *go-limiter +fixed +12 +`, text.String())
	require.Regexp(t, `(?m)^ *redis_rate +bucket +no redis-server on PATH`, text.String())
}

func TestARunPrintsWhatItMeasuredAndWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", "")
	var text, progress strings.Builder
	args := []string{"-for", "5ms", "-count", "2", "-only", "^hot/(go-limiter|gubernator-owned|redis_rate)/", "-json"}
	require.NoError(t, run(context.Background(), args, &text, &progress))
	require.Regexp(t, `^building gubernator, .*
3 contenders and workloads, measured 2 times in all
1 of 2, \d+s left  hot/go-limiter/fixed: \d+ checks/s
2 of 2, 0s left  hot/go-limiter/fixed: \d+ checks/s
$`, progress.String())
	var rows []map[string]any
	for lines := bufio.NewScanner(strings.NewReader(text.String())); lines.Scan(); {
		var row map[string]any
		require.NoError(t, json.Unmarshal(lines.Bytes(), &row))
		rows = append(rows, row)
	}
	require.Len(t, rows, 3)
	require.Positive(t, rows[0]["checks_per_second"])
	require.NotContains(t, rows[0], "missing")
	for i, want := range []string{"no go on PATH, which builds gubernator", "no redis-server on PATH"} {
		require.Equal(t, want, rows[i+1]["missing"])
		require.NotContains(t, rows[i+1], "checks_per_second")
	}
	environment := rows[0]["environment"].(map[string]any)
	for _, key := range []string{"go", "os", "cpu", "cpus", "libraries", "for", "count", "callers", "date"} {
		require.NotEmpty(t, environment[key], key)
	}
}

func TestTheTimeLeftIsEstimatedByWhatTheOthersTook(t *testing.T) {
	require.Equal(t, 30*time.Second, left(10*time.Second, 1, 4))
	require.Equal(t, 7*time.Second, left(20*time.Second, 3, 4))
	require.Zero(t, left(time.Hour, 4, 4))
}

func TestARunEndsWhenItIsToldTo(t *testing.T) {
	t.Setenv("PATH", "") // it needs no Redis
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, run(ctx, []string{"-only", "^hot/"}, io.Discard, io.Discard), context.Canceled)
}

func TestRepetitionsHaveTheirMediansAndTheWorstOfWhatIsExact(t *testing.T) {
	bytes := func(v float64) *float64 { return &v }
	got := combine([]result{
		{Checks: 3, P50: 1, Bytes: bytes(70), Here: .5, Over: 4, Granted: 10, Stray: .1},
		{Checks: 1, P50: 2, Bytes: bytes(90), Here: .6, Denied: 2, Granted: 8},
		{Checks: 2, P50: 9, Bytes: bytes(80), Here: .7, Over: 1, Granted: 9, Failed: .2},
	})
	require.Equal(t, result{Checks: 2, P50: 2, Bytes: bytes(80), Here: .6, Over: 4, Denied: 2, Granted: 8, Stray: .1, Failed: .2}, got)
}

// tables.txt is printed by the command: whatever is added to it, or left out, is in both.
// Figures are those of another day.
func TestTheTablesAreThoseThatTheCommandPrints(t *testing.T) {
	tables, err := os.ReadFile("tables.txt")
	require.NoError(t, err)

	require.Equal(t, withoutFigures(printedOf(t)), withoutFigures(string(tables)), "go run ./bench -markdown >bench/tables.txt")
}

// printedOf returns the tables that the command prints, without figures.
func printedOf(t *testing.T, args ...string) string {
	o, err := parse(args, io.Discard)
	require.NoError(t, err)
	var rows []row
	for _, c := range o.cells() {
		rows = append(rows, row{cell: c})
	}
	var printed strings.Builder
	require.NoError(t, printMarkdown(&printed, environment{}, rows))
	return printed.String()
}

// brief.txt is what README.md shows.
func TestTheBriefTablesAreThoseThatTheCommandPrints(t *testing.T) {
	tables, err := os.ReadFile("brief.txt")
	require.NoError(t, err)
	require.Equal(t, withoutFigures(printedOf(t, "-brief")), withoutFigures(string(tables)), "go run ./bench -brief -markdown >bench/brief.txt")
}

func TestABriefRunIsShortUnlessFlagsSayOtherwise(t *testing.T) {
	o, err := parse([]string{"-brief"}, io.Discard)
	require.NoError(t, err)
	require.Len(t, o.cells(), 3*5)
	require.Less(t, time.Duration(len(o.cells())*o.count)*o.duration, 15*time.Second)
	o, err = parse(strings.Fields("-brief -count 3 -for 2s -only ^hot/weir-owned"), io.Discard)
	require.NoError(t, err)
	require.Len(t, o.cells(), 3)
	require.Equal(t, 3, o.count)
	require.Equal(t, 2*time.Second, o.duration)
}

// Each figure of a contender's row in the documents is in one of its rows in brief.txt.
func TestTheFiguresOfDocumentsAreOfTheBriefTables(t *testing.T) {
	tables, err := os.ReadFile("brief.txt")
	require.NoError(t, err)
	for _, document := range []string{"../README.md", "../docs/comparison.md"} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for name, contender := range map[string]string{"Weir": "weir-forwarded", "redis_rate": "redis_rate", "gubernator": "gubernator-forwarded"} {
			row := regexp.MustCompile(`(?m)^\| ` + name + `[^|]* \|( [\d.]+ [kM] \|( [\d.]+ [kMµmn]s? \|)+)$`).FindStringSubmatch(string(text))
			require.NotNil(t, row, "%s has no figures of %s", document, name)
			for figure := range strings.SplitSeq(strings.Trim(row[1], "| "), " | ") {
				require.Regexp(t, `(?m)^\| `+contender+` \|.*\| `+regexp.QuoteMeta(figure)+` \|`, string(tables), document)
			}
		}
	}
}

// README.md rounds the medians of a check that its own node decides.
func TestReadmeRoundsMediansOfOwnedChecks(t *testing.T) {
	tables, err := os.ReadFile("brief.txt")
	require.NoError(t, err)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	var medians []string
	for _, row := range regexp.MustCompile(`(?m)^\| weir-owned \|[^|]*\|[^|]*\| (\d+ ns) \|`).FindAllStringSubmatch(string(tables), -1) {
		median, err := time.ParseDuration(strings.ReplaceAll(row[1], " ", ""))
		require.NoError(t, err)
		medians = append(medians, fmt.Sprintf("%.2g µs", median.Seconds()*1e6))
	}
	require.GreaterOrEqual(t, len(medians), 2)
	require.Contains(t, string(readme), "takes "+medians[0]+" for one key and "+medians[1]+" among a million (medians)")
}

// The figures beside rueidis are of tables.txt, which has it.
func TestFiguresBesideRueidisAreOfTheTables(t *testing.T) {
	tables, err := os.ReadFile("tables.txt")
	require.NoError(t, err)
	document, err := os.ReadFile("../docs/comparison.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(document), "| another run, ")
	require.True(t, found)
	for name, contender := range map[string]string{"Weir": "weir-forwarded", "GCRA over rueidis": "rueidis-gcra"} {
		row := regexp.MustCompile(`(?m)^\| ` + name + ` \|(.*)\|$`).FindStringSubmatch(text)
		require.NotNil(t, row, name)
		for figure := range strings.SplitSeq(strings.TrimSpace(row[1]), " | ") {
			require.Regexp(t, `(?m)^\| `+contender+` \| bucket (\|.*)?\| `+regexp.QuoteMeta(figure)+` \|`, string(tables))
		}
	}
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "does [123 k](docs/comparison.md#speed) in a run in which Weir does 580 k")
}

// The extract in README.md has figures of tables.txt alone.
func TestTheExtractIsOfTheTables(t *testing.T) {
	tables, err := os.ReadFile("tables.txt")
	require.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, extract, ok := strings.Cut(string(readme), "| | one key | a million keys |")
	require.True(t, ok)
	extract, _, _ = strings.Cut(extract, "\n\n")
	figure, seen := regexp.MustCompile(`^[\d.,]+( [kM])?`), 0
	for line := range strings.Lines(extract) {
		for _, cell := range strings.Split(line, "|")[1:] {
			if f := strings.ReplaceAll(figure.FindString(strings.TrimSpace(cell)), ",", ""); f != "" {
				require.Contains(t, string(tables), "| "+f+" |", line)
				seen++
			}
		}
	}
	require.Greater(t, seen, 40)
}

// withoutFigures leaves out what differs from run to run: what it was run on, and of a
// row all but its names.
func withoutFigures(markdown string) (lines []string) {
	_, tables, _ := strings.Cut(strings.TrimSpace(markdown), "\n")
	for line := range strings.Lines(tables) {
		cells := strings.Split(line, "|")
		if len(cells) == len(columns)+2 && regexp.MustCompile(`\d`).MatchString(cells[3]) {
			line = strings.Join(cells[:3], "|") + "\n"
		}
		lines = append(lines, line)
	}
	return lines
}

func TestEveryBenchInTheDocumentsIsUnderstood(t *testing.T) {
	calls, err := snippets.CallsOf("go", "run", "./bench")
	require.NoError(t, err)
	require.NotEmpty(t, calls)
	for _, c := range calls {
		_, err := parse(c.Words, io.Discard)
		require.NoError(t, err, "%s: %q", c.At(), c.Words)
	}
}
