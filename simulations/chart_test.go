package main

import (
	"encoding/xml"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
)

// curvesOf returns the curves of a chart by colour, and requires that they stay within
// the axes.
func curvesOf(t *testing.T, svg []byte) map[string]curve {
	require.NoError(t, xml.Unmarshal(svg, new(struct{})))
	curves := make(map[string]curve)
	for _, path := range regexp.MustCompile(`stroke="(#\w+)".* d="M([^h"]{20,})"`).FindAllStringSubmatch(string(svg), -1) {
		for at := range strings.SplitSeq(path[2], "L") {
			x, y, _ := strings.Cut(at, ",")
			var p point
			p.x, _ = strconv.ParseFloat(x, 64)
			p.y, _ = strconv.ParseFloat(y, 64)
			require.True(t, p.x >= chartLeft && p.x <= chartRight && p.y >= chartTop && p.y <= chartBottom, at)
			curves[path[1]] = append(curves[path[1]], p)
		}
	}
	return curves
}

func TestChartShowsSidesLimitSplitAndFaults(t *testing.T) {
	l := weir.Limit{Name: "calls", Algorithm: weir.SlidingLog, Rate: 160, Per: time.Second, Partition: weir.FairShare}
	s := newFixture(l, splitAt10, healAt25)
	j := journal(s, spread(64*40, 0, s.Lasts, 0), spread(90*40, 0, s.Lasts, 3))
	svg, err := drawChart(j)
	require.NoError(t, err)
	for _, text := range []string{
		"fixture: calls, key 0 (sliding_log, 160 per 1s, fair_share), seed 0",
		"seconds", "units in 1s", "limit", "bound", "whole, or c d e", "a b", "all sides", "split a b | c d e", "heal", "0", "10", "200",
	} {
		require.Contains(t, string(svg), ">"+text+"</text>")
	}
	const split = `<rect x="220.0" y="34" width="240.0" height="318" fill="` + shade
	require.Contains(t, string(svg), split)
	curves := curvesOf(t, svg)
	for i, c := range []string{firstSide, "#009E73", verdict, faint} {
		require.Greater(t, len(curves[c]), chartSamples, "curve %d", i)
	}
	at := func(colour string, second int) float64 { return curves[colour][second*chartSamples/40].y }
	require.Less(t, at(verdict, 11), at(verdict, 5), "the bound rises with the split")
	require.Greater(t, at("#009E73", 20), at(firstSide, 20), "the second side admits less")
	again, err := drawChart(j)
	require.NoError(t, err)
	require.Equal(t, svg, again)

	whole, err := drawChart(journal(newFixture(l), spread(100, 0, 20*time.Second, 0)))
	require.NoError(t, err)
	require.Contains(t, string(whole), ">admitted</text>")
	require.NotContains(t, string(whole), shade)

	_, err = drawChart(journal(newFixture(l)))
	require.ErrorIs(t, err, errNothingToDraw)
}

func TestSamplesSumUp(t *testing.T) {
	s := newFixture(weir.Limit{Name: "calls", Algorithm: weir.SlidingLog, Rate: 160, Per: time.Second, Partition: weir.FairShare}, splitAt10, healAt25)
	j := journal(s, spread(64*40, 0, s.Lasts, 0), spreadDenied(90*40, 2, 0, s.Lasts, 3))
	samples := newTrial(j).mostAsked().samples(s.Lasts, 40)
	require.Len(t, samples, 41)
	for i, at := range samples[1:] {
		require.InDelta(t, 109, at.all, 2)
		switch {
		case i > 10 && i < 25:
			require.InDelta(t, 45, at.sides[0], 2, "second %d", i)
			require.InDelta(t, 64, at.sides[1], 2, "second %d", i)
		case i < 10 || i > 25:
			require.InDelta(t, 109, at.sides[0], 2, "second %d", i)
		}
	}
	for second, bound := range map[int]int64{5: 160, 10: 320, 20: 160} {
		require.EqualValues(t, bound, bounds.Bound(&s.Limits[0], samples[second+1].Situation), second)
	}
	require.Nil(t, newTrial(journal(s)).mostAsked())
}
