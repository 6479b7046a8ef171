package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// picture is what a test looks for in a chart.
type picture struct {
	texts []string
	paths map[string]int // how many have this colour, as fill or stroke
	long  map[string]int // points of the longest path with this stroke

	at    map[string]float64 // how far to the right a text begins
	right map[string]float64 // and where a path with this colour ends
	high  map[string]float64 // the highest point of one
}

// extend takes in the points of a path.
func (p *picture) extend(colour, path string) {
	for point := range strings.FieldsFuncSeq(path, func(c rune) bool { return strings.ContainsRune("MLZ", c) }) {
		x, y, _ := strings.Cut(point, ",")
		right, _ := strconv.ParseFloat(x, 64)
		high, _ := strconv.ParseFloat(y, 64)
		p.right[colour], p.high[colour] = max(p.right[colour], right), max(p.high[colour], high)
	}
}

func parsePicture(t *testing.T, svg []byte) picture {
	p := picture{paths: make(map[string]int), long: make(map[string]int), at: make(map[string]float64), right: make(map[string]float64), high: make(map[string]float64)}
	x := 0.0
	d := xml.NewDecoder(bytes.NewReader(svg))
	inText := false
	for {
		token, err := d.Token()
		if err == io.EOF {
			return p
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			inText = e.Name.Local == "text"
			var path, style string
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "d":
					path = a.Value
				case "style":
					style = a.Value
				case "x":
					x, _ = strconv.ParseFloat(a.Value, 64)
				}
			}
			if e.Name.Local == "path" {
				for _, part := range strings.Split(style, ";") {
					_, colour, _ := strings.Cut(part, "#")
					p.paths[colour]++
					if points := strings.Count(path, "L"); points > 1 { // no entry of the legend, whose lines have two ends
						p.long[colour] = max(p.long[colour], points)
						p.extend(colour, path)
					}
				}
			}
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				p.texts = append(p.texts, strings.TrimSpace(string(e)))
				p.at[strings.TrimSpace(string(e))] = x
			}
		}
	}
}

func TestAChartShowsSidesLimitSplitAndFaults(t *testing.T) {
	l := weir.Limit{Name: "calls", Algorithm: weir.SlidingLog, Rate: 160, Per: time.Second, Partition: weir.FairShare}
	s := told(l, splitAt10, healAt25)
	j := journal(s, spread(64*40, 0, s.Lasts, 0), spread(90*40, 0, s.Lasts, 3))
	svg, err := draw(j)
	require.NoError(t, err)
	p := parsePicture(t, svg)
	for _, text := range []string{
		"told: calls, key 0 (sliding_log, 160 per 1s, fair_share), seed 0",
		"seconds", "units in 1s", "limit", "bound", "whole, or c d e", "a b", "all sides", "split a b | c d e", "heal",
	} {
		require.Contains(t, p.texts, text)
	}
	require.Positive(t, p.paths["FFFFFF"], "the paper is painted")
	require.Positive(t, p.paths["EEE6D8"], "the split is shaded")
	require.Greater(t, p.long["0072B2"], 300, "the first side's line")
	require.Greater(t, p.long["009E73"], 300, "the second side's line")
	legend := (chartWidth - legendWidth).Points()
	for _, text := range []string{"limit", "bound", "all sides", "whole, or c d e", "a b"} {
		require.Greater(t, p.at[text], legend, text)
	}
	for _, colour := range []string{"0072B2", "009E73", "D55E00"} {
		require.Less(t, p.right[colour], legend, "no curve reaches the legend")
	}
	require.Less(t, p.high["D55E00"], p.high["EEE6D8"]-10, "the bound is not clipped at the edge")
	require.Greater(t, p.high["D55E00"], p.high["0072B2"]+10)
	again, err := draw(j)
	require.NoError(t, err)
	require.Equal(t, svg, again)

	whole, err := draw(journal(told(l), spread(100, 0, 20*time.Second, 0)))
	require.NoError(t, err)
	p = parsePicture(t, whole)
	require.Contains(t, p.texts, "admitted")
	require.NotContains(t, p.texts, "a b")
	require.Zero(t, p.paths["EEE6D8"])

	_, err = draw(journal(told(l)))
	require.ErrorIs(t, err, errNothingToDraw)
}

func TestSecondsSumUp(t *testing.T) {
	s := told(weir.Limit{Name: "calls", Algorithm: weir.SlidingLog, Rate: 160, Per: time.Second, Partition: weir.FairShare}, splitAt10, healAt25)
	j := journal(s, spread(64*40, 0, s.Lasts, 0), asked(90*40, 2, 0, s.Lasts, 3))
	seconds := newTrial(j).perSecond()
	require.Len(t, seconds, 40)
	for i, second := range seconds {
		require.EqualValues(t, 154, second.Offered, "second %d", i)
		require.EqualValues(t, 160, second.Limit)
		require.InDelta(t, 109, second.Window, 2)
		if i >= 10 && i < 25 {
			require.Equal(t, []int64{45, 64}, second.Admitted, "second %d", i)
		} else {
			require.Equal(t, []int64{109}, second.Admitted, "second %d", i)
		}
	}
	require.EqualValues(t, 160, seconds[5].Bound)
	require.EqualValues(t, 320, seconds[10].Bound)
	require.EqualValues(t, 160, seconds[20].Bound)
	require.Empty(t, newTrial(journal(s)).perSecond())
}

func TestTheReportSumsUpWhatEachSideWasGranted(t *testing.T) {
	s := told(weir.Limit{Name: "calls", Algorithm: weir.SlidingLog, Rate: 160, Per: time.Second, Partition: weir.FairShare}, splitAt10, healAt25)
	j := journal(s, spread(64*40, 0, s.Lasts, 0), asked(90*40, 2, 0, s.Lasts, 3))
	var text strings.Builder
	grants(&text, newTrial(j))
	require.Equal(t, `
Granted of the limit, in units and as part of what it allows in that time:
whole for 25s:    all nodes 2725 (68 %), of 3850 asked for
split for 15s:    c d e 675 (28 %), a b 960 (40 %), together 1635 (68 %), of 2310 asked for
`, text.String())

	text.Reset()
	grants(&text, newTrial(journal(s)))
	require.Empty(t, text.String(), "nothing was asked")
}
