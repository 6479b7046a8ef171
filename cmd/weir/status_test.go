package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin"
)

func TestStatusHasLineForEachPart(t *testing.T) {
	for about, c := range map[string]struct {
		stats string
		want  []string
	}{
		"nothing": {`{"ready":true,"keys":0,"keys_max":5000000,"evicted":7,"snapshots":{}}`, []string{"ready; ", "counts: 0 in memory, at most 5000000; 7 evicted"}},
		"counts":  {`{"keys":999,"keys_max":1000}`, []string{"counts: 999 in memory, at most 1000; 0 evicted"}},
		"holds and reservations": {`{"holds":{"held":3,"known":5,"lost":1},"reservations":{"made":9,"settled":4,"canceled":2,"unsettled":1}}`, []string{
			"holds: 3 of this node's callers and clients; 1 were lost\n",
			"reservations: 9 made here, 4 settled and 2 canceled here; 1 expired unsettled\n",
		}},
		"snapshots that are loaded": {`{"snapshots":{"loading":true}}`, []string{"NOT READY: the node loads snapshots\n"}},
		"snapshots that are written": {`{"snapshots":{"loaded":70,"refused":1,"saved":9,"failures":2,"age_ms":61000,"took_ms":5,"bytes":3100,"counts":77}}`, []string{
			"snapshots: 70 counts loaded at the start; 1 snapshots were refused\n",
			"snapshots: the last is 1m1s old, has 77 counts in 3100 bytes, and was written in 5 ms; 2 attempts failed\n",
		}},
		"snapshots that are not written": {`{"snapshots":{"failures":2,"error":"no space left on device"}}`, []string{"snapshots: THE LAST ATTEMPT FAILED: no space left on device\n"}},
		"published rules": {`{"rules":{"in_force":true,"version":7,"hash":"0123456789abcdef","loaded_at":"2026-12-01T00:00:00Z","rules":1,"limits":2,"published":{"by":"jo","at":"2026-12-01T00:00:00Z"},
"refused_text":{"version":8,"error":"not all chunks of the text have arrived"},"factors":[{"rule":"idle","factor":1},{"rule":"api","factor":0.5,"reason":"slow","changed":"2026-12-01T00:00:01Z"}]}}`, []string{
			"rules: version 7 (0123456789ab) of 2026-12-01T00:00:00Z, 1 rules, 2 limits, 0 overrides, 0 switches, published by jo at 2026-12-01T00:00:00Z; PUBLISHED VERSION 8 IS NOT IN FORCE: not all chunks of the text have arrived\n" +
				"adapt: api has 50 % of its numbers since 2026-12-01T00:00:01Z (slow)\n",
		}},
		"rules that are refused": {`{"rules":{}}`, []string{"; THE CURRENT FILE WAS REFUSED: GET /v1/rules has the reason\n"}},
		"rules that are missing": {`{"rules":{"missing":true}}`, []string{"; THE FILE IS MISSING: these rules stay in force\n"}},
	} {
		var of cluster
		require.NoError(t, json.Unmarshal([]byte(c.stats), &of.Stats), about)
		var text strings.Builder
		of.print(&text, time.Now())
		for _, line := range c.want {
			require.Contains(t, text.String(), line, about)
		}
		for _, begins := range []string{"holds: ", "reservations: ", "snapshots: "} {
			require.Equal(t, strings.Count(strings.Join(c.want, ""), begins), strings.Count(text.String(), begins), about)
		}
	}
}

func TestStatusTabulatesAnswers(t *testing.T) {
	for about, c := range map[string]struct {
		answer string
		print  func(*cluster, io.Writer)
		want   string
	}{
		"what is held, by key": {`{"top":{"missing":["b"],
"denied":[{"limit":"api","id":"01","key":"user 1","denials":7}],
"held":[{"limit":"streams","id":"02","key":"…cdef","masked":true,"denials":7,"held":3,"held_most":4},{"limit":"jobs","id":"03","held":1,"held_most":10}]}}`, (*cluster).printTop, `
DENIED MOST  KEY     DENIALS, ABOUT
api          user 1  7

HELD NOW  KEY       UNITS    DENIALS, ABOUT
streams   …cdef 02  3 of 4   7
jobs      03        1 of 10  0
without b, which did not answer
`},
		"what shadows would have denied": {`{"stats":{"rules":{"outcomes":[
{"limit":"quiet","mode":"enforce"},{"limit":"login/day","mode":"enforce"},{"limit":"trial","mode":"shadow"},{"limit":"idle","mode":"10%"}]}},
"totals":{"limits":{"quiet":{"enforced":{"allowed":5}},"login/day":{"enforced":{"allowed":5,"denied":2}},
"trial":{"shadowed":{"allowed":1,"denied":7}},"of another node":{"enforced":{"allowed":1,"denied":1}}}}}`, (*cluster).printLimits, `
LIMIT            DENIED  WOULD HAVE DENIED  OF CHECKS
trial (shadow)   0       7                  8
login/day        2       0                  7
of another node  1       0                  2
idle (10%)       0       0                  0
`},
		"checks of all members": {`{"totals":{"answered":["a","b"],"missing":[],"decisions":{"owner":{"allowed":3,"denied":1}}}}`, (*cluster).printDecisions, `
checks of 2 of 2 members since each started
DECIDED BY  ALLOWED  DENIED
owner       3        1
`},
		"members that the sums lack": {`{"totals":{"answered":["a"],"missing":["b","c"]}}`, (*cluster).printDecisions, `
checks of 1 of 3 members since each started; without b, c, which did not answer
DECIDED BY  ALLOWED  DENIED
`},
	} {
		var of cluster
		require.NoError(t, json.Unmarshal([]byte(c.answer), &of), about)
		var text strings.Builder
		c.print(&of, &text)
		require.Equal(t, c.want, text.String(), about)
	}
}

func TestStatusListsMembersThatDoNotServeFirst(t *testing.T) {
	var of cluster
	for i := range 1000 {
		state := "serving"
		if i >= 998 {
			state = "missing"
		}
		of.Members.Members = append(of.Members.Members, admin.Member{Name: fmt.Sprintf("node-%03d", i), State: state})
	}
	var text strings.Builder
	of.printMembers(&text)
	lines := strings.Split(text.String(), "\n")
	require.Len(t, lines, 1+1+1+1+membersShown+1)
	require.Equal(t, "1000 members: 2 missing 998 serving; the list has 50, first the members that do not serve", lines[1])
	require.Equal(t, []string{"node-998", "node-999", "node-000"}, []string{lines[4][:8], lines[5][:8], lines[6][:8]})
}

func TestStatusShowsOnlyLimitsThatDenyMost(t *testing.T) {
	var of cluster
	require.NoError(t, json.Unmarshal([]byte(`{"totals":{"limits":{"first":{"enforced":{"allowed":5,"denied":2}}}}}`), &of))
	for i := range limitsShown + 3 {
		of.Totals.Limits[fmt.Sprint("limit ", i)] = of.Totals.Limits["first"]
	}
	var text strings.Builder
	of.printLimits(&text)
	require.Equal(t, limitsShown+3, strings.Count(text.String(), "\n"))
	require.Contains(t, text.String(), "and 4 more: GET /v1/totals has them\n")
}

func TestStatusBoundsFactors(t *testing.T) {
	var text strings.Builder
	printFactors(&text, slices.Repeat([]admin.Factor{{Changed: new(time.Time)}}, limitsShown+1))
	require.Equal(t, limitsShown, strings.Count(text.String(), "adapt: "))
}

func TestStatusReadsAllPagesOfMembers(t *testing.T) {
	pages := map[string]string{"": `{"members":[{"name":"a"}],"next":"a&b"}`, "a&b": `{"members":[{"name":"c"}]}`}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, pages[r.URL.Query().Get("after")])
	}))
	defer server.Close()
	members, err := (&client{base: server.URL}).members(t.Context())
	require.NoError(t, err)
	require.Equal(t, []admin.Member{{Name: "a"}, {Name: "c"}}, members)
}
