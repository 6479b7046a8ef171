package admin

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// testMember is the API of a member of a cluster in virtual time.
type testMember struct {
	*testAPI
	name string
	kill func()
}

// startMembers starts a cluster of three members.
func startMembers(t *testing.T, seed uint64) (all []*testMember) {
	c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Seed: seed, Link: weirtest.Link{Latency: time.Millisecond}, Config: weir.Config{Logger: quietly}})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	for _, host := range c.Names() {
		m := &testMember{testAPI: newTestAPIOn(t, c.Node(host), testRules), kill: func() { c.Kill(host) }}
		for _, one := range m.node.Members() {
			if one.Self {
				m.name = one.Name
			}
		}
		all = append(all, m)
	}
	return all
}

// takeUnits spends units under a limit of the rules.
func (m *testMember) takeUnits(limit, key string, units int64) weir.Decision {
	m.t.Helper()
	now := m.book.Current()
	l, _, ok := now.Limit(limit)
	require.True(m.t, ok)
	d, err := now.Limiter(l, "", key).AllowN(m.t.Context(), key, units)
	require.NoError(m.t, err)
	return d
}

func TestMembersAnswerForClusterAndListMissingMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := startMembers(t, 3)
		for i, m := range members {
			for range 10 {
				m.takeUnits("api/hourly", "of all", 100)
			}
			for range i {
				m.takeUnits("api/hourly", "of some", 1)
			}
		}
		id := members[0].limiter("api/hourly").ID("of all")
		sum := func(of map[string]Outcomes) (o Outcomes) {
			for _, one := range of {
				o.Allowed, o.Denied = o.Allowed+one.Allowed, o.Denied+one.Denied
			}
			return o
		}
		sources := make(map[string]int)
		for _, m := range members {
			var top Top
			m.get("GET", "/v1/top?n=2", "", 200, &top)
			require.Empty(t, top.Missing)
			require.Len(t, top.Asked, 2)
			first := top.Asked[0]
			require.Equal(t, "of all", *first.Key, "its text came from those who were asked")
			require.Equal(t, []any{"api/hourly", hex.EncodeToString(id[:])}, []any{first.Limit, first.ID})
			require.Equal(t, []int64{30, 20, 0}, []int64{int64(first.Asks), int64(first.Denials), int64(first.AsksOver)})
			require.Equal(t, "of some", *top.Asked[1].Key)
			require.Len(t, top.Denied, 1)

			var totals Totals
			m.get("GET", "/v1/totals", "", 200, &totals)
			require.Empty(t, totals.Missing)
			require.Equal(t, []string{members[0].name, members[1].name, members[2].name}, totals.Answered)
			require.Equal(t, Outcomes{Allowed: 13, Denied: 20}, sum(totals.Decisions))
			require.Equal(t, Outcomes{Allowed: 13, Denied: 20}, totals.Limits["api/hourly"].Enforced)

			status := m.statusOf("user", "of some").Limits[1]
			require.EqualValues(t, 997, status.Remaining, "a status spends nothing")
			sources[status.Source]++
			var ring Ring
			m.get("GET", "/v1/ring", "", 200, &ring)
			require.Len(t, ring.Members, 3)
			shares := 0.0
			for _, one := range ring.Members {
				require.InDelta(t, 1.0/3, one.Share, 0.1)
				shares += one.Share
			}
			require.InDelta(t, 1, shares, 1e-9)
		}
		require.Equal(t, map[string]int{"owner": 1, "forwarded": 2}, sources)
		for _, m := range members {
			_, err := m.node.AllowAll(t.Context(), weir.Ask{Limiter: m.limiter("api/hourly"), Key: "of shadows", Units: 600, Shadow: true})
			require.NoError(t, err)
		}
		var totals Totals
		members[1].get("GET", "/v1/totals", "", 200, &totals)
		require.Equal(t, Total{Enforced: Outcomes{Allowed: 13, Denied: 20}, Shadowed: Outcomes{Allowed: 1, Denied: 2}}, totals.Limits["api/hourly"])

		members[2].kill()
		var top Top
		members[0].get("GET", "/v1/top", "", 200, &top)
		require.Equal(t, []string{members[2].name}, top.Missing)
		require.EqualValues(t, 20, top.Asked[0].Asks)
		members[0].get("GET", "/v1/totals", "", 200, &totals)
		require.Equal(t, []string{members[2].name}, totals.Missing)
		require.Equal(t, []string{members[0].name, members[1].name}, totals.Answered)
	})
}

func TestResetIsIncompleteUntilKilledMemberIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := readAPI(t)
		all := startMembers(t, 3)
		a, b, c := all[0], all[1], all[2]
		b.takeUnits("api/hourly", "u", 100)
		d.exchange(a.testAPI, "DELETE", "/v1/counts?limit=api/hourly&key=u", "", "/v1/counts", 200)
		require.EqualValues(t, 1000, b.statusOf("user", "u").Limits[1].Remaining)

		a.takeUnits("api/hourly", "u", 100)
		c.kill()
		time.Sleep(2 * time.Second)
		var reset resetAnswer
		d.exchange(a.testAPI, "DELETE", "/v1/counts?limit=api/hourly&key=u", "", "/v1/counts", 207)
		a.get("DELETE", "/v1/counts?limit=api/hourly&key=u", "", http.StatusMultiStatus, &reset)
		require.Equal(t, []string{c.name}, reset.NotReached)
		a.get("DELETE", "/v1/counts?limit=address&key=u", "", http.StatusMultiStatus, &reset)
		require.Equal(t, []string{c.name}, reset.NotReached, "once, though the overrun is not reached either")

		dead := func(m *testMember) bool {
			var members Members
			m.get("GET", "/v1/members", "", 200, &members)
			for _, one := range members.Members {
				if one.Name == c.name {
					return one.State == "dead"
				}
			}
			return false
		}
		for i := 0; !dead(a); i++ {
			require.Less(t, i, 120)
			time.Sleep(time.Second)
		}
		d.exchange(a.testAPI, "DELETE", "/v1/members/"+c.name, "", "/v1/members/{name}", 204)
		time.Sleep(2 * time.Second)
		d.exchange(a.testAPI, "DELETE", "/v1/members/"+c.name, "", "/v1/members/{name}", 404)
		d.exchange(b.testAPI, "DELETE", "/v1/members/"+c.name, "", "/v1/members/{name}", 404)
		d.exchange(b.testAPI, "DELETE", "/v1/counts?limit=api/hourly&key=u", "", "/v1/counts", 200)
	})
}

func TestMembersAreListedByPages(t *testing.T) {
	var all []weir.Member
	for i := range 2*maxMembers + 2 {
		all = append(all, weir.Member{Name: fmt.Sprintf("node-%03d", i), State: weir.Serving})
	}
	first := showMembers(all, "")
	require.Len(t, first.Members, maxMembers)
	require.Equal(t, first.Members[maxMembers-1].Name, first.Next)
	all = slices.Delete(all, maxMembers-1, maxMembers) // the member has left
	second := showMembers(all, first.Next)
	require.Equal(t, all[maxMembers-1].Name, second.Members[0].Name)
	require.Equal(t, Members{Members: []Member{{Name: all[2*maxMembers].Name, State: "serving"}}}, showMembers(all, all[2*maxMembers-1].Name))
	require.Equal(t, all[2*maxMembers-2].Name, second.Next)
	require.Equal(t, Members{Members: []Member{}}, showMembers(all, "x"))
}
