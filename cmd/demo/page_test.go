package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/page"
)

// fleetOf returns a fleet whose gateways are all up and connected to the gateways on
// their side.
func fleetOf(sides ...int) *fleet {
	f := newFleet(options{nodes: len(sides), replicas: 1, limit: 10, serve: true}, time.Second, nil)
	for i, side := range sides {
		inc := &incarnation{gateway: i, condition: up, ready: true, over: make(chan struct{})}
		inc.report = Report{Name: label(i) + "-1", Page: &page.Snapshot{Members: []page.Member{{ID: label(i) + "-1", Share: 1}}}}
		f.sites[i].Bind = label(i)
		for j, other := range sides {
			state := weir.Missing
			if other == side {
				state = weir.Serving
			}
			inc.report.Members = append(inc.report.Members, seen{label(j) + "-1", state})
		}
		f.current[i] = inc
	}
	return f
}

func sidesOf(f *fleet) []int { return f.sides(f.speaker()) }

func TestPageHasLargestSideFirst(t *testing.T) {
	require.Equal(t, []int{0, 0, 0, 0}, sidesOf(fleetOf(1, 1, 1)), "without a split there are no sides; the last index is the gateway that joins and leaves")
	require.Equal(t, []int{2, 1, 1, 2, 1, 0}, sidesOf(fleetOf(1, 2, 2, 1, 2)))
	f := fleetOf(1, 2, 2)
	require.Equal(t, 1, f.speaker().gateway, "the speaker is on the largest side")
	f.current[2].condition = killed
	require.Equal(t, []int{1, 2, 0, 0}, sidesOf(f), "a dead gateway is on no side")
}

func TestPageShowsMembersAndActions(t *testing.T) {
	f := fleetOf(1, 2, 2)
	f.current[2].condition = frozen
	f.current[2].down = []span{lab.Between(1, never)}
	f.away[0] = true
	s := (&panorama{fleet: f, tally: newTally(f, stallBound, new(lab.SchedulingDelay))}).Snapshot()
	require.Len(t, s.Members, 3)
	require.Equal(t, []page.Health{page.Serving, page.Missing, page.Missing}, []page.Health{s.Members[0].Health, s.Members[1].Health, s.Members[2].Health})
	require.Equal(t, "cut off", s.Members[1].State)
	require.Equal(t, "frozen", s.Members[2].State)
	require.Contains(t, s.Members[0].Note, "behind the cut")
	require.Equal(t, []page.Action{{Name: "kill"}, {Name: "freeze", Off: !lab.Signals}, {Name: "slow"}, {Name: "heal"}}, s.Members[0].Actions)
	require.Equal(t, []page.Action{{Name: "kill"}, {Name: "thaw"}, {Name: "slow"}, {Name: "cut"}}, s.Members[2].Actions)
	f.current[2].condition = killed
	require.Equal(t, []page.Action{{Name: "start"}, {Name: "freeze", Off: true}, {Name: "slow"}, {Name: "cut"}}, f.actions(2))
	require.ErrorContains(t, f.press(t.Context(), step{kind: kill, gateway: 2}), "kill gateway 3: it is done already")
}

func TestPressedButtonsAreBounded(t *testing.T) {
	p := &panorama{fleet: fleetOf(1, 1), presses: make(chan press, 1)}
	require.ErrorContains(t, p.Act(t.Context(), "gateway-3", "kill"), `there is no gateway "gateway-3"`)
	require.ErrorContains(t, p.Act(t.Context(), "gateway-1", "explode"), `there is no button "explode"`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Act(ctx, "gateway-1", "kill"), context.Canceled, "no step is executed")
	require.ErrorIs(t, p.Act(t.Context(), "gateway-1", "kill"), errBusy)
	require.Equal(t, step{kind: kill}, (<-p.presses).what)
	go func() { (<-p.presses).refused <- nil }()
	require.NoError(t, p.Act(t.Context(), "gateway-2", "speed up"))
}

func TestBothEndsReceiveLink(t *testing.T) {
	f := fleetOf(1, 1, 1)
	f.away[1], f.slowed[1], f.slowed[2] = true, true, true
	f.sites = f.sites[:3]
	require.Equal(t, map[string]link{"gateway-2": {Cut: true, Delay: slowBy}, "gateway-3": {Delay: slowBy}}, f.links(0))
	require.Equal(t, map[string]link{"gateway-1": {Cut: true, Delay: slowBy}, "gateway-3": {Cut: true, Delay: 2 * slowBy}}, f.links(1))
}

func TestServeKeepsBoundedNumberOfFaults(t *testing.T) {
	f := fleetOf(1, 1)
	for range 3 * maxKept {
		f.happened = append(f.happened, happening{seenBy: 1})
		f.say("kill", "again")
		f.recordBroken("it ended")
		f.all = append(f.all, &incarnation{})
	}
	f.all = append(f.all, f.current[0])
	f.trim()
	require.Len(t, f.happened, maxKept)
	require.Len(t, f.lines(), maxKept)
	require.Len(t, f.broken, maxKept)
	require.Equal(t, []*incarnation{f.current[0]}, f.all)
}

func TestGrantsAreForgottenAfterTheirWindow(t *testing.T) {
	f, r := scene()
	for at := range int64(10) {
		r.add(answer{to: f.current[0], account: account{client: 3}, allowed: true, done: at * second / 4, check: lab.Between(0, at*second/4)})
	}
	r.add(answer{to: f.current[0], account: account{client: 3}, done: 9 * second / 4})
	require.Equal(t, 4, r.recentAdmissions(3, 9*second/4, time.Second))
	require.Zero(t, r.recentAdmissions(3, 10*second, time.Second))
	require.Zero(t, r.recentAdmissions(4, 9*second/4, time.Second))
	r.forget(9 * second)
	require.Empty(t, r.answers)
	require.Equal(t, 3, clientOf(clientName(3)))
	require.Equal(t, -1, clientOf("alice"))
}
