package envoylimit

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
)

// item is a descriptor of a request, with a limit and a decision.
type item struct {
	descriptor *ratelimit.RateLimitDescriptor
	limit      *limit                           // the limit in the configuration; nil if no limit matches
	current    *rls.RateLimitResponse_RateLimit // the enforced limit, of the configuration or of the request; nil if there is no limit
	path       string
	limiter    *weir.Limiter // nil for a limit of zero units, and if current is nil
	key        string
	hits       int64
	how        how
	replaced   bool // another limit that applies to the request replaces this limit

	enforced bool // the item can deny the request; false for a shadow limit, and for a quota unless all quotas are used up
	takes    bool // AllowAllInto takes the units of this item, together with those of all such items
	decision weir.Decision
	decided  bool // the field decision is set; it has no Source if the node did not ask the limit
	over     bool // the limit has no room for the item
}

// how is the operation that a descriptor requests.
type how uint8

const (
	take     how = iota // spends all units or no unit
	peek                // asks whether a unit is left
	overdraw            // spends all units if at least one is left
	debit               // spends unconditionally
	refund              // returns units
)

// read finds the limits that apply to the descriptors of a request, and the operation on
// each.
func (s *Service) read(ctx context.Context, req *rls.RateLimitRequest, items []item) ([]item, error) {
	if err := checkBounds(req); err != nil {
		return nil, err
	}
	w := work{ctx: ctx}
	items = slices.Grow(items, len(req.GetDescriptors()))[:len(req.GetDescriptors())]
	now := s.current.Load()
	domain := now.domains[req.GetDomain()]
	if domain != nil {
		if err := checkLength(req); err != nil {
			return nil, err
		}
	}
	replaces := false
	for i, d := range req.GetDescriptors() {
		it := &items[i]
		it.descriptor = d
		if domain == nil {
			continue
		}
		if err := s.readOne(&w, now, domain, req, it); err != nil {
			return nil, err
		}
		replaces = replaces || it.limit != nil && len(it.limit.replaces) > 0
	}
	if replaces {
		replace(items)
	}
	return items, nil
}

func (s *Service) readOne(w *work, now *book, domain *domain, req *rls.RateLimitRequest, it *item) error {
	entries := it.descriptor.GetEntries()
	var room [8]*descriptor
	if err := w.add(len(domain.name) + bytesOf(entries)); err != nil {
		return err
	}
	way, err := domain.find(w, entries, room[:0])
	if err != nil {
		return err
	}
	if len(way) == len(entries) && len(way) > 0 {
		if it.limit = way[len(way)-1].limit; it.limit != nil {
			it.current, it.path, it.limiter = it.limit.current, it.limit.path, now.limiters[it.limit]
		}
	}
	if o := it.descriptor.GetLimit(); o != nil {
		// The limit of the request replaces the numbers of the configuration. If its
		// period is the same, the count is the same.
		if it.limit != nil {
			it.limit = &limit{path: it.path, debit: it.limit.debit, detailed: it.limit.detailed}
		} else {
			it.path = pathOf(domain.name, entries)
		}
		it.current = &rls.RateLimitResponse_RateLimit{
			RequestsPerUnit: o.GetRequestsPerUnit(), Unit: rls.RateLimitResponse_RateLimit_Unit(o.GetUnit()), UnitMultiplier: o.GetUnitMultiplier(),
		}
		it.limiter = nil
		if per, _ := period(it.current); per == 0 {
			return status.Errorf(codes.InvalidArgument, `"limit" has a period of %d times %v: use a known unit, and at most 366 days`, max(1, o.GetUnitMultiplier().GetValue()), o.GetUnit())
		}
		if o.GetRequestsPerUnit() > 0 {
			if it.limiter, err = s.limiter(it.path, it.current); err != nil {
				return refusal(err)
			}
		}
	}
	if it.current == nil {
		return nil
	}
	hits, stated := uint64(max(1, req.GetHitsAddend())), req.GetHitsAddend() > 0
	if h := it.descriptor.GetHitsAddend(); h != nil {
		hits, stated = h.GetValue(), true
	}
	if hits > maxHits {
		return status.Errorf(codes.InvalidArgument, "hits_addend is %d: use at most %d", hits, int64(maxHits))
	}
	it.hits = int64(hits)
	switch {
	case hits == 0:
		it.how = peek
	case it.descriptor.GetIsNegativeHits():
		it.how = refund
	case it.limit != nil && it.limit.debit && stated:
		it.how = debit
	case s.o.DebitMany && hits > 1:
		it.how = overdraw
	}
	var keyRoom [128]byte
	it.key = string(appendKey(keyRoom[:0], entries, way))
	if s.o.OnDecision != nil && it.limit != nil {
		it.path = valuedPath(domain.name, it, entries, way)
	}
	return nil
}

// replace marks the items whose limits are replaced by other limits of the same request.
func replace(items []item) {
	names := make(map[string]bool)
	for i := range items {
		l := items[i].limit
		if l == nil || slices.ContainsFunc(items[:i], func(it item) bool { return it.limit == l }) {
			continue // the names are already in the map
		}
		for _, name := range l.replaces {
			names[name] = true
		}
	}
	for i := range items {
		l := items[i].limit
		items[i].replaced = l != nil && l.name != "" && names[l.name]
	}
}

// pathOf returns the path of a descriptor that is not in the configuration. The path
// contains no values, because their number is not bounded.
func pathOf(domain string, entries []*ratelimit.RateLimitDescriptor_Entry) string {
	parts := append(make([]string, 0, 1+len(entries)), domain)
	for _, e := range entries {
		parts = append(parts, e.GetKey())
	}
	return strings.Join(parts, ".")
}

// valuedPath returns the path of an item, with the values of the request for which the
// configuration has detailed_metric or value_to_metric.
func valuedPath(domain string, it *item, entries []*ratelimit.RateLimitDescriptor_Entry, way []*descriptor) string {
	if !it.limit.detailed && !slices.ContainsFunc(way, func(d *descriptor) bool { return d.valued }) {
		return it.path
	}
	var b strings.Builder
	b.WriteString(domain)
	for i, d := range way {
		b.WriteByte('.')
		if d.shared || !it.limit.detailed && !d.valued {
			b.WriteString(d.label())
			continue
		}
		b.WriteString(d.key)
		if value := entries[i].GetValue(); value != "" {
			b.WriteByte('_')
			b.WriteString(value)
		}
	}
	return b.String()
}

// enforces reports whether an item can deny its request regardless of other items.
func (s *Service) enforces(it *item) bool {
	return !s.o.ShadowMode && (it.limit == nil || !it.limit.shadow && !it.limit.quota)
}

// isQuota reports whether an item denies its request only if all quotas of the request
// are used up.
func (s *Service) isQuota(it *item) bool {
	return !s.o.ShadowMode && it.limit != nil && it.limit.quota
}

// quotasUsedUp reports whether a request has quotas and all of them are known to be used
// up.
func (s *Service) quotasUsedUp(items []item) (all bool) {
	for i := range items {
		if it := &items[i]; s.isQuota(it) && it.canDeny() {
			if !it.over {
				return false
			}
			all = true
		}
	}
	return all
}

// canDeny reports whether the decision of an item may deny the request.
func (it *item) canDeny() bool {
	return it.current != nil && !it.replaced && it.how != refund && (it.how != debit || it.limiter == nil)
}

// decide sets the decisions of the items, and reports whether the request is denied. A
// denied request changes no count, so the operations that can deny it come first: limits
// of zero units, peeks, and then all takes together, which spend on all limits or on no
// limit. Refunds, and debits on limits of more than zero units, cannot deny. They are
// executed once no other item can deny.
func (s *Service) decide(ctx context.Context, items []item) (denied bool, err error) {
	takes, notes := 0, false
	for i := range items {
		it := &items[i]
		it.enforced = s.enforces(it)
		notes = notes || it.how >= overdraw
		if !it.canDeny() {
			continue
		}
		switch tooMany := it.limiter != nil && it.how == take && it.sum(items) > int64(it.current.GetRequestsPerUnit()); {
		case it.limiter == nil: // a limit of zero units
			it.over = true
		case it.how == take && !tooMany:
			it.takes = true
			takes++
		default:
			if err := it.peek(ctx); err != nil {
				return false, err
			}
			it.over = it.over || tooMany
		}
		denied = denied || it.over && it.enforced
	}
	denied = denied || s.quotasUsedUp(items)
	if takes > 0 && !denied {
		if denied, err = s.takeAll(ctx, items, takes); err != nil {
			return false, err
		}
	}
	switch {
	case denied:
		return true, s.conclude(ctx, items)
	case notes:
		return false, debitAndRefund(ctx, items)
	}
	return false, nil
}

// conclude completes the items of a denied request for the response. It peeks at the limits
// that have no decision yet, and marks the quotas as enforced if all of them are used up.
func (s *Service) conclude(ctx context.Context, items []item) error {
	for i := range items {
		it := &items[i]
		if it.limiter != nil && !it.replaced && !it.decided {
			if err := it.peek(ctx); err != nil {
				return err
			}
			it.over = it.over && it.how != refund
		}
	}
	usedUp := s.quotasUsedUp(items)
	for i := range items {
		it := &items[i]
		it.enforced = it.enforced || usedUp && s.isQuota(it)
	}
	return nil
}

// debitAndRefund executes debits and refunds. They continue if the caller goes away,
// because the takes of the request are already spent.
func debitAndRefund(ctx context.Context, items []item) error {
	ctx, cancel := withoutCaller(ctx)
	defer cancel()
	for i := range items {
		it := &items[i]
		if it.limiter == nil || it.replaced {
			continue
		}
		var err error
		switch it.how {
		case debit, overdraw:
			it.decision, err = it.limiter.Debit(ctx, it.key, it.hits)
			it.over = !it.decision.Allowed
		case refund:
			// A refund that timed out may have been applied. That is not an error, and
			// the refund is not retried.
			if err = it.limiter.Refund(ctx, it.key, it.hits); err == nil || errors.Is(err, context.DeadlineExceeded) {
				err = it.peek(ctx)
				it.over = false
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeAll takes the units of all items that request it, and reports whether the request is
// denied.
func (s *Service) takeAll(ctx context.Context, items []item, takes int) (denied bool, err error) {
	var askRoom [8]weir.Ask
	var decisionRoom [8]weir.Decision
	asks, ds := slices.Grow(askRoom[:0], takes), weir.Decisions(decisionRoom[:0])
	must := s.quotaToTake(items)
	for {
		asks = asks[:0]
		for i := range items {
			if it := &items[i]; it.takes {
				asks = append(asks, weir.Ask{Limiter: it.limiter, Key: it.key, Units: it.hits, Shadow: !it.enforced && i != must})
			}
		}
		if ds, err = s.node.AllowAllInto(ctx, asks, ds); err != nil {
			return false, err
		}
		next, answers := -1, ds
		for i := range items {
			it := &items[i]
			if !it.takes {
				continue
			}
			it.decision, answers = answers[0], answers[1:]
			it.decided, it.over = true, !it.decision.Allowed
			denied = denied || it.over && it.enforced
			if next < 0 && i > must && s.isQuota(it) && !it.over {
				next = i
			}
		}
		switch {
		case denied || must < 0 || !items[must].over:
			return denied, nil
		case next < 0:
			return true, nil
		}
		must = next // the next quota, which admitted its take at the previous attempt
	}
}

// quotaToTake returns the index of a quota that must grant its take, because a request is
// denied if all of its quotas deny. The takes of the other quotas are shadows. The index is
// -1 if there is no quota to take, or if another quota was peeked at and has units left.
func (s *Service) quotaToTake(items []item) int {
	first := -1
	for i := range items {
		it := &items[i]
		switch {
		case !s.isQuota(it) || !it.canDeny():
		case !it.takes && !it.over:
			return -1
		case it.takes && first < 0:
			first = i
		}
	}
	return first
}

// peek sets the decision of an item by a check that spends no units.
func (it *item) peek(ctx context.Context) (err error) {
	it.decision, err = it.limiter.Peek(ctx, it.key)
	it.decided = true
	it.over = err == nil && (!it.decision.Allowed || it.how == take && it.decision.Remaining < it.hits)
	return err
}

// sum returns the total units of all takes of a request that spend from the same count as the
// item. A sum above requests_per_unit is never granted.
func (it *item) sum(items []item) int64 {
	sum := it.hits
	for i := range items {
		other := &items[i]
		if other != it && other.how == take && !other.replaced && other.limiter != nil &&
			other.key == it.key && other.limiter.Limit().Name == it.limiter.Limit().Name {
			sum += min(other.hits, math.MaxInt64-sum)
		}
	}
	return sum
}

// isMatched reports whether a descriptor has a limit, or is unlimited by the configuration.
func (it *item) isMatched() bool {
	return it.current != nil || it.limit != nil && it.limit.current == nil
}

// newDecided returns the argument of Options.OnDecision.
func (it *item) newDecided(req *rls.RateLimitRequest) *Decided {
	return &Decided{
		Domain: req.GetDomain(), Path: it.path, Hits: uint64(it.hits), Negative: it.how == refund,
		Over: it.over, Enforced: it.enforced, Decision: it.decision,
	}
}
