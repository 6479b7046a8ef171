package check

import (
	"errors"
	"slices"

	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// group has the asks of an AllowAll that the same member answers, and their results.
//
// A group that was allowed has taken the units of all its asks, except of shadows that were denied.
// If another group was denied or failed, mergeResults calls settle to refund these units, because a
// denied AllowAll must not spend any.
type group struct {
	route   view.Route
	asks    []wire.Ask
	results []wire.Result
	settle  func(takes []wire.Ask) // refunds the Units of each take, which may be 0, and concludes the take
	err     error

	indexes []int // the index of each ask among all asks
}

// groupByRoute groups asks by the member that answers for them. The argument now is the present
// monotonic time.
func groupByRoute(v *view.View, all []wire.Ask, now int64) []*group {
	var groups []*group
	for i := range all {
		r := v.Route(all[i].ID, now)
		at := slices.IndexFunc(groups, func(g *group) bool { return g.route.Way == r.Way && g.route.To == r.To })
		if at < 0 {
			at = len(groups)
			groups = append(groups, &group{route: r})
		}
		g := groups[at]
		g.indexes = append(g.indexes, i)
		g.asks = append(g.asks, all[i])
	}
	for _, g := range groups {
		g.results = make([]wire.Result, len(g.asks))
	}
	return groups
}

// mergeResults writes the results of the groups to the slice results. If all groups were allowed, their units
// are kept, and mergeResults concludes the takes that left few units. Otherwise it refunds the units. The takes of a
// single group are not tentative, so mergeResults does not settle them.
func mergeResults(groups []*group, results []wire.Result) (err error) {
	allowed := true
	for _, g := range groups {
		err = errors.Join(err, g.err)
		allowed = allowed && g.allowed()
		for i, at := range g.indexes {
			results[at] = g.results[i]
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
			g.settle(g.emptyTakes())
			continue
		}
		g.settle(g.allowedTakes())
		for i, at := range g.indexes {
			if g.results[i].Allowed {
				results[at].Remaining += g.asks[i].Units
			}
		}
	}
	return err
}

// allowed reports whether the units of the group were taken. It ignores shadows.
func (g *group) allowed() bool {
	return g.err == nil && wire.Allowed(g.asks, g.results)
}

// allowedTakes returns the asks that were allowed, with the receipts of their takes.
func (g *group) allowedTakes() []wire.Ask {
	taken := make([]wire.Ask, 0, len(g.asks))
	for i, a := range g.asks {
		if r := &g.results[i]; r.Allowed {
			taken = append(taken, a.WithReceipt(r))
		}
	}
	return taken
}

// emptyTakes returns the allowed asks after which too few units remained for the same ask, so that other checks
// may have been denied. Each has 0 units, so that a refund concludes the take and returns nothing.
func (g *group) emptyTakes() (kept []wire.Ask) {
	for i, a := range g.asks {
		if r := &g.results[i]; r.Allowed && r.Remaining < a.Units {
			a = a.WithReceipt(r)
			a.Units = 0
			kept = append(kept, a)
		}
	}
	return kept
}
