package rules

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/strictyaml"
)

// Raise makes nodes suggest higher numbers for keys that the limits of a rule deny steadily.
type Raise struct {
	Denied float64       // higher numbers are suggested if at least this part of the requests of a key is denied
	For    time.Duration // time for which the key must have been denied
	Most   float64       // the suggested numbers are at most this multiple of the numbers in the file
}

const (
	minRaiseFor, maxRaiseFor   = time.Minute, 24 * time.Hour
	minRaiseMost, maxRaiseMost = 1.1, 100
)

// raise reads the raise of a rule.
func (p *parser) raise(r *Rule, v strictyaml.Value, isShadow bool) {
	if !v.Present() {
		return
	}
	m := v.Map(raiseFields...)
	r.Raise = &Raise{
		Denied: partOr(m, "denied", 0.01, 0.1),
		For:    cmp.Or(duration(m.Get("for"), minRaiseFor, maxRaiseFor), 5*time.Minute),
		Most:   cmp.Or(m.Get("most").Float(minRaiseMost, maxRaiseMost), 2),
	}
	refuse(v,
		conflict{isShadow, "raise in a rule with shadow: remove raise or shadow, because a shadow denies nothing"},
		conflict{r.key.isGlobal(), "raise in a rule with key global: remove raise, because one count of all requests has no hot key"},
		conflict{slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.tiers != nil }), "raise in a rule with other numbers for tiers: set multiply: false or remove raise, because the tier of a hot key is not known"})
	p.set.raising = append(p.set.raising, r)
}

// raisedTo returns a number of a limit that covers the demand, which is a multiple of the present number now. The
// result is at most the multiple most of the number in the file, but at least now.
func raisedTo(now, file int64, demand, most float64) int64 {
	return max(now, int64(min(math.Ceil(float64(now)*demand), math.Floor(float64(file)*most), maxRate)))
}
