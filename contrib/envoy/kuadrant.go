package envoylimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/envoy/kuadrant"
)

// kuadrantServer is Kuadrant's rate limit service. The descriptors, limits and counts are
// those of Envoy's service.
type kuadrantServer struct {
	kuadrant.UnimplementedRateLimitServiceServer
	of *Service
}

// CheckRateLimit reports whether each limit has a unit left, and spends no units.
func (k *kuadrantServer) CheckRateLimit(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return k.of.answer(ctx, req, checked)
}

// Report debits the hits, and denies only a request that is too large to be decided.
func (k *kuadrantServer) Report(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return k.of.answer(ctx, req, reported)
}

// check reports whether the request is denied, because a limit has no unit left. It spends no
// units.
func (s *Service) check(ctx context.Context, items []item) (denied bool, err error) {
	for i := range items {
		items[i].how, items[i].hits = peek, 0
	}
	return s.decide(ctx, items)
}

// report executes refunds, and debits the hits of all other items.
func (s *Service) report(ctx context.Context, items []item) error {
	for i := range items {
		it := &items[i]
		it.enforced, it.over = s.enforces(it), it.current != nil && it.limiter == nil
		if it.how != refund && it.hits > 0 {
			it.how = debit
		}
	}
	return debitAndRefund(ctx, items)
}

// Reserve spends the amount on all limits or on no limit. An amount of 0 only asks
// whether a unit is left. If the amount is not committed within the ttl of the request, the
// limits get it back. This does not apply to a ttl of maxTTL or more, and not while
// maxReleases other releases are pending.
func (k *kuadrantServer) Reserve(ctx context.Context, req *kuadrant.ReserveRequest) (*kuadrant.ReserveResponse, error) {
	s, request := k.of, &rls.RateLimitRequest{Domain: req.GetDomain(), Descriptors: req.GetDescriptors()}
	ttl, err := ttlOf(req.GetTtl())
	if err != nil {
		return nil, refusal(err)
	}
	items, err := s.readAmount(ctx, request, "amount", req.GetAmount())
	switch {
	case errors.Is(err, errTooLarge):
		return &kuadrant.ReserveResponse{Code: s.respondTooLarge(request, err).GetOverallCode()}, nil
	case err != nil:
		return nil, err
	}
	if r := s.respondBlocked(request, items); r.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
		return &kuadrant.ReserveResponse{Code: r.GetOverallCode()}, nil
	}
	ctx, cancel := withinTime(ctx, len(items))
	defer cancel()
	denied, id := false, ""
	if req.GetAmount() == 0 {
		denied, err = s.check(ctx, items)
	} else {
		denied, id, err = s.reserve(ctx, items, ttl)
	}
	if err != nil {
		return nil, refusal(err)
	}
	s.reportDecisions(ctx, request, items)
	if denied {
		return &kuadrant.ReserveResponse{Code: rls.RateLimitResponse_OVER_LIMIT}, nil
	}
	return &kuadrant.ReserveResponse{Code: rls.RateLimitResponse_OK, ReservationId: id}, nil
}

// readAmount is like read, but each item takes the given amount of hits.
func (s *Service) readAmount(ctx context.Context, req *rls.RateLimitRequest, field string, amount uint64) ([]item, error) {
	if amount > maxHits {
		return nil, status.Errorf(codes.InvalidArgument, "%s is %d: use at most %d", field, amount, int64(maxHits))
	}
	items, err := s.read(ctx, req, nil)
	if err != nil {
		return nil, err
	}
	for i := range items {
		items[i].how, items[i].hits = take, int64(amount)
	}
	return items, nil
}

// reserve reserves units for all items that can spend, or for no item if the request is
// denied. The id has the texts of all reservations. A shadow limit does not deny, and
// neither does a quota while another quota has units left.
func (s *Service) reserve(ctx context.Context, items []item, ttl time.Duration) (denied bool, id string, err error) {
	var all []*weir.Reservation // nil for an item without reserved units
	for i := range items {
		it := &items[i]
		it.enforced = s.enforces(it)
		if !it.canDeny() {
			continue
		}
		if it.limiter == nil {
			it.over = true
		} else {
			var v *weir.Reservation
			v, err = it.reserve(ctx, items)
			all = append(all, v)
		}
		if denied = it.over && it.enforced; denied || err != nil {
			break
		}
	}
	denied = denied || s.quotasUsedUp(items)
	texts, reserved := make([]string, len(all)), false
	for i, v := range all {
		switch {
		case v == nil:
		case denied || err != nil:
			_ = v.Cancel(context.WithoutCancel(ctx)) // if Cancel fails, the estimate stays spent
		default:
			texts[i], reserved = v.Text(), true
		}
	}
	if reserved {
		id = strings.Join(texts, textSeparator)
		if ttl > 0 && ttl < maxTTL {
			id = withDeadline(id, time.Now().Add(ttl))
			s.releases.add(id, all, ttl)
		}
	}
	return denied, id, err
}

// reserve reserves the hits of an item. The Reservation is nil if the limit denies.
func (it *item) reserve(ctx context.Context, items []item) (*weir.Reservation, error) {
	if it.sum(items) > int64(it.current.GetRequestsPerUnit()) {
		err := it.peek(ctx)
		it.over = true
		return nil, err
	}
	limiter := it.limiter
	if !it.enforced {
		limiter = limiter.Shadow()
	}
	v, err := limiter.Reserve(ctx, it.key, it.hits)
	it.decision, it.decided = v.Decision(), true
	if it.over = !it.decision.Allowed; it.over {
		return nil, err
	}
	return v, err
}

// textSeparator separates the texts of a reservation_id. There is a text for each limit from
// which a request can spend, in the order of the descriptors. The text is empty for a limit
// without reserved units.
const textSeparator = "."

// Commit settles the reservations that Reserve returned for the same descriptors. Without
// a reservation_id, Commit debits the amount, like Report. If the reservation has been
// released after its ttl, Commit also debits the amount.
func (k *kuadrantServer) Commit(ctx context.Context, req *kuadrant.CommitRequest) (*kuadrant.CommitResponse, error) {
	s, request := k.of, &rls.RateLimitRequest{Domain: req.GetDomain(), Descriptors: req.GetDescriptors()}
	items, err := s.readAmount(ctx, request, "actual_amount", req.GetActualAmount())
	if err != nil {
		if errors.Is(err, errTooLarge) {
			err = status.Error(codes.InvalidArgument, err.Error())
		}
		return nil, err
	}
	ctx, cancel := withinTime(ctx, len(items))
	defer cancel()
	if req.GetReservationId() != "" {
		texts, overdue := cutDeadline(req.GetReservationId(), time.Now())
		settled, err := settle(ctx, items, texts, overdue)
		if err != nil {
			return nil, refusal(err)
		}
		s.releases.remove(req.GetReservationId())
		return &kuadrant.CommitResponse{ReservationReleased: settled}, nil
	}
	if err := s.report(ctx, items); err != nil {
		return nil, refusal(err)
	}
	s.reportDecisions(ctx, request, items)
	return new(kuadrant.CommitResponse), nil
}

// settle settles the reservations of an id with the hits of the items. If a reservation has
// expired or was settled before, settle still settles the other reservations: the windows
// of limits end at different times, and a client without a response retries. If all
// reservations have expired or were settled before, settle returns the error of one of them.
//
// If overdue is set, the ttl has passed. In that case, settle treats a reservation that was
// settled before as a released reservation, and debits its cost.
func settle(ctx context.Context, items []item, id string, overdue bool) (settled bool, err error) {
	texts := strings.SplitN(id, textSeparator, maxDescriptors+1)
	open := make([]*weir.Reservation, len(items))
	debits := []*item{} // items without a reservation, or with a released reservation
	var tooLate error
	for i := range items {
		it := &items[i]
		if it.limiter == nil || it.replaced {
			continue
		}
		if len(texts) == 0 {
			return false, errOtherDescriptors
		}
		text := texts[0]
		texts = texts[1:]
		if text == "" {
			debits = append(debits, it)
			continue
		}
		if open[i], err = it.limiter.OpenReservation(it.key, text); errors.Is(err, weir.ErrExpired) {
			open[i], tooLate = nil, err
		} else if err != nil {
			return false, err
		}
	}
	if len(texts) > 0 {
		return false, errOtherDescriptors
	}
	ctx, cancel := withoutCaller(ctx)
	defer cancel()
	late := false
	for i, v := range open {
		if v == nil {
			continue
		}
		switch err := v.Settle(ctx, items[i].hits); {
		case err == nil:
			settled = true
		case errors.Is(err, weir.ErrSettled) && overdue:
			debits, late = append(debits, &items[i]), true
		case errors.Is(err, weir.ErrSettled), errors.Is(err, weir.ErrExpired):
			tooLate = err
		default:
			return settled, err
		}
	}
	if !settled && !late {
		return false, tooLate
	}
	for _, it := range debits {
		if it.hits > 0 {
			if _, err := it.limiter.Debit(ctx, it.key, it.hits); err != nil {
				return settled, err
			}
		}
	}
	return settled, nil
}

// errOtherDescriptors is the error for an id that has more or fewer texts than the request has
// limits from which it can spend.
var errOtherDescriptors = fmt.Errorf("%w reservation_id: the ID belongs to other descriptors: send the descriptors of its Reserve", weir.ErrInvalid)

var errNegativeTTL = fmt.Errorf("%w ttl: the duration is negative or malformed: use 0 or more, or leave ttl out", weir.ErrInvalid)
