package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatusShowsTheCountsHeldBesideTheirMaximum(t *testing.T) {
	for _, c := range []struct {
		held, most int
		want       string
	}{
		{0, 5_000_000, "counts: 0 held of 5000000 at most, 7 evicted"},
		{999, 1000, "counts: 999 held of 1000 at most, 7 evicted"},
		{1, 1, "counts: 1 held of 1 at most, 7 evicted"},
	} {
		var of cluster
		of.Stats.Keys, of.Stats.MaxKeys, of.Stats.Evicted = c.held, c.most, 7
		var text strings.Builder
		of.print(&text, time.Now())
		require.Contains(t, text.String(), c.want)
	}
}

func TestStatusShowsHoldsAndReservationsWhereThereAreAny(t *testing.T) {
	var of cluster
	var text strings.Builder
	of.print(&text, time.Now())
	require.NotContains(t, text.String(), "holds:")
	require.NotContains(t, text.String(), "reservations:")
	require.NoError(t, json.Unmarshal([]byte(`{"stats":{"holds":{"held":3,"known":5,"lost":1},"reservations":{"made":9,"settled":4,"canceled":2,"unsettled":1}}}`), &of))
	of.print(&text, time.Now())
	require.Contains(t, text.String(), "holds: 3 of this node's callers and clients; 1 were lost\n")
	require.Contains(t, text.String(), "reservations: 9 made here, 4 settled and 2 canceled here; 1 expired unsettled\n")
}

func TestStatusShowsWhatIsHeldByKey(t *testing.T) {
	var of cluster
	require.NoError(t, json.Unmarshal([]byte(`{"top":{"missing":["b"],
"denied":[{"limit":"api","id":"01","key":"user 1","denials":7}],
"held":[{"limit":"streams","id":"02","key":"…cdef","masked":true,"denials":7,"held":3,"held_most":4},{"limit":"jobs","id":"03","held":1,"held_most":10}]}}`), &of))
	var text strings.Builder
	of.printTop(&text)
	require.Equal(t, `
DENIED MOST  KEY     DENIALS, ABOUT
api          user 1  7

HELD NOW  KEY       UNITS    DENIALS, ABOUT
streams   …cdef 02  3 of 4   7
jobs      03        1 of 10  0
without b, which did not answer
`, text.String())
}

func TestStatusShowsSnapshotsWhereThereAreAny(t *testing.T) {
	for answer, want := range map[string][]string{
		`{"ready":true,"snapshots":{}}`:  {"ready; "},
		`{"snapshots":{"loading":true}}`: {"NOT READY: the node loads snapshots\n"},
		`{"ready":true,"snapshots":{"loaded":70,"refused":1,"saved":9,"failures":2,"age_ms":61000,"took_ms":5,"bytes":3100,"counts":77}}`: {
			"snapshots: 70 counts loaded at the start; 1 snapshots were refused\n",
			"snapshots: the last is 1m1s old, with 77 counts in 3100 bytes, and took 5 ms; 2 failed\n",
		},
		`{"ready":true,"snapshots":{"failures":2,"error":"no space left on device"}}`: {"snapshots: THE LAST ATTEMPT FAILED: no space left on device\n"},
	} {
		var of cluster
		require.NoError(t, json.Unmarshal([]byte(answer), &of.Stats))
		var text strings.Builder
		of.print(&text, time.Now())
		for _, line := range want {
			require.Contains(t, text.String(), line)
		}
		require.Equal(t, strings.Count(strings.Join(want, ""), "snapshots: "), strings.Count(text.String(), "snapshots: "), answer)
	}
}

func TestStatusShowsWhatShadowsWouldHaveDenied(t *testing.T) {
	var of cluster
	require.NoError(t, json.Unmarshal([]byte(`{"stats":{"rules":{"outcomes":[
{"limit":"quiet"},{"limit":"login/day"},{"limit":"trial","shadow":true},{"limit":"idle","shadow":true}]}},
"totals":{"limits":{"quiet":{"enforced":{"allowed":5}},"login/day":{"enforced":{"allowed":5,"denied":2}},
"trial":{"shadowed":{"allowed":1,"denied":7}},"of another node":{"enforced":{"allowed":1,"denied":1}}}}}`), &of))
	var text strings.Builder
	of.printLimits(&text)
	require.Equal(t, `
LIMIT            DENIED  WOULD HAVE DENIED  OF CHECKS
trial (shadow)   0       7                  8
login/day        2       0                  7
of another node  1       0                  2
idle (shadow)    0       0                  0
`, text.String())

	for i := range limitsShown {
		of.Totals.Limits[fmt.Sprint("limit ", i)] = of.Totals.Limits["login/day"]
	}
	text.Reset()
	of.printLimits(&text)
	require.Equal(t, limitsShown+3, strings.Count(text.String(), "\n"))
	require.Contains(t, text.String(), "and 4 more: GET /v1/totals has them\n")
}

func TestStatusNamesMembersThatItsSumsLack(t *testing.T) {
	for answer, want := range map[string]string{
		`{"answered":["a","b"],"missing":[],"decisions":{"owner":{"allowed":3,"denied":1}}}`: `
checks of 2 of 2 members since each started
DECIDED BY  ALLOWED  DENIED
owner       3        1
`,
		`{"answered":["a"],"missing":["b","c"]}`: `
checks of 1 of 3 members since each started; without b, c, which did not answer
DECIDED BY  ALLOWED  DENIED
`,
	} {
		var of cluster
		require.NoError(t, json.Unmarshal([]byte(answer), &of.Totals))
		var text strings.Builder
		of.printDecisions(&text)
		require.Equal(t, want, text.String())
	}
}
