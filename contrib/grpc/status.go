package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// outageRetry is the minimum RetryInfo of a call that fails because of an outage, whose end is
// not known.
const outageRetry = time.Second

// admit decides on a call or a message, and adds the header fields of the Outcome to f. It
// returns the admission that must end with the call, if there is one, and the error of a
// denied call.
func (l *Limits) admit(ctx context.Context, r *rules.Request, request any, f *fields) (a *admission, err error) {
	o, a := l.judge(ctx, r, request)
	if len(o.Verdicts) == 0 && o.Status == 0 {
		return nil, nil
	}
	if l.o.OnDecision != nil {
		l.o.OnDecision(ctx, r, &o)
	}
	f.add(&o)
	return a, statusOf(&o)
}

// statusOf returns the error for an Outcome, or nil if the call proceeds.
func statusOf(o *httplimit.Outcome) error {
	switch {
	case o.Status == 0:
		return nil
	case errors.Is(o.Err, context.Canceled), errors.Is(o.Err, context.DeadlineExceeded):
		return status.FromContextError(o.Err).Err()
	}
	code, retry, message := codes.ResourceExhausted, max(o.RetryAfter(), time.Millisecond), ""
	var details []protoadapt.MessageV1
	names := `"` + strings.Join(o.Violated(nil), `", "`) + `"`
	switch o.Status {
	case http.StatusTooManyRequests:
		message = fmt.Sprintf("rate limit exceeded (%s): try again in %v", names, retry.Round(time.Millisecond))
		if o.Texts() != nil {
			p := o.Problem()
			if message = p.Detail; p.UpgradeURL != "" {
				details = append(details, &errdetails.Help{Links: []*errdetails.Help_Link{{Description: p.Title, Url: p.UpgradeURL}}})
			}
		}
	case http.StatusRequestEntityTooLarge:
		retry, message = 0, fmt.Sprintf("the call costs more than its limit can ever grant (%s)", names)
	case http.StatusBadRequest:
		code, retry, message = codes.InvalidArgument, 0, o.Err.Error()
	case http.StatusForbidden:
		code, retry, message = codes.PermissionDenied, o.RetryAfter(), "calls of this client are denied"
	default:
		code, retry = codes.Unavailable, max(retry, outageRetry)
		message = fmt.Sprintf("calls cannot be counted at the moment: try again in %v", retry.Round(time.Millisecond))
	}
	if retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	if violations := violationsOf(o); code == codes.ResourceExhausted && len(violations) > 0 {
		details = append(details, &errdetails.QuotaFailure{Violations: violations})
	}
	s, err := status.New(code, message).WithDetails(details...)
	if err != nil {
		return status.Error(code, message)
	}
	return s.Err()
}

// violationsOf returns the limits that deny, without keys, which are private to the
// server.
func violationsOf(o *httplimit.Outcome) (violations []*errdetails.QuotaFailure_Violation) {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.Mode != rules.Enforce || v.Decision.Allowed || v.Decision.Name == "" {
			continue
		}
		l := v.Limiter.Limit()
		violations = append(violations, &errdetails.QuotaFailure_Violation{
			Subject: "limit:" + l.Name, Description: rules.Describe(l), QuotaId: l.Name, QuotaValue: v.Decision.Limit,
		})
	}
	return violations
}

// httpStatus returns the HTTP status of the error of a handler, for rules that count by the
// status. The mapping is that of google.rpc.Code.
func httpStatus(err error) int {
	return cmp.Or(httpStatuses[status.Code(err)], http.StatusInternalServerError)
}

var httpStatuses = map[codes.Code]int{
	codes.OK:                 http.StatusOK,
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unauthenticated:    http.StatusUnauthorized,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.NotFound:           http.StatusNotFound,
	codes.Aborted:            http.StatusConflict,
	codes.AlreadyExists:      http.StatusConflict,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.Canceled:           httplimit.StatusClientGone,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
}
