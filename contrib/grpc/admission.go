package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// admission is the state of an admitted call: a hold, a reservation, or an Admission by
// rules.
type admission struct {
	limits      *Limits
	hold        *weir.Hold
	reservation *weir.Reservation
	told        atomic.Int64 // cost in the last message with a cost, plus 1; 0 if no message had a cost
	trailer     atomic.Int64 // cost in the trailer, plus 1; 0 if the trailer has no cost

	byRules  *httplimit.Admission
	ended    httplimit.Ended // the result with which byRules ends
	mu       sync.Mutex
	trailers http.Header // trailer metadata for byRules, protected by mu
}

// panicked is the result of a call whose handler panics.
var panicked = httplimit.Ended{Status: http.StatusInternalServerError, Aborted: true}

// recordResult records the result of the handler.
func (a *admission) recordResult(ctx context.Context, err error) {
	if a.ended = (httplimit.Ended{Status: httpStatus(err)}); ctx.Err() != nil { // the client has left
		a.ended = httplimit.Ended{Aborted: true}
	}
}

// ask asks the limit of ByLimiter. The admission is nil if the call is denied, or if the call
// has neither a hold nor a reservation.
func (l *Limits) ask(ctx context.Context, v *httplimit.Verdict, request any) (a *admission, err error) {
	switch {
	case v.Limiter.Limit().Algorithm == weir.InFlight:
		var h *weir.Hold
		h, err = v.Limiter.Hold(ctx, v.Key, v.Units)
		v.Decision, a = h.Decision(), &admission{limits: l, hold: h}
	case l.ends:
		if l.o.Estimate != nil {
			v.Units = max(1, l.o.Estimate(ctx, request))
		}
		if most := rules.Capacity(v.Limiter.Limit()); v.Units > most { // Reserve would return an error
			v.Decision = weir.Decision{Name: v.Rule.Name, Limit: most, Source: weir.Owner}
			return nil, nil
		}
		var reservation *weir.Reservation
		reservation, err = v.Limiter.Reserve(ctx, v.Key, v.Units)
		v.Decision, a = reservation.Decision(), &admission{limits: l, reservation: reservation}
	default:
		v.Decision, err = v.Limiter.Allow(ctx, v.Key)
	}
	if err != nil || !v.Decision.Allowed {
		return nil, err
	}
	return a, nil
}

// release releases the hold, and may be called more than once.
func (a *admission) release() {
	if a.hold != nil {
		a.hold.Release()
	}
}

// end releases the hold, ends the admission by rules, and settles the reservation. If no cost of
// the call was reported, the estimate stays spent.
func (a *admission) end() {
	a.release()
	if a.byRules != nil {
		a.mu.Lock()
		a.ended.Header, a.trailers = a.trailers, nil
		a.mu.Unlock()
		a.byRules.End(a.ended)
	}
	if a.reservation == nil {
		return
	}
	err := errUntold
	if told := cmp.Or(a.trailer.Load(), a.told.Load()); told > 0 {
		err = a.reservation.Settle(context.Background(), told-1) // does not wait for a response
	}
	if err != nil && a.limits.unsettled.CompareAndSwap(false, true) {
		cmp.Or(a.limits.o.Logger, slog.Default()).Warn("units that a request did not use stay spent", "limit", a.reservation.Decision().Name, "error", err)
	}
}

var errUntold = errors.New("grpclimit: neither a message nor the trailer had the cost")

// recordMessage records the cost that a message reports.
func (a *admission) recordMessage(message any) {
	if a.limits.o.Settle == nil {
		return
	}
	if units, ok := a.limits.o.Settle(message); ok && 0 <= units && units < math.MaxInt64 {
		a.told.Store(units + 1)
	}
}

// recordTrailer records the cost that trailer metadata reports.
func (a *admission) recordTrailer(md metadata.MD) {
	if a.byRules != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.trailers == nil {
			a.trailers = make(http.Header)
		}
		maps.Copy(a.trailers, headerOf(md))
	}
	values := md.Get(a.limits.o.SettleTrailer)
	if a.limits.o.SettleTrailer == "" || len(values) == 0 {
		return
	}
	if units, err := strconv.ParseInt(values[len(values)-1], 10, 63); err == nil && units >= 0 {
		a.trailer.Store(units + 1)
	}
}

// isName reports whether name is valid for text metadata.
func isName(name string) bool {
	return !strings.HasSuffix(name, "-bin") && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	})
}

// watch returns the context for the handler of a unary call. If the trailer of the call may have
// a cost, recordTrailer receives the trailer that the handler sets.
func (a *admission) watch(ctx context.Context) context.Context {
	if stream := grpc.ServerTransportStreamFromContext(ctx); stream != nil && (a.byRules != nil || a.limits.o.SettleTrailer != "") {
		return grpc.NewContextWithServerTransportStream(ctx, &trailerStream{stream, a})
	}
	return ctx
}

// trailerStream is the stream of a unary call whose trailer is recorded.
type trailerStream struct {
	grpc.ServerTransportStream
	a *admission
}

// SetTrailer records the cost that the metadata reports, and sets the metadata as the trailer.
func (s *trailerStream) SetTrailer(md metadata.MD) error {
	s.a.recordTrailer(md)
	return s.ServerTransportStream.SetTrailer(md)
}

// endingStream records the cost of a stream, and the time at which its first message is sent.
type endingStream struct {
	grpc.ServerStream
	a *admission
}

// SendMsg sends a message, and records the reported cost.
func (s *endingStream) SendMsg(m any) error {
	s.a.byRules.RecordResponse(http.StatusOK)
	s.a.recordMessage(m)
	return s.ServerStream.SendMsg(m)
}

// SetTrailer records the cost that the metadata reports, and sets the metadata as the trailer.
func (s *endingStream) SetTrailer(md metadata.MD) {
	s.a.recordTrailer(md)
	s.ServerStream.SetTrailer(md)
}
