// Package parties sorts the asks of an AllowAll by the member that answers for them, and makes one
// answer of theirs. It has no state, asks no member, and reads no clock.
package parties

import (
	"errors"
	"slices"

	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Party is those of the asks that go the same way, and what they were answered.
//
// A Party that allowed has taken units for all of its asks. Conclude has Settle give them back
// where another Party denied: without that they stay spent, and the AllowAll has spent units
// though it was denied.
type Party struct {
	Route   view.Route
	Asks    []wire.Ask
	Results []wire.Result
	Settle  func(takes []wire.Ask) // refunds takes, or if they are of no units says that they are kept
	Err     error

	at []int // which of all asks
}

// Of sorts asks by the member that answers for them, now by the steady clock.
func Of(v *view.View, all []wire.Ask, now int64) []*Party {
	var parties []*Party
	for i := range all {
		r := v.Route(all[i].ID, now)
		at := slices.IndexFunc(parties, func(p *Party) bool { return p.Route.Way == r.Way && p.Route.To == r.To })
		if at < 0 {
			at = len(parties)
			parties = append(parties, &Party{Route: r})
		}
		p := parties[at]
		p.at = append(p.at, i)
		p.Asks = append(p.Asks, all[i])
	}
	for _, p := range parties {
		p.Results = make([]wire.Result, len(p.Asks))
	}
	return parties
}

// Conclude writes what the parties were answered to results, and settles what they took: it is
// kept if all of them allowed, and else given back. One Party alone has settled already.
func Conclude(parties []*Party, results []wire.Result) (err error) {
	allowed := true
	for _, p := range parties {
		err = errors.Join(err, p.Err)
		allowed = allowed && p.allowed()
		for i, at := range p.at {
			results[at] = p.Results[i]
		}
	}
	if len(parties) == 1 {
		return err
	}
	for _, p := range parties {
		if !p.allowed() {
			continue
		}
		if allowed {
			p.Settle(p.kept())
			continue
		}
		p.Settle(p.taken())
		for i, at := range p.at {
			if p.Results[i].Allowed {
				results[at].Remaining += p.Asks[i].Units
			}
		}
	}
	return err
}

// allowed reports whether nothing that the party enforces was denied: it took.
func (p *Party) allowed() bool {
	return p.Err == nil && wire.Allowed(p.Asks, p.Results)
}

// taken is the asks that were allowed, with the receipts of what they took.
func (p *Party) taken() []wire.Ask {
	taken := make([]wire.Ask, 0, len(p.Asks))
	for i, a := range p.Asks {
		if r := &p.Results[i]; r.Allowed {
			taken = append(taken, a.Taken(r))
		}
	}
	return taken
}

// kept is the asks that were allowed and leave too little for as much again: they may
// have denied others. As refunds they give nothing back, and settle what was taken.
func (p *Party) kept() (kept []wire.Ask) {
	for i, a := range p.Asks {
		if r := &p.Results[i]; r.Allowed && r.Remaining < a.Units {
			a = a.Taken(r)
			a.Units = 0
			kept = append(kept, a)
		}
	}
	return kept
}
