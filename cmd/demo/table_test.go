package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func picture() *frame {
	f := &frame{
		moment: moment{
			elapsed: 7 * time.Second, duration: 26 * time.Second, per: 2 * time.Second,
			next: "next: start gateway 2 in 3 s", begun: time.Unix(0, 0),
			events: []event{{time.Unix(5, 0), "kill", "gateway 2, process 4122, dies by SIGKILL"}},
		},
		limit: 30, nodes: 3, clients: []clientRow{{"client-001", 412, 30}, {"client-002", 211, 45}},
	}
	for i, c := range []condition{up, killed, up} {
		g := gatewayRow{number: i + 1, condition: c, pid: 4121 + i, over: time.Second}
		g.counts.allowed, g.counts.denied = 200, 600
		g.owns, g.lag = clients/4, 12*time.Millisecond
		g.counts.at = [places]int{own: 320, asked: 200, fromMemory: 80, stoodIn: 120, budget: 80}
		for range 800 {
			g.counts.took.Add(250 * time.Microsecond)
		}
		g.sees = []seen{{"gateway-1-0", weir.Serving}, {"gateway-2-0", weir.Dead}, {"gateway-2-1", weir.Joining}, {"gateway-3-0", weir.Unheard}}
		g.places = 3
		f.gateways = append(f.gateways, g)
	}
	return f
}

func drawn(f *frame, width, height int) []string {
	var rows []string
	for _, l := range f.lines(width, height) {
		rows = append(rows, l.render(false, width))
	}
	return rows
}

func TestTheTableFitsEveryTerminal(t *testing.T) {
	t.Parallel()
	for width := 1; width <= 200; width += 3 {
		for height := 2; height <= 60; height += 5 {
			rows := drawn(picture(), width, height)
			require.Less(t, len(rows), height)
			for _, row := range rows {
				require.LessOrEqual(t, utf8.RuneCountInString(row), width)
			}
		}
	}
}

func TestANarrowTableKeepsWhatMatters(t *testing.T) {
	for width, has := range map[int][]string{
		120: {"process", "owns", "checks/s", "denied", "p50", "p99", "itself", "owner", "stand-in", "share", "lag", "sees"},
		79:  {"state", "owns", "checks/s", "allowed", "p99", "stand-in", "share", "lag", "sees"},
		50:  {"state", "checks/s", "allowed", "sees"},
	} {
		rows := strings.Join(drawn(picture(), width, 40), "\n")
		for _, column := range has {
			require.Contains(t, rows, column, "%d columns:\n%s", width, rows)
		}
		require.Contains(t, rows, "killed")
		require.Contains(t, rows, "1✓ 2✗… 3?")
	}
}

func TestThePlainLineHoldsTheSame(t *testing.T) {
	require.Equal(t, "  7.0 s  [1] 25% 800/s 200 ok 250 µs/250 µs 40%/25%/10%/15%/10% 12 ms 1✓2✗…3?  [2] killed"+
		"  [3] 25% 800/s 200 ok 250 µs/250 µs 40%/25%/10%/15%/10% 12 ms 1✓2✗…3?  0 errors, 0 stalls", picture().short())
}
