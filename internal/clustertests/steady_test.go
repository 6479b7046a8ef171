package clustertests

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

var update = flag.Bool("update", false, "write the measured table into the docs")

// asker sends checks of a limit at a steady pace, which is the rate of the limit
// multiplied by often. If often is 0, the asker uses Wait.
type asker struct {
	limit weir.Limit
	often int64
}

// granted returns the number of units that a node grants in the given number of periods.
func (a asker) granted(t *testing.T, n *weir.Node, periods int64) (units int64) {
	limiter, err := n.Limiter(a.limit)
	require.NoError(t, err)
	begun, lasts := time.Now(), time.Duration(periods)*a.limit.Per
	if a.often == 0 {
		for limiter.Wait(t.Context(), "key", 1) == nil && time.Since(begun) < lasts {
			units++
		}
		return units
	}
	each := a.limit.Rate * a.often
	for k := range periods * each {
		// The time of check k is exact, even if Per/Rate is not a whole number of nanoseconds.
		at := time.Duration(k/each)*a.limit.Per + time.Duration(k%each)*a.limit.Per/time.Duration(each)
		time.Sleep(at - time.Since(begun))
		d, err := limiter.Allow(t.Context(), "key")
		if !assert.NoError(t, err) {
			return 0
		}
		if d.Allowed {
			units++
		}
	}
	return units
}

// This test measures the table in docs/algorithms.md.
func TestSteadyCallerIsGrantedItsLimit(t *testing.T) {
	testenv.SkipAlike(t, "TestLimitAdmitsExactlyItsUnits")
	const periods = 40
	rates := []int64{1, 2, 3, 5, 10, 100}
	if !*update {
		rates = rates[:testenv.PickFull(t, 5, 6)] // the limit of 100 units needs five sixths of the checks
	}
	type row struct {
		algorithm weir.Algorithm
		scope     weir.Scope
		often     int64
	}
	var rows []row
	for _, algorithm := range algorithms {
		for _, often := range []int64{1, 10, 0} {
			rows = append(rows, row{algorithm, weir.Regional, often})
		}
	}
	for _, often := range []int64{1, 10, 0} {
		rows = append(rows, row{weir.SlidingWindow, weir.Global, often})
	}
	asked := map[int64]string{1: "at the rate", 10: "at ten times the rate", 0: "by `Wait`"}
	var table strings.Builder
	inBubble(t, func(t *testing.T) {
		n, err := weir.Start(t.Context(), weir.Config{})
		require.NoError(t, err)
		defer n.Close()
		time.Sleep(17 * time.Second / 3) // so that the test starts inside a window of a Global limit
		// All callers run at the same time, and each of them has its own limit.
		measure := func(per time.Duration, rates []int64) (percents [][]float64) {
			percents = make([][]float64, len(rows))
			var all sync.WaitGroup
			for i, r := range rows {
				percents[i] = make([]float64, len(rates))
				for j, rate := range rates {
					all.Go(func() {
						a := asker{weir.Limit{Name: fmt.Sprint(per, i, j), Algorithm: r.algorithm, Scope: r.scope, Rate: rate, Per: per}, r.often}
						percents[i][j] = 100 * float64(a.granted(t, n, periods)) / float64(periods*rate)
						assert.GreaterOrEqual(t, percents[i][j], 97.0, "%+v", a)
					})
				}
			}
			all.Wait()
			return percents
		}
		measure(time.Minute+7, rates[:testenv.PickFull(t, 3, len(rates))])
		table.WriteString("| % granted | asked |")
		for _, rate := range rates {
			fmt.Fprintf(&table, " %d |", rate)
		}
		table.WriteString("\n" + strings.Repeat("|---", 2+len(rates)) + "|\n")
		for i, percents := range measure(time.Minute, rates) {
			name := rows[i].algorithm.String()
			if rows[i].scope == weir.Global {
				name += ", Global"
			}
			cells := ""
			for _, percent := range percents {
				cells += fmt.Sprintf(" %.0f |", percent)
			}
			if cells == strings.Repeat(" 100 |", len(rates)) {
				continue // the document leaves out rows that have only 100 %
			}
			fmt.Fprintf(&table, "| %s | %s |%s\n", name, asked[rows[i].often], cells)
		}
	})
	const (
		file  = "../../docs/algorithms.md"
		begin = "<!-- go test ./internal/clustertests -run '^TestSteadyCallerIsGrantedItsLimit$' -update -->\n"
		end   = "<!-- end -->\n"
	)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	stands, after, closed := strings.Cut(rest, end)
	require.True(t, ok && closed, "%s has no place for the table", file)
	if len(rates) < 6 {
		stands = regexp.MustCompile(`(?m)[^|]*\|$`).ReplaceAllString(stands, "") // the document has all columns
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o644))
		return
	}
	require.Equal(t, stands, table.String(), "update the table with -update")
}

// The decisions of a single node and of a cluster of five are the same, even if replicas are being
// sent when the clock is stepped.
func TestOneNodeAndFiveAdmitTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var clock atomic.Int64
		clock.Store(time.Unix(1_800_000_000, 0).UnixNano())
		cfg := weir.Config{Now: func() time.Time { return time.Unix(0, clock.Load()) }, Timeout: 2 * time.Second, Logger: quiet}
		five := newWorldOf(t, 5, false, cfg)
		one, err := weir.Start(t.Context(), cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, one.Close()) }()
		five.setLinks(weirtest.Link{Latency: 20 * time.Millisecond})
		for _, algorithm := range algorithms {
			l := weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 10, Per: time.Minute}
			alone, err := one.Limiter(l)
			require.NoError(t, err)
			together := five.limiters(t, l)
			for i := range 300 {
				key, units := fmt.Sprint(i%7), int64(1+i%3)
				a, err := alone.AllowN(t.Context(), key, units)
				require.NoError(t, err)
				b, err := together[five.names[i%5]].AllowN(t.Context(), key, units)
				require.NoError(t, err)
				require.Contains(t, []weir.Source{weir.Owner, weir.Forwarded, weir.Pushback}, b.Source)
				a.Source, b.Source = 0, 0
				require.Equal(t, a, b, "%v, ask %d", algorithm, i)
				clock.Add(int64(i%5) * int64(time.Second))
			}
		}
	})
}
