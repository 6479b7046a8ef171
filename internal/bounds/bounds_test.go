package bounds_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
	"github.com/weir-go/weir/internal/testnode"
)

var update = flag.Bool("update", false, "write the bounds into docs/partitions.md and docs/guarantees.md")

func TestHealthyEqualsBoundOfAlgorithm(t *testing.T) {
	for _, test := range []struct {
		limit weir.Limit
		most  int64
	}{
		{weir.Limit{Algorithm: weir.SlidingLog, Rate: 10}, 10},
		{weir.Limit{Algorithm: weir.SlidingLog, Rate: 1, Scope: weir.Global}, 1},
		{weir.Limit{Algorithm: weir.SlidingWindow, Rate: 10}, 20},
		{weir.Limit{Algorithm: weir.SlidingWindow, Rate: 1}, 1},
		{weir.Limit{Algorithm: weir.SlidingWindow, Rate: 1, Scope: weir.Global}, 2},
		{weir.Limit{Algorithm: weir.FixedWindow, Rate: 10}, 20},
		{weir.Limit{Algorithm: weir.FixedWindow, Rate: 1}, 1},
		{weir.Limit{Algorithm: weir.FixedWindow, Rate: 1, Scope: weir.Global}, 2},
		{weir.Limit{Algorithm: weir.FixedWindow, Rate: 1, Calendar: weir.Day}, 2},
		{weir.Limit{Algorithm: weir.TokenBucket, Rate: 10, Burst: 3}, 13},
		{weir.Limit{Algorithm: weir.LeakyBucket, Rate: 1}, 2},
	} {
		require.Equal(t, test.most, bounds.Healthy(&test.limit), "%+v", test.limit)
	}
}

func TestExcessOfStrangersGrowsWithEachChange(t *testing.T) {
	for policy, excess := range map[weir.PartitionPolicy]float64{weir.FairShare: 3, weir.FailClosed: 3, weir.MajorityShare: 3} {
		require.Equal(t, excess, bounds.Excess(policy, bounds.Situation{Strangers: 1, Changes: 1}), "%v", policy)
		require.Equal(t, excess+2, bounds.Excess(policy, bounds.Situation{Strangers: 1, Changes: 2}), "%v", policy)
	}
}

// A limit of 1 whose windows begin by the clock admits two units within 2 ns. A Global
// FixedWindow admits the second unit at the multiple of Per, and a Global SlidingWindow 1
// ns later. A limit whose windows begin with the first check of a key admits one unit.
func TestClockWindowsAdmitSecondUnitAtBoundary(t *testing.T) {
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	var now atomic.Int64
	now.Store(midnight.Add(-time.Hour).UnixNano())
	n := testnode.Start(t, weir.Config{Now: func() time.Time { return time.Unix(0, now.Load()) }})
	for _, limit := range []weir.Limit{
		{Algorithm: weir.SlidingWindow, Rate: 1, Per: time.Hour},
		{Algorithm: weir.FixedWindow, Rate: 1, Per: time.Hour},
		{Algorithm: weir.SlidingLog, Rate: 1, Per: time.Hour, Scope: weir.Global},
		{Algorithm: weir.SlidingWindow, Rate: 1, Per: time.Hour, Scope: weir.Global},
		{Algorithm: weir.FixedWindow, Rate: 1, Per: time.Hour, Scope: weir.Global},
		{Algorithm: weir.FixedWindow, Rate: 1, Calendar: weir.Day},
	} {
		limit.Name = limit.Algorithm.String() + limit.Scope.String() + limit.Calendar.String()
		l := testnode.Limiter(t, n, limit)
		admitted := int64(0)
		for _, at := range []time.Time{midnight.Add(-1), midnight, midnight.Add(1)} {
			now.Store(at.UnixNano())
			d, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
			if d.Allowed {
				admitted++
			}
		}
		require.Equal(t, bounds.Healthy(&limit), admitted, limit.Name)
	}
}

// The table in docs/guarantees.md has the rows of bounds.Rows. The table in
// docs/partitions.md has the values of bounds.Healthy and bounds.Bound.
func TestDocumentsStateTheBounds(t *testing.T) {
	var atMost [][]string
	for _, row := range bounds.Rows() {
		atMost = append(atMost, []string{row.While, row.AtMost})
	}
	rewrite(t, "../../docs/guarantees.md", "| while | at most | and a check gets |\n", atMost, func(cells []string, row []string) {
		require.True(t, strings.HasPrefix(cells[0], row[0]), "%s: %s", cells[0], row[0])
		cells[1] = row[1]
	})

	log := func(p weir.PartitionPolicy, rate int64) weir.Limit {
		return weir.Limit{Algorithm: weir.SlidingLog, Rate: rate, Partition: p}
	}
	open := weir.Limit{Algorithm: weir.SlidingWindow, Rate: 100, Partition: weir.FailOpen}
	frozen := weir.Limit{Algorithm: weir.FixedWindow, Rate: 100}
	var rows [][]string
	for _, row := range []struct {
		while string
		limit weir.Limit
		holds bounds.Situation
	}{
		{"the owner crashes", log(weir.MajorityShare, 200), bounds.Situation{Crashes: 1, InFlight: 16}},
		{"the owner is frozen, and thaws", frozen, bounds.Situation{Late: 1}},
		{"a split, `FairShare`, c = 0", log(weir.FairShare, 100), bounds.Situation{Sides: 2}},
		{"the same, c = 1", log(weir.FairShare, 100), bounds.Situation{Sides: 2, Changes: 1}},
		{"a split, `MajorityShare`, c = 0", log(weir.MajorityShare, 100), bounds.Situation{Sides: 2}},
		{"the same, c = 1", log(weir.MajorityShare, 100), bounds.Situation{Sides: 2, Changes: 1}},
		{"a split, `FailOpen`", open, bounds.Situation{Sides: 3}},
		{"sides have forgotten each other", log(weir.FairShare, 100), bounds.Situation{Strangers: 1}},
		{"all nodes leave and start again, then all are killed", log(weir.MajorityShare, 300), bounds.Situation{Unsaved: 11}},
	} {
		rows = append(rows, []string{row.while, fmt.Sprint(bounds.Healthy(&row.limit)), fmt.Sprint(bounds.Bound(&row.limit, row.holds))})
	}
	rewrite(t, "../../docs/partitions.md", "| while | L | measured | at most | scenario |\n", rows, func(cells, row []string) {
		require.True(t, strings.HasPrefix(cells[0], row[0]), "%s: %s", cells[0], row[0])
		cells[1], cells[3] = row[1], row[2]
	})
}

// rewrite requires that the table after head in the file is up to date. The function set
// updates the cells of a line from a row. With the flag -update, rewrite writes the new
// table to the file.
func rewrite(t *testing.T, file, head string, rows [][]string, set func(cells, row []string)) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), head)
	require.True(t, found, head)
	lines := strings.Split(rest, "\n")
	for i, row := range rows {
		cells := strings.Split(strings.Trim(lines[i+1], "| "), " | ")
		set(cells, row)
		lines[i+1] = "| " + strings.Join(cells, " | ") + " |"
	}
	require.False(t, strings.HasPrefix(lines[len(rows)+1], "|"), "%s: the document has more rows than the table: %s", file, lines[len(rows)+1])
	now := before + head + strings.Join(lines, "\n")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(now), 0o666))
		return
	}
	require.Equal(t, string(text), now, "update it with: go test ./internal/bounds -run Documents -update")
}
