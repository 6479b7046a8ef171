// Package check chooses the members that a check asks, and how long it waits for each. It groups the
// asks of an AllowAll by member, and joins their results. It has no state, asks no member, and reads no
// clock.
package check

import (
	"errors"
	"slices"

	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Group is the asks of an AllowAll that go the same way, and their results.
//
// A Group that allowed has taken units for all of its asks. If another Group denied, MergeResults
// calls Settle to refund them. Without that, an AllowAll that was denied would have spent units.
type Group struct {
	Route   view.Route
	Asks    []wire.Ask
	Results []wire.Result
	Settle  func(takes []wire.Ask) // refunds the units of takes, if any, and ends each take
	Err     error

	at []int // the index of each ask among all asks
}

// GroupByRoute groups asks by the member that answers for them. The argument now is a time of the steady clock.
func GroupByRoute(v *view.View, all []wire.Ask, now int64) []*Group {
	var groups []*Group
	for i := range all {
		r := v.Route(all[i].ID, now)
		at := slices.IndexFunc(groups, func(g *Group) bool { return g.Route.Way == r.Way && g.Route.To == r.To })
		if at < 0 {
			at = len(groups)
			groups = append(groups, &Group{Route: r})
		}
		g := groups[at]
		g.at = append(g.at, i)
		g.Asks = append(g.Asks, all[i])
	}
	for _, g := range groups {
		g.Results = make([]wire.Result, len(g.Asks))
	}
	return groups
}

// MergeResults writes the results of the groups to results, and settles what they took. The units are
// kept if all groups allowed, and refunded otherwise. If there is one Group, it has settled already.
func MergeResults(groups []*Group, results []wire.Result) (err error) {
	allowed := true
	for _, g := range groups {
		err = errors.Join(err, g.Err)
		allowed = allowed && g.allowed()
		for i, at := range g.at {
			results[at] = g.Results[i]
		}
	}
	if len(groups) == 1 {
		return err
	}
	for _, g := range groups {
		if !g.allowed() {
			continue
		}
		if allowed {
			g.Settle(g.kept())
			continue
		}
		g.Settle(g.taken())
		for i, at := range g.at {
			if g.Results[i].Allowed {
				results[at].Remaining += g.Asks[i].Units
			}
		}
	}
	return err
}

// allowed reports whether the owner took the units of the group. It ignores shadows.
func (g *Group) allowed() bool {
	return g.Err == nil && wire.Allowed(g.Asks, g.Results)
}

// taken returns the asks that were allowed, with the receipts of their takes.
func (g *Group) taken() []wire.Ask {
	taken := make([]wire.Ask, 0, len(g.Asks))
	for i, a := range g.Asks {
		if r := &g.Results[i]; r.Allowed {
			taken = append(taken, a.Taken(r))
		}
	}
	return taken
}

// kept returns the asks that were allowed and left too few units for the same ask again, so that they
// may have denied other checks. Each has 0 units, so that a refund settles the take and returns nothing.
func (g *Group) kept() (kept []wire.Ask) {
	for i, a := range g.Asks {
		if r := &g.Results[i]; r.Allowed && r.Remaining < a.Units {
			a = a.Taken(r)
			a.Units = 0
			kept = append(kept, a)
		}
	}
	return kept
}
