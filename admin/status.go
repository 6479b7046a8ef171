package admin

import (
	"cmp"
	"context"
	"encoding/hex"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/ratelimit"
	"github.com/weir-go/weir/rules"
)

const (
	maxStatusLimits    = 256 // maximum number of limits in a response
	maxConcurrentPeeks = 16  // maximum number of peeks that a request makes at the same time
)

// keyStatus is the response to GET /v1/status. Next is the value of the parameter after for the next page, and
// is empty if there are no more limits.
type keyStatus struct {
	Version uint64        `json:"version"`
	Enabled bool          `json:"enabled"`
	Exempt  bool          `json:"exempt"`
	Tier    string        `json:"tier"`
	Limits  []limitStatus `json:"limits"`
	Next    string        `json:"next,omitempty"`
}

// limitStatus is the state of a count. Soft is the state of its overrun.
type limitStatus struct {
	Name     string          `json:"name"`
	Rule     string          `json:"rule"`
	Key      string          `json:"key"`
	ID       string          `json:"id"`
	Tier     string          `json:"tier"`
	Policy   string          `json:"policy"`
	Shadow   bool            `json:"shadow"`
	Off      bool            `json:"off,omitempty"`
	Blocked  bool            `json:"blocked,omitempty"` // requests with the key are refused
	Owner    string          `json:"owner"`
	Source   string          `json:"source"`
	Banned   bool            `json:"banned,omitempty"`
	Override *overrideAnswer `json:"override,omitempty"`
	Soft     *Left           `json:"soft,omitempty"`
	Left
}

// showLeft converts a decision of l at the time now. Times are rounded up, so that a client that returns
// at the shown time is not too early.
func showLeft(d weir.Decision, l *weir.Limiter, now time.Time) Left {
	at := ratelimit.ResetAt(now, &d, l).Add(time.Millisecond - 1).UTC().Truncate(time.Millisecond)
	return Left{Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, ResetAt: at, RetryAfterS: ratelimit.Seconds(d.RetryAfter)}
}

// statusQuery selects the keys of a status: a whole key, or all keys that consist of known parts of a
// request.
type statusQuery struct {
	key     string
	request rules.Request
	has     []string // known parts of keys; nil for a whole key
}

// keyUnder returns the key under a rule. The result ok is false if a part of the key is not known.
func (q *statusQuery) keyUnder(r *rules.Rule) (key string, ok bool) {
	parts := strings.Split(r.By, "|")
	switch {
	case q.has == nil && !slices.Equal(parts, []string{"global"}):
		return q.key, true
	case slices.ContainsFunc(parts, func(p string) bool { return p != "global" && !slices.Contains(q.has, p) }):
		return "", false
	}
	return r.Key(&q.request)
}

// status returns the state of the keys of a client under all rules of its tier, and spends nothing.
func (a *api) status(r *request) (int, any, error) {
	s := r.rules
	var (
		q           statusQuery
		headers     []string
		after, rule string
	)
	if err := r.parameters(field{name: "key", into: &q.key, most: maxKeyBytes}, field{name: "ip", into: &q.request.Client},
		field{name: "user", into: &q.request.User}, field{name: "api_key", into: &q.request.APIKey},
		field{name: "header", into: &headers}, r.tierField(&q.request.Tier),
		field{name: "rule", into: &rule}, field{name: "after", into: &after},
	); err != nil {
		return 0, nil, err
	}
	if err := q.complete(r.URL.Query().Has("key"), headers); err != nil {
		return 0, nil, err
	}
	peeks, err := q.selectLimits(s, rule, s.Tier(q.request.Tier))
	if err != nil {
		return 0, nil, err
	}
	answer, err := a.peekAll(r, &q.request, peeks, after)
	return http.StatusOK, answer, err
}

// complete checks the query, reads the headers, and sets has.
func (q *statusQuery) complete(hasKey bool, headers []string) error {
	q.request.Header = make(http.Header)
	for _, line := range headers {
		name, value, ok := strings.Cut(line, ":")
		if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); !ok || name == "" {
			return refuse(http.StatusBadRequest, "header is %q: write it like X-Plan: gold", shorten(line))
		}
		q.request.Header.Add(name, strings.TrimSpace(value))
		q.has = append(q.has, "header:"+name)
	}
	for part, has := range map[string]bool{"ip": q.request.Client != netip.Addr{}, "user": q.request.User != "", "api_key": q.request.APIKey != ""} {
		if has {
			q.has = append(q.has, part)
		}
	}
	switch {
	case hasKey && q.has != nil:
		return refuse(http.StatusBadRequest, "key is a whole key: send either key, or the parts of keys (ip, user, api_key, header)")
	case !hasKey && q.has == nil:
		return refuse(http.StatusBadRequest, "name the key: send key, or the parts of keys (ip, user, api_key, header)")
	}
	return nil
}

// statusPeek is a count to peek at.
type statusPeek struct {
	rule  *rules.Rule
	limit *rules.Limit
	key   string
}

// selectLimits returns the counts of the rules that apply to a tier and for which the query has a key. If the
// argument only is not empty, selectLimits considers only the rule with this name, and returns an error if
// there is no such rule.
func (q *statusQuery) selectLimits(s *rules.Snapshot, only, tier string) (peeks []statusPeek, err error) {
	var known []string
	for _, r := range s.Rules() {
		known = append(known, r.Name)
		if only != "" && r.Name != only || !r.ForTier(tier) {
			continue
		}
		key, ok := q.keyUnder(r)
		if !ok {
			continue
		}
		for i := range r.Limits {
			peeks = append(peeks, statusPeek{r, &r.Limits[i], key})
		}
	}
	if only != "" && !slices.Contains(known, only) {
		return nil, refuse(http.StatusNotFound, "there is no rule %q: %s", only, enum.Suggest(only, known))
	}
	return peeks, nil
}

// peek returns the state of the count and of its overrun.
func (p *statusPeek) peek(ctx context.Context, b *rules.Book, s *rules.Snapshot, tier string) (limitStatus, error) {
	count := s.Count(p.limit, tier, p.key)
	hard := count.Limiter
	d, err := hard.Peek(ctx, p.key)
	if err != nil {
		return limitStatus{}, err
	}
	now, id, mode := time.Now(), hard.ID(p.key), s.ModeFor(p.rule, p.key)
	status := limitStatus{
		Name: p.limit.Name, Rule: p.rule.Name, Key: p.key, ID: hex.EncodeToString(id[:]), Tier: tier,
		Policy: rules.Describe(hard.Limit()), Shadow: mode == rules.Shadow, Off: mode == rules.Off, Owner: hard.Owner(p.key).Name, Source: d.Source.String(), Banned: d.Banned,
		Left: showLeft(d, hard, now),
	}
	if block := cmp.Or(s.KeyBlock(p.limit, p.key), s.ClientBlock(p.limit, p.key)); block != nil && mode == rules.Enforce {
		status.Blocked, status.Allowed, status.RetryAfterS = true, false, ratelimit.Seconds(block.TimeLeft(now))
	}
	if o, ok := b.OverrideOf(p.limit.Name, p.key); ok {
		status.Override = showOverride(o)
	}
	if soft := count.Soft; soft != nil {
		d, err := soft.Peek(ctx, p.key)
		if err != nil {
			return limitStatus{}, err
		}
		left := showLeft(d, soft, now)
		status.Soft = &left
	}
	return status, nil
}
