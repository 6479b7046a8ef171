package rules

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// Suggestion is an override that would reduce the denials of a hot key.
type Suggestion struct {
	Control           // set by the last reading: the Suggestion ends at Until unless it is published again
	Limit   string    `json:"-"`
	ID      [16]byte  `json:"-"`               // weir.Limiter.ID of the key
	Denied  float64   `json:"denied"`          // part of its checks that was denied, in the mean of the last ten minutes
	Since   time.Time `json:"since"`           // time since which the key is hot, in whole seconds
	Rate    int64     `json:"rate"`            // suggested number, as in an Override
	Burst   int64     `json:"burst,omitempty"` // suggested number, as in an Override
}

const (
	hotPrefix = "hot/" // the name of the limit, a slash and the ID follow

	seekEvery   = time.Minute // equals the time after which nodes halve the counts of the top keys
	seekTimeout = 10 * time.Second
	hotTerm     = 3 * seekEvery
	maxHotKeys  = 20
	topKeys     = 100
	enoughAsks  = 100 // minimum number of checks of a key: fewer checks show no steady demand
	maxReadings = 10  // Denied is the mean of about this number of readings
	headroom    = 1.2 // the suggested numbers are this multiple of the demand
)

func (h *Suggestion) setName(name string) error {
	if h.Rate < 1 || h.Rate > maxRate || h.Burst < 0 || h.Denied < 0 || h.Denied > 1 {
		return fmt.Errorf("rules: the suggestion %q is invalid: no node suggests a rate of %d, a burst of %d and a denied part of %g", name, h.Rate, h.Burst, h.Denied)
	}
	return cutID(name, &h.Limit, &h.ID)
}

func (h *Suggestion) apply(_ *Book, s *Snapshot) {
	if l := s.names[h.Limit]; l != nil && s.ruleOf[l.Index].Raise != nil && len(s.hot) < topKeys {
		s.hot = append(s.hot, h)
	}
}

// seekHotKeys publishes suggestions, and returns the time until the next call: a minute, or 0 if no rule has Raise.
// One node publishes for all nodes: the owner of the empty key of the first limit of the first rule with Raise.
func (b *Book) seekHotKeys(ctx context.Context) time.Duration {
	s := b.Current()
	if len(s.raising) == 0 {
		return 0
	}
	if s.Limiter(&s.raising[0].Limits[0], "", "").Owner("").Self {
		within, cancel := context.WithTimeout(ctx, seekTimeout)
		defer cancel()
		if top, err := b.node.TopKeys(within, topKeys); err == nil {
			bans, _ := b.node.Bans(within)
			b.suggest(s, top.Denied, bans.Bans)
		}
	}
	return seekEvery
}

// suggest publishes the suggestions for the hot keys among the most denied keys, and withdraws all others.
func (b *Book) suggest(s *Snapshot, denied []weir.TopKey, bans []weir.BannedKey) {
	hot := make(map[string]bool)
	for i := range denied {
		k := &denied[i]
		isBanned := slices.ContainsFunc(bans, func(of weir.BannedKey) bool { return of.Limit == k.Limit && of.ID == k.ID })
		if found := s.suggestionFor(k, b.now().UTC().Truncate(time.Second)); found != nil && !isBanned && len(hot) < maxHotKeys {
			name := fmt.Sprintf("%s%s/%x", hotPrefix, k.Limit, k.ID)
			hot[name] = true
			_ = b.publish(name, found) // the next minute repeats it
		}
	}
	b.withdrawValues(hotPrefix, hot)
}

// suggestionFor returns the suggestion for a key of an enforced rule with Raise. It returns nil in these cases:
//   - The key is not hot, or is known to be blocked.
//   - The factor of the rule is below its maximum because of the responses.
//   - The limit has other numbers for some keys, and the text of this key is not known.
//   - The override of the key has Rate 0 or a different Per.
//   - The Rate is as high as Raise permits.
func (s *Snapshot) suggestionFor(k *weir.TopKey, now time.Time) *Suggestion {
	l := s.names[k.Limit]
	if l == nil || s.ruleOf[l.Index].Raise == nil || k.Asks < enoughAsks {
		return nil
	}
	r, part, since := s.ruleOf[l.Index], min(1, float64(k.Denials-min(k.Denials, k.DenialsOver))/float64(k.Asks)), now
	if i := slices.IndexFunc(s.hot, func(o *Suggestion) bool { return o.Limit == l.Name && o.ID == k.ID }); i >= 0 {
		before := s.hot[i]
		if before.Since.Before(since) {
			since = before.Since
		}
		part = before.Denied + (part-before.Denied)/min(maxReadings, 1+max(0, now.Sub(since).Minutes())) // top keys are samples
	}
	isReduced := r.Adapt != nil && float64(s.factorOf(r)) < math.Round(100*r.Adapt.Max)
	if part < r.Raise.Denied || isReduced || s.modes[r.Index] != Enforce || l.values != nil && (!k.Known || k.Masked) {
		return nil
	}
	if k.Known && cmp.Or(s.KeyBlock(l, k.Key), s.ClientBlock(l, k.Key)) != nil {
		return nil
	}
	file := l.withWindows(s.open).ForKey("", k.Key)
	numbers := s.InForce(l).ForKey("", k.Key)
	if o := s.override(l, k.ID); o != nil {
		numbers = o.count.Limiter.Limit()
		if o.Rate == 0 || numbers.Per != file.Per {
			return nil
		}
	}
	demand := headroom / max(1-part, 1/maxRaiseMost)
	h := &Suggestion{Control{At: now, Until: now.Add(hotTerm)}, l.Name, k.ID, part, since,
		raisedTo(numbers.Rate, file.Rate, demand, r.Raise.Most), raisedTo(numbers.Burst, file.Burst, demand, r.Raise.Most)}
	if h.Rate <= numbers.Rate {
		return nil
	}
	return h
}

// Suggestions returns the suggestions for all keys that have been hot for the time in Raise, in the order of
// their published names. An override ends the earlier suggestions for its key.
func (b *Book) Suggestions() (all []Suggestion) {
	s, now := b.Current(), b.now()
	for _, h := range s.hot {
		l := s.names[h.Limit]
		if o := s.override(l, h.ID); o != nil && o.At.After(h.At) {
			continue
		}
		if now.Sub(h.Since) >= s.ruleOf[l.Index].Raise.For && !h.isPast(now) {
			all = append(all, *h)
		}
	}
	return all
}
