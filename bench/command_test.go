package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/snippets"
	"github.com/weir-go/weir/internal/testenv"
)

func TestValidFlagsAreParsedAndOthersRefused(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // expected in the error; empty for no error
	}{
		{"", ""},
		{"-for 200ms -count 1 -callers 512 -only hot", ""},
		{"-sizing -for 3s -keys 100000000", ""},
		{"-sizing -keys 10", "-keys is 10"},
		{"hot", "use only flags"},
		{"-for 1us", "-for is 1µs"},
		{"-for 2h", "-for is 2h0m0s"},
		{"-count 0", "-count is 0"},
		{"-callers 0", "-callers is 0"},
		{"-callers 100000", "-callers is 100000"},
		{"-only (", "-only: "},
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

func TestRunSelectsCellsByWorkloadAndContender(t *testing.T) {
	for only, want := range map[string]int{
		"":                       18,
		"^hot/":                  6,
		"/redis_rate$":           3,
		"^(hot|flood)/weir-":     4,
		"^uniform/rueidis-gcra$": 1,
	} {
		require.Len(t, chosenCells(t, only), want, only)
	}
	err := run(context.Background(), []string{"-only", "nobody"}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "nobody")
}

func chosenCells(t *testing.T, only string) []cell {
	o, err := parse([]string{"-only", only}, io.Discard)
	require.NoError(t, err)
	return o.cells()
}

func TestOwnedContenderHasOneCallerPerCPU(t *testing.T) {
	for _, c := range chosenCells(t, "^hot/") {
		want := 512
		if c.contender.at == owned {
			want = runtime.NumCPU()
		}
		require.Equal(t, want, c.callers(settings{callers: 512}), c.String())
	}
}

// Cells run with a hundredth of their keys and for some milliseconds, in processes like
// those of the command.
func TestBenchCellsProduceFigures(t *testing.T) {
	redis, err := startRedis()
	if !errors.Is(err, errNoRedis) {
		require.NoError(t, err)
		defer func() { require.NoError(t, redis.end()) }()
	}
	s := settings{duration: 20 * time.Millisecond, callers: 8, part: 100, redis: redis}
	s.noGubernator = fmt.Errorf("go run ./bench builds gubernator, as does the full run (%s=1)", testenv.FullVariable)
	if testenv.IsFull(t) {
		var remove func() error
		s.gubernator, remove, s.noGubernator = buildGubernator(t.Context(), t.Output())
		defer func() { require.NoError(t, remove()) }()
	}
	for i, w := range worker.Workloads(s.part) {
		for j, c := range contenders() {
			if (i+j)%3 > 0 && !testenv.IsFull(t) { // each contender has one workload in the default run
				continue
			}
			cell := cell{w, c}
			t.Run(cell.String(), func(t *testing.T) {
				if err := s.missing(c); err != nil {
					t.Skip(err)
				}
				f, err := cell.measure(s)
				require.NoError(t, err)
				require.Positive(t, f.Checks)
				require.Positive(t, f.P50)
				require.LessOrEqual(t, f.P50, f.P99)
				switch {
				case c.at == owned && f.NotExact == 0:
					require.Equal(t, 1.0, f.Here, "no other process is asked")
				case c.at == inRedis:
					require.Zero(t, f.Here, "Redis is always asked")
				case w.Name == "flood" && !c.gubernator && f.NotExact == 0:
					require.Greater(t, f.Here, .8, "denials are cached")
				}
			})
		}
	}
}

func TestRunPrintsFiguresAndReasonsForMissingOnes(t *testing.T) {
	t.Setenv("PATH", "")
	var text, progress strings.Builder
	args := []string{"-for", "5ms", "-count", "2", "-only", "^hot/(weir-owned|gubernator-owned|redis_rate)"}
	require.NoError(t, run(context.Background(), args, &text, &progress))
	require.Regexp(t, `^building gubernator, .*
3 pairs of a workload and a contender, 2 measurements in total
1 of 2  hot/weir-owned: \d+ checks/s
2 of 2  hot/weir-owned: \d+ checks/s
$`, progress.String())
	require.Regexp(t, `(?m)^\| weir-owned \| \d.* \|$`, text.String())
	require.Regexp(t, `(?m)^\| gubernator-owned \| gubernator was not built: exec: "go": executable file not found in \$PATH  \|`, text.String())
	require.Regexp(t, `(?m)^\| redis_rate \| no redis-server on PATH \|`, text.String())
	require.Regexp(t, `^\d{4}-\d\d-\d\d: \d+ × .+, no Redis; 64 callers .*, medians of 2 runs of 5ms\.\n`, text.String())

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, run(ctx, []string{"-only", "^hot/weir"}, io.Discard, io.Discard), context.Canceled)
}

func TestContenderMustAdmitWhatItsLimitsGrant(t *testing.T) {
	for admitted, exact := range map[int]bool{6: false, 7: true, 8: true, 9: false} {
		tally := worker.Tally{Counts: worker.Counts{Checks: 10}, All: worker.Counts{Checks: 10, Admitted: admitted}, Least: 7, Most: 8}
		_, err := sumUp(&tally)
		require.Equal(t, exact, err == nil, err)
		tally.All.Stray = 1
		_, err = sumUp(&tally)
		require.NoError(t, err, "a stand-in need not be exact")
	}
}

func TestCombineReturnsMediansAndMaximumOfNotExact(t *testing.T) {
	got := combine([]result{{Checks: 3, P50: 1, Here: .5, NotExact: .1}, {Checks: 1, P50: 2, Here: .6}, {Checks: 2, P50: 9, Here: .7, NotExact: .2}})
	require.Equal(t, result{Checks: 2, P50: 2, Here: .6, NotExact: .2}, got)
}

func TestFiguresAreFormattedWithFewDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ns", 98: "98 ns", 1234: "1.2 µs", 45_600: "46 µs", 1_500_000: "1.5 ms", 234 * time.Millisecond: "234 ms", 12 * time.Second: "12 s",
	} {
		require.Equal(t, want, formatDuration(d))
	}
	for share, want := range map[float64]string{0: "0 %", 1: "100 %", .25: "25 %", .00001: "0.01 %", .999999: "99.99 %", .005: "0.50 %"} {
		require.Equal(t, want, formatPercent(share))
	}
	for n, want := range map[float64]string{12: "12", 45_678: "46 k", 1_234_567: "1.23 M", 12_345_678: "12.3 M"} {
		require.Equal(t, want, formatRate(n))
	}
}

func tables(t *testing.T) string {
	text, err := os.ReadFile("tables.txt")
	require.NoError(t, err)
	return string(text)
}

// If a row of the command is added or removed, tables.txt must change too. The figures
// there were measured on another day.
func TestTablesHaveTheRowsOfTheCommand(t *testing.T) {
	var rows []row
	for _, c := range chosenCells(t, "") {
		rows = append(rows, row{cell: c})
	}
	var printed strings.Builder
	require.NoError(t, printTables(&printed, "conditions", rows))
	names := func(markdown string) (lines []string) {
		_, tables, _ := strings.Cut(strings.TrimSpace(markdown), "\n")
		for line := range strings.Lines(tables) {
			if cells := strings.Split(line, "|"); len(cells) == len(columns)+2 && regexp.MustCompile(`\d`).MatchString(cells[2]) {
				line = cells[1]
			}
			lines = append(lines, line)
		}
		return lines
	}
	require.Equal(t, names(printed.String()), names(tables(t)), "go run ./bench -count 3 >bench/tables.txt")
}

// Each figure of a contender's row in README.md occurs in one of its rows in tables.txt.
func TestFiguresOfReadmeAreInTables(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	for name, contender := range map[string]string{"Weir": "weir-forwarded", "redis_rate": "redis_rate", "GCRA over rueidis": "rueidis-gcra", "gubernator": "gubernator-forwarded"} {
		row := regexp.MustCompile(`(?m)^\| ` + name + `[^|]* \|( [\d.]+ [kM] \|( [\d.]+ [kMµmn]s? \|)+)$`).FindStringSubmatch(string(text))
		require.NotNil(t, row, "README.md has no figures of %s", name)
		for figure := range strings.SplitSeq(strings.Trim(row[1], "| "), " | ") {
			require.Regexp(t, `(?m)^\| `+contender+` \|.*\| `+regexp.QuoteMeta(figure)+` \||^\| `+contender+` \| `+regexp.QuoteMeta(figure)+` \|`, tables(t))
		}
	}
}

// README.md rounds the medians of checks that the asked node decides as their owner.
func TestReadmeRoundsMediansOfOwnedChecks(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	var medians []string
	for _, row := range regexp.MustCompile(`(?m)^\| weir-owned \|[^|]*\| (\d+ ns) \|`).FindAllStringSubmatch(tables(t), -1) {
		median, err := time.ParseDuration(strings.ReplaceAll(row[1], " ", ""))
		require.NoError(t, err)
		medians = append(medians, fmt.Sprintf("%.2g µs", median.Seconds()*1e6))
	}
	require.GreaterOrEqual(t, len(medians), 2)
	require.Contains(t, string(readme), "takes "+medians[0]+" for one key and "+medians[1]+" among a million (medians)")
}

func TestDocumentedBenchCommandsParse(t *testing.T) {
	calls, err := snippets.CallsOf("go", "run", "./bench")
	require.NoError(t, err)
	require.NotEmpty(t, calls)
	for _, c := range calls {
		_, err := parse(c.Words, io.Discard)
		require.NoError(t, err, "%s: %q", c.Position(), c.Words)
	}
}
