package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// picture returns a monitor after seven seconds, whose second gateway was killed.
func picture() (m *monitor, now time.Time) {
	f, t := scene()
	m = &monitor{fleet: f, tally: t, options: options{duration: 26 * time.Second}, coming: []step{{kind: start, gateway: 1, after: 10 * time.Second}}}
	f.begun = time.Unix(0, 0)
	f.events = []event{{time.Unix(5, 0), "kill", "gateway 2, process 4122, dies by SIGKILL, and what is told of that is a sentence of more than eighty columns"}}
	now = time.Unix(7, 0)
	f.current[1].condition = killed
	for _, inc := range f.current[:3] {
		inc.report.Owns, inc.report.Stream.Lag = clients/4, 12*time.Millisecond
		inc.report.Members = []seen{{"gateway-1-0", weir.Serving}, {"gateway-2-0", weir.Dead}, {"gateway-2-1", weir.Joining}, {"gateway-3-0", weir.Missing}}
		if inc.gateway == 1 {
			continue
		}
		for i, at := range []place{own, own, own, own, own, own, own, own, asked, asked, asked, asked, asked, fromMemory, fromMemory, stoodIn, stoodIn, stoodIn, budget, budget} {
			done := now.UnixNano() - int64(i+1)
			t.add(answer{to: inc, account: account{path: "/"}, sent: done - 250_000, done: done, check: lab.Between(done-1, done), at: at, allowed: i%4 == 0})
		}
	}
	return m, now
}

func drawn(v *view, width, height int) []string {
	var rows []string
	for _, l := range v.lines(width, height) {
		rows = append(rows, l.render(false, 1000))
	}
	return rows
}

func TestTableFitsEveryTerminal(t *testing.T) {
	t.Parallel()
	v := newView()
	for width := 45; width <= 200; width += 3 {
		for height := 2; height <= 60; height += 5 {
			rows := drawn(v, width, height)
			require.Less(t, len(rows), height)
			for _, row := range rows {
				require.LessOrEqual(t, utf8.RuneCountInString(row), width)
			}
		}
	}
}

func newView() *view {
	m, now := picture()
	return m.view(now)
}

func TestNarrowTableKeepsImportantColumns(t *testing.T) {
	for width, has := range map[int][]string{
		120: {"process", "owns", "checks/s", "denied", "p50", "p99", "itself", "owner", "stand-in", "share", "lag", "sees"},
		79:  {"state", "owns", "checks/s", "allowed", "p99", "stand-in", "share", "lag", "sees"},
		50:  {"state", "checks/s", "allowed", "sees"},
	} {
		rows := strings.Join(drawn(newView(), width, 60), "\n")
		for _, column := range has {
			require.Contains(t, rows, column, "%d columns:\n%s", width, rows)
		}
		require.Contains(t, rows, "killed")
		require.Contains(t, rows, "1✓ 2✗… 3?")
	}
}

func TestNoCellIsTruncatedAt80Columns(t *testing.T) {
	text := strings.Join(strings.Fields(strings.Join(drawn(newView(), 79, 60), " ")), " ")
	for _, whole := range []string{"gets 16 in 1s over all gateways", "next: start gateway 2 in 3 s", "a sentence of more than eighty columns", "share: the gateway, within its share of the limit", "✗ dead"} {
		require.Contains(t, text, whole)
	}
	v := &findings{width: 9, sentences: []string{strings.Repeat("word ", 40) + "end."}, broken: []string{"gateway 1 ended:\n" + strings.Repeat("x", 200)}}
	v.add(true, "requests", "1", "%s", strings.Repeat("means ", 40)+"all")
	for _, width := range []int{79, plainWidth} {
		said := printed(v, width)
		for _, row := range strings.Split(said, "\n") {
			require.LessOrEqual(t, utf8.RuneCountInString(row), width)
		}
		require.Equal(t, 200, strings.Count(said, "x"))
		require.Contains(t, said, "end.")
		require.Equal(t, 40, strings.Count(said, "means"))
		require.Contains(t, said, "all")
	}
}

// printed returns findings as printed on a screen of a width.
func printed(v *findings, width int) string {
	var b strings.Builder
	v.print(func(l line, hang int) {
		for _, l := range l.wrap(width, hang) {
			b.WriteString(l.render(false, 1000) + "\n")
		}
	})
	return b.String()
}

func TestVerdictBeginsWithThreeSentences(t *testing.T) {
	f, tally := scene()
	tally.admits(16, own, "", second)
	f.happens(kill, 10*second, 11*second)
	v := (&monitor{fleet: f, tally: tally}).judge(0)
	require.Equal(t, []string{
		"Every promise held.",
		"3 gateways answered 16 requests while one was killed; 0 failed and 0 stalled.",
		"In 1 windows of 1s without a fault, no client was granted more than 16. The limit is 16.",
	}, strings.Split(printed(v, plainWidth), "\n")[:3])
}

func TestViewShowsFiguresOfLastSecond(t *testing.T) {
	v := newView()
	var row []string
	for _, cell := range v.rows[0] {
		row = append(row, cell.render(false, plainWidth))
	}
	require.Equal(t, []string{"1", "–", "up", "25%", "20", "5", "15", "250µs", "250µs", "40%", "25%", "10%", "15%", "10%", "12ms"}, row[:15])
	require.Equal(t, standing{requests: 40}, v.standing)
	m, now := picture()
	require.Equal(t, unknown, m.view(now.Add(2 * time.Second)).rows[0][9].render(false, plainWidth))
}
