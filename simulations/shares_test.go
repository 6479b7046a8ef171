package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

var update = flag.Bool("update", false, "write the table of shares into docs/partitions.md")

// smallSplits are the splits of the table in docs/partitions.md.
var smallSplits = []struct {
	name  string
	sides [][]string
}{
	{"two, one", [][]string{{"a", "b"}, {"c"}}},
	{"three, two", [][]string{{"a", "b", "c"}, {"d", "e"}}},
	{"two, two", [][]string{{"a", "b"}, {"c", "d"}}},
	{"one, one, one", [][]string{{"a"}, {"b"}, {"c"}}},
}

const (
	mostOfSmall   = 10               // units
	sharePer      = 10 * time.Second // a round takes longer than a denial is cached
	roundsPer     = 8                // in each round, a node checks until it is denied
	rounds        = 3 * roundsPer
	keysOfASplit  = 24
	splitIsSteady = settling + time.Second
)

// inASplit splits real nodes into sides, and waits until all nodes have noticed. Each
// node then asks for all units that it can get of new keys, for three Per; every node
// owns some of the keys. It returns for each limit the maximum number of units of a key
// that all sides together granted in a Per.
func inASplit(t *testing.T, sides [][]string, limits []weir.Limit, keys int) (most []int64) {
	most = make([]int64, len(limits))
	synctest.Test(t, func(t *testing.T) {
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{
			Nodes: slices.Concat(sides...), Config: weir.Config{Logger: slog.New(slog.DiscardHandler)},
		})
		require.NoError(t, err)
		defer c.Close()
		c.Network().Split(sides...)
		time.Sleep(splitIsSteady)

		nodes := make([][]*weir.Limiter, 0, len(c.Names()))
		for _, name := range c.Names() {
			limiters := make([]*weir.Limiter, len(limits))
			for i, l := range limits {
				limiters[i], err = c.Node(name).Limiter(l)
				require.NoError(t, err)
			}
			nodes = append(nodes, limiters)
		}
		var (
			mu     sync.Mutex // guards most and owners
			owners = make(map[string]bool)
			asking sync.WaitGroup
		)
		began := time.Now()
		for key := range keys {
			asking.Go(func() {
				granted := make([][rounds]int64, len(limits))
				for round := range rounds {
					time.Sleep(time.Duration(round)*sharePer/roundsPer - time.Since(began))
					for i := range limits {
						for from := range nodes { // another node is first in each round
							granted[i][round] += countGrants(t.Context(), nodes[(from+round)%len(nodes)][i], fmt.Sprint("key ", key))
						}
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for i := range limits {
					owners[nodes[0][i].Owner(fmt.Sprint("key ", key)).Name] = true
					for first := range rounds - roundsPer + 1 {
						var units int64
						for _, u := range granted[i][first : first+roundsPer] {
							units += u
						}
						most[i] = max(most[i], units)
					}
				}
			})
		}
		asking.Wait()
		require.Len(t, owners, len(nodes), "every node owns a key")
	})
	return most
}

// countGrants sends checks until a denial, and returns the number of grants.
func countGrants(ctx context.Context, l *weir.Limiter, key string) (granted int64) {
	for {
		d, err := l.Allow(ctx, key)
		if err != nil || !d.Allowed {
			return granted
		}
		granted++
	}
}

// inEachSplit calls inASplit for each of smallSplits, and requires that the sides
// together grant at most their bound.
func inEachSplit(t *testing.T, limits []weir.Limit, keys int) [][]int64 {
	most := make([][]int64, len(smallSplits))
	t.Run("split", func(t *testing.T) {
		for i, s := range smallSplits {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				most[i] = inASplit(t, s.sides, limits, keys)
				for k, units := range most[i] {
					allowed := bounds.Bound(&limits[k], bounds.Situation{Sides: len(s.sides), Nodes: len(slices.Concat(s.sides...))})
					require.LessOrEqual(t, units, allowed, "%+v", limits[k])
				}
			})
		}
	})
	return most
}

// The sliding log is exact in every window, so L is the Rate, and units above L come from
// the sides.
func TestSharesOfFewUnitsMatchTheTable(t *testing.T) {
	t.Parallel()
	columns := mostOfSmall
	if !*update {
		columns = testenv.PickFull(t, 2, columns)
	}
	policies := []weir.PartitionPolicy{weir.MajorityShare, weir.FairShare, weir.FailClosed, weir.FailOpen}
	var limits []weir.Limit
	for _, p := range policies {
		for rate := range int64(columns) {
			limits = append(limits, weir.Limit{
				Name: fmt.Sprint(p, rate+1), Algorithm: weir.SlidingLog, Rate: rate + 1, Per: sharePer, Partition: p,
			})
		}
	}
	most := inEachSplit(t, limits, keysOfASplit)
	rows := []string{
		"| sides, L = | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 |",
		"|---|---|---|---|---|---|---|---|---|---|---|",
	}
	for i, s := range smallSplits {
		row := fmt.Sprintf("| %s |", s.name)
		nodes, majority := len(slices.Concat(s.sides...)), int64(0)
		for _, side := range s.sides {
			if len(side) > nodes/2 {
				majority = 1
			}
		}
		for k, l := range limits {
			switch l.Partition { // the document does not have numbers for the other policies
			case weir.MajorityShare:
				row += fmt.Sprintf(" %d |", most[i][k])
			case weir.FairShare:
				require.Equal(t, l.Rate, most[i][k], "%s: %+v", s.name, l)
			case weir.FailClosed:
				require.Equal(t, majority*l.Rate, most[i][k], "%s: %+v", s.name, l)
			case weir.FailOpen:
				require.Equal(t, int64(len(s.sides))*l.Rate, most[i][k], "%s: %+v", s.name, l)
			}
		}
		rows = append(rows, row)
	}
	const file, begins, ends = "../docs/partitions.md", "<!-- shares of few units -->\n", "<!-- end -->"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begins)
	require.True(t, found, begins)
	was, after, found := strings.Cut(rest, ends)
	require.True(t, found, ends)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+begins+strings.Join(rows, "\n")+"\n"+ends+after), 0o666))
		return
	}
	written := strings.Split(strings.TrimSuffix(was, "\n"), "\n")
	require.Len(t, written, len(rows))
	for i, row := range rows { // the row may have only the columns that were played
		require.True(t, strings.HasPrefix(written[i], row),
			"%s\nis the measured row; %s has\n%s\nupdate it with: go test ./simulations -run SharesOfFewUnits -update", row, file, written[i])
	}
}

func TestSharesOfEachAlgorithmStayBelowBound(t *testing.T) {
	t.Parallel()
	rates := []int64{1, 3, 2, 4, 10}
	rates = rates[:testenv.PickFull(t, 1, len(rates))]
	bursts := []int64{0, 2, 1}
	bursts = bursts[:testenv.PickFull(t, 1, len(bursts))]
	var limits []weir.Limit
	for a := weir.SlidingWindow; a <= weir.LeakyBucket; a++ {
		for _, p := range []weir.PartitionPolicy{weir.MajorityShare, weir.FairShare, weir.FailClosed} {
			for _, rate := range rates {
				for _, burst := range slices.Concat(bursts, []int64{3 * rate}) {
					if burst == 0 || bounds.IsBucket(&weir.Limit{Algorithm: a}) {
						limits = append(limits, weir.Limit{
							Name: fmt.Sprint(a, p, rate, burst), Algorithm: a, Rate: rate, Burst: burst, Per: sharePer, Partition: p,
						})
					}
				}
			}
		}
	}
	inEachSplit(t, limits, testenv.PickFull(t, keysOfASplit/3, keysOfASplit))
}
