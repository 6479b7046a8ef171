package rules

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// Suggestion is an override that would end the denials of a hot key.
type Suggestion struct {
	Limit       string
	ID          [16]byte  // weir.Limiter.ID of the key
	Denied      float64   // part of its checks that was denied, in the mean of the last ten minutes
	Since       time.Time // time since which the key is hot, in whole seconds
	Rate, Burst int64     // suggested numbers, as in an Override
}

// hotKey is the published suggestion for a key. It ends unless it is published again.
type hotKey struct {
	Control
	Suggestion
}

// publishedHotKey is the format of a suggestion in the value hot/LIMIT/ID.
type publishedHotKey struct {
	Denied float64 `json:"denied"`
	Since  int64   `json:"since"` // s
	Rate   int64   `json:"rate"`
	Burst  int64   `json:"burst,omitempty"`
	publishedControl
}

const (
	hotPrefix = "hot/"

	seekEvery   = time.Minute // nodes halve the counts of the top keys as often
	seekTimeout = 10 * time.Second
	hotTerm     = 3 * seekEvery
	maxHotKeys  = 20
	topKeys     = 100
	enoughAsks  = 100 // fewer checks of a key show no steady demand
	maxReadings = 10  // of which Denied is the mean
	headroom    = 1.2 // of the suggested numbers above the demand
)

func readHotKey(name string, value []byte) (controlled, error) {
	limit, id, err := readPublishedName(name)
	if err != nil {
		return nil, err
	}
	var p publishedHotKey
	if err := json.Unmarshal(value, &p); err != nil {
		return nil, fmt.Errorf("rules: %s: %w", name, err)
	}
	if p.Rate < 1 || p.Rate > maxRate || p.Burst < 0 || p.Denied < 0 || p.Denied > 1 {
		return nil, fmt.Errorf("rules: %s suggests a rate of %d, a burst of %d and a denied part of %g, which no node does", name, p.Rate, p.Burst, p.Denied)
	}
	return &hotKey{p.control(), Suggestion{limit, id, p.Denied, unixTime(p.Since), p.Rate, p.Burst}}, nil
}

func (h *hotKey) apply(_ *Book, s *Snapshot) {
	if l := s.names[h.Limit]; l != nil && s.ruleOf[l.Index].Raise != nil && len(s.hot) < topKeys {
		s.hot = append(s.hot, h)
	}
}

// seekHotKeys publishes suggestions once a minute, until ctx is done. One node does so for all nodes: the owner
// of the empty key of a limit.
func (b *Book) seekHotKeys(ctx context.Context) {
	tick := time.NewTicker(seekEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s := b.Current()
		if len(s.raising) == 0 || !s.counts[s.raising[0].Limits[0].Index][0].Limiter.Owner("").Self {
			continue
		}
		within, cancel := context.WithTimeout(ctx, seekTimeout)
		top, err := b.node.TopKeys(within, topKeys)
		if err == nil {
			bans, _ := b.node.Bans(within)
			b.suggest(s, top.Denied, bans.Bans)
		}
		cancel()
	}
}

// suggest publishes the suggestions for the hot keys among the most denied keys, and withdraws all others.
func (b *Book) suggest(s *Snapshot, denied []weir.TopKey, bans []weir.BannedKey) {
	hot := make(map[string]bool)
	for i := range denied {
		k := &denied[i]
		isBanned := slices.ContainsFunc(bans, func(of weir.BannedKey) bool { return of.Limit == k.Limit && of.ID == k.ID })
		if found := s.suggestionFor(k, b.now()); found != nil && !isBanned && len(hot) < maxHotKeys {
			name := fmt.Sprintf("%s%s/%x", hotPrefix, k.Limit, k.ID)
			hot[name] = true
			_ = b.publish(name, publishedHotKey{found.Denied, found.Since.Unix(), found.Rate, found.Burst, found.Control.published()}) // the next minute repeats it
		}
	}
	b.withdrawValues(hotPrefix, hot)
}

// suggestionFor returns the suggestion for a key, or nil if the key is not hot, is blocked, or if its rule has
// reduced its numbers because of the responses.
func (s *Snapshot) suggestionFor(k *weir.TopKey, now time.Time) *hotKey {
	l := s.names[k.Limit]
	if l == nil || s.ruleOf[l.Index].Raise == nil || k.Asks < enoughAsks {
		return nil
	}
	r, part, since := s.ruleOf[l.Index], min(1, float64(k.Denials-min(k.Denials, k.DenialsOver))/float64(k.Asks)), now.Truncate(time.Second)
	if i := slices.IndexFunc(s.hot, func(o *hotKey) bool { return o.Limit == l.Name && o.ID == k.ID }); i >= 0 {
		before := s.hot[i]
		if before.Since.Before(since) {
			since = before.Since
		}
		part = before.Denied + (part-before.Denied)/min(maxReadings, 1+max(0, now.Sub(since).Minutes())) // top keys are samples
	}
	isReduced := r.Adapt != nil && float64(s.factors[r.Index]) < math.Round(100*r.Adapt.Max)
	if part < r.Raise.Denied || isReduced || s.modes[r.Index] != Enforce || l.values != nil && (!k.Known || k.Masked) {
		return nil
	}
	if k.Known && cmp.Or(s.KeyBlock(l, k.Key), s.ClientBlock(l, k.Key)) != nil {
		return nil
	}
	file := l.at(s.open).ForKey("", k.Key)
	numbers := s.InForce(l).ForKey("", k.Key)
	if o := s.override(l, k.ID); o != nil {
		numbers = o.count.Limiter.Limit()
		if o.Rate == 0 || numbers.Per != file.Per {
			return nil
		}
	}
	demand := headroom / max(1-part, 1/maxRaiseMost)
	h := &hotKey{Control{At: now, Until: now.Add(hotTerm)}, Suggestion{l.Name, k.ID, part, since,
		raisedTo(numbers.Rate, file.Rate, demand, r.Raise.Most), raisedTo(numbers.Burst, file.Burst, demand, r.Raise.Most)}}
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
			all = append(all, h.Suggestion)
		}
	}
	return all
}
