package admin

import (
	"encoding/hex"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// client selects all limits of a client: the limits of rules whose key is only its address, only its user or
// only its API key.
type client struct {
	request rules.Request
	part    string // ip, user or api_key
}

// uncovered is a rule whose key has the part of a client and further parts, so that the client alone does
// not identify a count.
type uncovered struct {
	Rule string `json:"rule"`
	Key  string `json:"key"`
}

// readClient reads the client of a request with the argument read, which is r.parameters or r.body. The request
// may have more fields.
func (r *request) readClient(read func(...field) error, more ...field) (c client, err error) {
	of := &c.request
	if err = read(append([]field{
		{name: "ip", into: &of.Client}, {name: "user", into: &of.User, most: maxKeyBytes}, {name: "api_key", into: &of.APIKey, most: maxKeyBytes}, r.tierField(&of.Tier),
	}, more...)...); err != nil {
		return c, err
	}
	n := 0
	for part, isSet := range map[string]bool{"ip": of.Client != netip.Addr{}, "user": of.User != "", "api_key": of.APIKey != ""} {
		if isSet {
			c.part = part
			n++
		}
	}
	if n != 1 {
		return c, refuse(http.StatusBadRequest, "name the client: send one of ip, user and api_key")
	}
	return c, nil
}

// limits returns the counts of the client under the rules, and the rules that are uncovered.
func (c *client) limits(s *rules.Snapshot) (all []statusPeek, others []uncovered) {
	others = []uncovered{}
	for _, r := range s.Rules() {
		switch parts := strings.Split(r.By, "|"); {
		case !slices.Contains(parts, c.part):
		case len(parts) > 1:
			others = append(others, uncovered{r.Name, r.By})
		default:
			key, _ := r.Key(&c.request) // the request has the only part of the key
			for i := range r.Limits {
				all = append(all, statusPeek{r, &r.Limits[i], key})
			}
		}
	}
	return all, others
}

// clientBlock is the block of a client.
type clientBlock struct {
	Kind   string     `json:"kind"`
	Until  *time.Time `json:"until,omitempty"`
	By     string     `json:"by,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

// clientStatus is the response to GET /v1/clients.
type clientStatus struct {
	keyStatus
	Block      *clientBlock `json:"block,omitempty"`
	NotCovered []uncovered  `json:"not_covered"`
}

// showClient returns the state of all limits of a client, and spends nothing.
func (a *api) showClient(r *request) (int, any, error) {
	var after string
	c, err := r.readClient(r.parameters, field{name: "after", into: &after})
	if err != nil {
		return 0, nil, err
	}
	all, others := c.limits(r.rules)
	answer := clientStatus{NotCovered: others}
	if b := r.rules.Block(&c.request); b != nil {
		shown := showControl(&b.Control)
		answer.Block = &clientBlock{b.Kind.String(), shown.Until, shown.By, shown.Reason}
	}
	answer.keyStatus, err = a.peekAll(r, &c.request, all, after)
	return http.StatusOK, answer, err
}

// clientAnswer names the limits of a client that an operation has changed.
type clientAnswer struct {
	Limits     []string    `json:"limits"`
	NotCovered []uncovered `json:"not_covered"`
	NotReached []string    `json:"not_reached,omitempty"`
}

// resetClient deletes all counts of a client. An in_flight limit has none.
func (a *api) resetClient(r *request) (int, any, error) {
	c, err := r.readClient(r.parameters)
	if err != nil {
		return 0, nil, err
	}
	var (
		all       []statusPeek
		answer    = clientAnswer{Limits: []string{}}
		mu        sync.Mutex // protects NotReached
		resetting errgroup.Group
	)
	all, answer.NotCovered = c.limits(r.rules)
	resetting.SetLimit(maxConcurrentPeeks)
	for _, p := range all {
		if p.limit.InFlight() {
			continue
		}
		answer.Limits = append(answer.Limits, p.limit.Name)
		resetting.Go(func() error {
			missed, err := a.resetCount(r, p.limit.Name, p.key)
			mu.Lock()
			defer mu.Unlock()
			answer.NotReached = append(answer.NotReached, missed...)
			return err
		})
	}
	if err := resetting.Wait(); err != nil {
		return 0, nil, err
	}
	slices.Sort(answer.NotReached)
	if answer.NotReached = slices.Compact(answer.NotReached); len(answer.NotReached) > 0 {
		return http.StatusMultiStatus, answer, nil
	}
	return http.StatusOK, answer, nil
}

// overrideClient sets an override for each limit of a client: the numbers of the rules for its key and tier,
// times a factor. If one of the overrides is not valid, overrideClient sets none.
func (a *api) overrideClient(r *request) (int, any, error) {
	var (
		factor float64
		like   rules.Override
	)
	c, err := r.readClient(r.body, append([]field{{name: "multiply", into: &factor, required: true, most: maxMultiply}}, r.controlFields(&like.Control)...)...)
	if err != nil {
		return 0, nil, err
	}
	var wrong faults
	all, others := c.limits(r.rules)
	overrides := make([]rules.Override, len(all))
	for i, p := range all {
		l := p.limit.ForKey(c.request.Tier, p.key)
		overrides[i] = multiply(like, l, factor)
		var of faults
		of.checkNumbers(l, overrides[i])
		for _, problem := range of {
			wrong.add("%s: %s", p.limit.Name, problem)
		}
	}
	if err := wrong.err(); err != nil {
		return 0, nil, err
	}
	answer := clientAnswer{Limits: []string{}, NotCovered: others}
	for i, p := range all {
		if err := a.book.Override(p.limit.Name, p.key, overrides[i]); err != nil {
			return 0, nil, err
		}
		id := r.rules.Limiter(p.limit, "", p.key).ID(p.key)
		a.log.Info("an operator set an override", controlAttributes(&like.Control, r, "limit", p.limit.Name, "id", hex.EncodeToString(id[:]), "rate", overrides[i].Rate)...)
		answer.Limits = append(answer.Limits, p.limit.Name)
	}
	return http.StatusOK, answer, nil
}

const maxMultiply = 1_000_000 // also the maximum of multiply for a tier of the rules

// multiply returns an override with the numbers of a limit times a factor, rounded like the
// numbers of a tier.
func multiply(o rules.Override, l weir.Limit, factor float64) rules.Override {
	if factor == 0 {
		return o
	}
	times := func(n int64) int64 { return max(1, int64(min(float64(n)*factor, maxUnits))) }
	if o.Rate = times(l.Rate); l.Burst > 0 {
		o.Burst = times(l.Burst)
	}
	if l.Algorithm != weir.InFlight && l.Calendar == weir.NoCalendar {
		o.Per = l.Per
	}
	return o
}

// restoreClient removes the overrides of all limits of a client.
func (a *api) restoreClient(r *request) (int, any, error) {
	c, err := r.readClient(r.parameters)
	if err != nil {
		return 0, nil, err
	}
	all, others := c.limits(r.rules)
	answer := clientAnswer{Limits: []string{}, NotCovered: others}
	for _, p := range all {
		if _, ok := a.book.OverrideOf(p.limit.Name, p.key); !ok {
			continue
		}
		id := r.rules.Limiter(p.limit, "", p.key).ID(p.key)
		if err := a.book.RestoreID(p.limit.Name, id); err != nil {
			return 0, nil, err
		}
		a.log.Info("an operator removed an override", "limit", p.limit.Name, "id", hex.EncodeToString(id[:]), "client", r.by, "addr", r.RemoteAddr)
		answer.Limits = append(answer.Limits, p.limit.Name)
	}
	return http.StatusOK, answer, nil
}

// peekAll returns the state of the first maxStatusLimits counts of a client that follow the limit in the
// argument after. That is the last limit of the previous response, or empty for the first response.
func (a *api) peekAll(r *request, of *rules.Request, peeks []statusPeek, after string) (answer keyStatus, err error) {
	s := r.rules
	answer = keyStatus{Version: s.Version(), Enabled: s.Enabled(), Exempt: s.Exempt(of), Tier: s.Tier(of.Tier)}
	if after != "" {
		l, err := findLimit(s, after)
		if err != nil {
			return answer, err
		}
		peeks = slices.DeleteFunc(peeks, func(p statusPeek) bool { return p.limit.Index <= l.Index })
	}
	if len(peeks) > maxStatusLimits {
		peeks = peeks[:maxStatusLimits]
		answer.Next = peeks[maxStatusLimits-1].limit.Name
	}
	answer.Limits = make([]limitStatus, len(peeks))
	var looking errgroup.Group
	looking.SetLimit(maxConcurrentPeeks)
	for i := range peeks {
		looking.Go(func() (err error) {
			answer.Limits[i], err = peeks[i].peek(r.Context(), a.book, s, answer.Tier)
			return err
		})
	}
	return answer, looking.Wait()
}

// resetCount deletes the count of a key, and its count in the overrun of the rule. It returns the members
// that were not reached.
func (a *api) resetCount(r *request, limit, key string) (notReached []string, err error) {
	limiters, err := a.findLimiters(limit, key)
	if err == nil {
		err = r.checkKind(limiters[0].Limit())
	}
	if err != nil {
		return nil, err
	}
	for _, l := range limiters {
		missed, err := reset(r.Context(), l, l.ID(key))
		if err != nil {
			return nil, err
		}
		notReached = append(notReached, missed...)
	}
	slices.Sort(notReached)
	notReached = slices.Compact(notReached)
	id := limiters[0].ID(key)
	a.log.Info("an operator reset a count", "limit", limit, "id", hex.EncodeToString(id[:]), "not_reached", notReached, "client", r.by, "addr", r.RemoteAddr)
	return notReached, nil
}
