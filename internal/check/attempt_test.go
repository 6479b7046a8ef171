package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// four returns the view of the first of four members. This member is connected to the given
// members, and the other three members are connected to each other.
func four(hears ...int) *view.View {
	c := &cluster.View{Self: 0, Direct: make([]bool, 4)}
	for i := range 4 {
		c.Members = append(c.Members, cluster.Member{Name: string(rune('a' + i)), State: cluster.Serving, Announced: cluster.Serving})
	}
	c.Direct[0], c.Connected = true, [][]int{hears, {2, 3}, {1, 3}, {1, 2}}
	for _, i := range hears {
		c.Direct[i] = true
	}
	return view.New(1, c, view.Terms{}, nil)
}

// idWhere returns an ID that the given member owns, and whose stand-in is the wanted member.
func idWhere(v *view.View, owner int, wanted func(standIn int) bool) (id bucket.ID) {
	for ; v.Owner(id) != owner || !wanted(v.StandIn(id, owner)); id.Hi += 1 << 40 {
	}
	return id
}

func isSelf(standIn int) bool { return standIn == 0 }

func isOther(standIn int) bool { return standIn != 0 }

func TestFailedAttemptMovesToNextMember(t *testing.T) {
	const timeout = 80 * time.Millisecond
	all, some := four(1, 2, 3), four(2, 3) // in the view some, this node is connected to the other members except b
	second := func(v *view.View, id bucket.ID) int { return v.StandIn(id, v.Owner(id)) }
	ofB, mine := idWhere(all, 1, isOther), idWhere(all, 1, isSelf)
	for _, c := range []struct {
		about  string
		v      *view.View
		id     bucket.ID
		way    view.Route
		err    error
		after  time.Duration
		again  bool
		member int // -1 for the stand-in
		stands bool
		wait   time.Duration
	}{
		{"the stand-in is asked after a late owner", all, ofB, view.Route{Way: view.Direct, To: 1, Hop: 1}, cluster.ErrTimeout, 60 * time.Millisecond, true, -1, true, 20 * time.Millisecond},
		{"the stand-in is asked after an owner that has just died", all, ofB, view.Route{Way: view.Direct, To: 1, Hop: 1}, cluster.ErrBroken, time.Millisecond, true, -1, true, 40 * time.Millisecond},
		{"the time in which this process was frozen does not count", all, ofB, view.Route{Way: view.Direct, To: 1, Hop: 1}, cluster.ErrTimeout, 10 * timeout, true, -1, true, 20 * time.Millisecond},
		{"the owner is asked by another way after a late relay", some, ofB, view.Route{Way: view.Relay, To: 1, Hop: 2}, cluster.ErrTimeout, 40 * time.Millisecond, true, 1, false, 40 * time.Millisecond},
		{"the stand-in is asked if the relay does not reach the owner", some, ofB, view.Route{Way: view.Relay, To: 1, Hop: 2}, env.ErrUnreached, 10 * time.Millisecond, true, -1, true, 40 * time.Millisecond},
		{"no member is asked after a late stand-in", all, ofB, view.Route{Way: view.StandIn, To: second(all, ofB), Hop: second(all, ofB)}, cluster.ErrTimeout, 40 * time.Millisecond, false, -1, true, 40 * time.Millisecond},
		{"the owner is asked by another way before this node stands in", all, mine, view.Route{Way: view.Direct, To: 1, Hop: 1}, cluster.ErrTimeout, 30 * time.Millisecond, true, 1, false, 40 * time.Millisecond},
	} {
		t.Run(c.about, func(t *testing.T) {
			a := firstAttempt(c.v, c.way, 0, timeout, 1000)
			require.Equal(t, c.again, a.advance(c.err, c.id, 1000+int64(c.after)))
			member := c.member
			if member < 0 {
				member = second(c.v, c.id)
			}
			require.Equal(t, member, a.Member)
			require.Equal(t, c.stands, a.Flags&wire.FlagStandIn != 0)
			require.LessOrEqual(t, a.Wait, c.wait)
			if c.again {
				require.Equal(t, c.wait, a.Wait)
				require.False(t, a.Hop == c.way.Hop && a.Member == c.way.To, "the next attempt goes the same way")
			}
		})
	}
}

func TestExtensionIsTheReportedDelayUpToTimeout(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ timeout, delay, extension time.Duration }{
		{100 * ms, 0, 0},
		{100 * ms, 19 * ms, 0},
		{100 * ms, 20 * ms, 20 * ms},
		{100 * ms, 100 * ms, 100 * ms},
		{100 * ms, time.Hour, 100 * ms},
		{ms, time.Hour, ms},
		{time.Minute, time.Hour, time.Second},
	} {
		require.Equal(t, c.extension, extension(c.timeout, c.delay))
		require.LessOrEqual(t, c.timeout+c.extension, LongestCheck(c.timeout))
	}
}

// reports is a Peer that has reported a delay.
type reports struct {
	cluster.Peer
	delay time.Duration
}

func (r reports) Delay() time.Duration { return r.delay }

func TestAttemptsShareAnExtendedTimeout(t *testing.T) {
	const timeout, ms = 80 * time.Millisecond, time.Millisecond
	for _, c := range []struct {
		about           string
		owner, stands   time.Duration // the delays that the owner and the stand-in have reported
		err             error
		first, then, in time.Duration // the waits for the owner and the stand-in, and the longest time of the check
	}{
		{"no member has reported a delay", 0, 0, cluster.ErrTimeout, 60 * ms, 20 * ms, timeout},
		{"the owner reported a delay, then froze", 40 * ms, 0, cluster.ErrTimeout, 90 * ms, 30 * ms, 120 * ms},
		{"the owner reported a long delay, then froze", time.Hour, 0, cluster.ErrTimeout, 120 * ms, 40 * ms, 2 * timeout},
		{"the stand-in has reported a delay", 0, 40 * ms, cluster.ErrTimeout, 60 * ms, 60 * ms, 120 * ms},
		{"both have reported long delays, which extend the check by one Timeout", time.Hour, time.Hour, cluster.ErrTimeout, 120 * ms, 40 * ms, 2 * timeout},
	} {
		t.Run(c.about, func(t *testing.T) {
			v := four(1, 2, 3)
			id := idWhere(v, 1, isOther)
			for i := 1; i < 4; i++ {
				v.Members[i].Peer = reports{delay: c.stands}
			}
			v.Members[1].Peer = reports{delay: c.owner}
			a := firstAttempt(v, view.Route{Way: view.Direct, To: 1, Hop: 1}, 0, timeout, 1000)
			require.Equal(t, c.first, a.Wait)
			require.True(t, a.advance(c.err, id, 1000+int64(a.Wait)))
			require.Equal(t, c.then, a.Wait)
			require.Equal(t, c.in, c.first+c.then)
		})
	}
}

func TestNoMemberIsAskedWithoutTimeLeft(t *testing.T) {
	const timeout = 80 * time.Millisecond
	v := four(2, 3) // this node is not connected to b
	id := idWhere(v, 1, func(int) bool { return true })
	a := firstAttempt(v, view.Route{Way: view.Relay, To: 1, Hop: 2}, 0, timeout, 1000)
	now := int64(1000)
	for range 2 { // each of two relays has half of the timeout
		require.Equal(t, timeout/2, a.Wait)
		now += int64(timeout / 2)
		if !a.advance(cluster.ErrTimeout, id, now) {
			return
		}
	}
	t.Fatal("the check asks a third relay")
}

// A stand-in needs the reserve, because it must ask other members before it grants a hold.
func TestNodeThatStandsInHasItsReserveLeft(t *testing.T) {
	const ms = time.Millisecond
	const timeout, reserve = 80 * ms, 20 * ms
	all, some := four(1, 2, 3), four(2, 3) // in the view some, this node is not connected to b
	id := idWhere(all, 1, isSelf)
	for _, c := range []struct {
		about string
		v     *view.View
		way   view.Route
		after time.Duration // duration of the first attempt
		wait  time.Duration // Wait of the second attempt, 0 if there is none
	}{
		{"the owner is late", all, view.Route{Way: view.Direct, To: 1, Hop: 1}, 60 * ms, 0},
		{"the owner is late, and this process was frozen", all, view.Route{Way: view.Direct, To: 1, Hop: 1}, time.Hour, 0},
		{"there is time for another way", all, view.Route{Way: view.Direct, To: 1, Hop: 1}, 40 * ms, 20 * ms},
		{"another way gets half of the time", all, view.Route{Way: view.Direct, To: 1, Hop: 1}, 10 * ms, 40 * ms},
		{"a relay is late", some, view.Route{Way: view.Relay, To: 1, Hop: 2}, 40 * ms, 20 * ms},
	} {
		t.Run(c.about, func(t *testing.T) {
			a := firstAttempt(c.v, c.way, 0, timeout, 1000)
			a.keepReserve()
			now := 1000 + int64(c.after)
			require.GreaterOrEqual(t, a.timeLeft(now), reserve)
			require.Equal(t, c.wait > 0, a.advance(cluster.ErrTimeout, id, now))
			if c.wait > 0 {
				require.Equal(t, c.wait, a.Wait)
				now += int64(time.Hour)
				require.False(t, a.advance(cluster.ErrTimeout, id, now))
			}
			require.Equal(t, a.View.Self, a.Member)
			require.GreaterOrEqual(t, a.timeLeft(now), reserve)
			require.LessOrEqual(t, a.timeLeft(now)+min(c.after, timeout)+c.wait, max(timeout, c.after))
		})
	}
}

// A second stand-in may count the units that the first has already counted.
func TestNoMemberIsAskedAfterLateStandIn(t *testing.T) {
	const timeout = 80 * time.Millisecond
	v := four(1, 2, 3)
	id, owner, first := bucket.ID{}, v.Self, v.Self
	for owner == v.Self || first == v.Self || v.WithoutMember(owner).StandIn(id, first) == v.Self {
		id.Hi += 1 << 40
		owner = v.Owner(id)
		first = v.StandIn(id, owner)
	}
	for _, c := range []struct {
		about string
		left  time.Duration // time for the stand-in
		err   error
		after time.Duration
		again bool
	}{
		{"half of the time, and the stand-in is late", 40 * time.Millisecond, cluster.ErrTimeout, 40 * time.Millisecond, false},
		{"half of the time, and the relay finds the stand-in late", 40 * time.Millisecond, env.ErrUnreached, 30 * time.Millisecond, false},
		{"half of the time, and the stand-in has just died", 40 * time.Millisecond, cluster.ErrBroken, time.Millisecond, true},
		{"an eighth of the time, and the stand-in is late", 10 * time.Millisecond, cluster.ErrTimeout, 10*time.Millisecond - 1, false},
		{"an eighth of the time, and the relay finds the stand-in late", 10 * time.Millisecond, env.ErrUnreached, 7500 * time.Microsecond, false},
		{"an eighth of the time, and the stand-in has just died", 10 * time.Millisecond, cluster.ErrBroken, time.Millisecond, true},
	} {
		t.Run(c.about, func(t *testing.T) {
			a := firstAttempt(v, view.Route{Way: view.Direct, To: owner, Hop: owner}, 0, timeout, 1000)
			sent := 1000 + int64(timeout-c.left)
			require.True(t, a.advance(cluster.ErrTimeout, id, sent), "the stand-in is asked")
			require.Equal(t, c.again, a.advance(c.err, id, sent+int64(c.after)) && a.Member != v.Self)
		})
	}
}

func TestRelayDelayExtendsRelayedCheck(t *testing.T) {
	const timeout, ms = 80 * time.Millisecond, time.Millisecond
	for _, c := range []struct {
		about                string
		owner, relay         time.Duration // the delays that the owner and the relay have reported
		first, second, whole time.Duration // Waits of the two attempts, and the time of the whole check
	}{
		{"the owner reported a delay on a connection that broke", 40 * ms, 0, 40 * ms, 40 * ms, timeout},
		{"the relay reports a delay", 0, 40 * ms, 60 * ms, 60 * ms, 120 * ms},
	} {
		t.Run(c.about, func(t *testing.T) {
			v := four(2, 3)
			for i, delay := range []time.Duration{0, c.owner, c.relay, 0} {
				v.Members[i].Peer = reports{delay: delay}
			}
			id := idWhere(v, 1, isOther)
			a := firstAttempt(v, view.Route{Way: view.Relay, To: 1, Hop: 2}, 0, timeout, 1000)
			require.Equal(t, c.first, a.Wait)
			require.Equal(t, c.whole, a.timeLeft(1000))
			require.True(t, a.advance(cluster.ErrTimeout, id, 1000+int64(c.first)))
			require.Equal(t, c.second, a.Wait)
		})
	}
}
