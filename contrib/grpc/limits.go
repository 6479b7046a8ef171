package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// Options say how Limits read calls and answer them. The zero Options are valid:
// by the connection's address, without users, keys and tiers.
type Options struct {
	// Client is which address a call comes from, the connection's if zero. The
	// header fields that it may trust are looked for in the metadata.
	Client httplimit.ClientAddress

	// User, APIKey and Tier say who calls, by means that cannot be forged, such
	// as what an interceptor before this one has put into the context; empty if
	// it is not known, as when they are nil. They are for New alone. They must not block.
	User, APIKey, Tier func(context.Context) string

	// Key returns the text whose count a call spends from; not ok if the call is not limited.
	// Where it is empty or Key is nil, the call spends from the count of the client's address,
	// of an IPv6 one of its /64. A text that reads as an address has a count of its own, as
	// in httplimit. Key is for ByLimiter alone, because rules have keys of their own. It must
	// not block.
	Key func(context.Context, *rules.Request) (key string, ok bool)

	// Settle reads the cost of a call from a message that it answers, such as a field for
	// usage; not ok if the message does not tell, or below zero. It is called with the
	// response of a call, and with each message that a stream sends, of which the last that
	// tells decides. It is for ByLimiter alone: with it the units of Estimate are spent
	// before the call, and replaced by the cost when it ends. It must not block, nor change
	// the message.
	Settle func(response any) (units int64, ok bool)

	// SettleTrailer is the name of trailer metadata that tells the cost, as a decimal number
	// of 0 or more, alone or beside Settle. The trailer decides if both tell.
	SettleTrailer string

	// Estimate is how many units ByLimiter reserves for a call that Settle or SettleTrailer
	// settles. The request is nil for a stream, whose messages come later. 1 if nil, and if
	// less than 1. It must not block.
	Estimate func(ctx context.Context, request any) int64

	// Messages are asked once for each message that comes on a stream, after
	// the Limits themselves were asked for the stream. None if nil: then a
	// stream costs as much as a call.
	Messages *Limits

	NoMetadata bool // no header metadata, only the status

	// Skip reports whether a full method is not limited, like /grpc.health.v1.Health/Check.
	// Nil: none is.
	Skip func(fullMethod string) bool

	// Logger is warned once of calls without an address, which share one key, as those
	// of a proxy on a Unix socket that is not trusted, and once of calls that told no cost.
	// slog.Default if nil.
	Logger *slog.Logger

	// OnDecision is told what became of each call and message that met a limit,
	// before it goes on or is denied; the Outcome must not be changed. A call whose
	// client is gone has the Status httplimit.StatusClientGone. It must not block.
	OnDecision func(context.Context, *rules.Request, *httplimit.Outcome)
}

// Limits decide on calls. They are safe for concurrent use, and have nothing to
// close.
type Limits struct {
	o         Options
	judge     func(context.Context, *rules.Request, any) (httplimit.Outcome, *admission)
	ends      bool // a call has something until it ends
	unsettled atomic.Bool
}

// New limits calls by the rules of a Book, as httplimit.New does requests. The
// error is weir.ErrInvalid for what is wrong with o.
func New(node *weir.Node, book *rules.Book, o Options) (*Limits, error) {
	m, err := httplimit.New(node, book, httplimit.Options{Client: o.Client, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	switch {
	case o.Key != nil:
		return nil, fmt.Errorf("%w Options.Key: rules have their own keys: use ByLimiter, or leave it nil", weir.ErrInvalid)
	case o.settles() || o.Estimate != nil:
		return nil, fmt.Errorf("%w Options.Settle, SettleTrailer and Estimate: they are for one limit: use ByLimiter, also beside Limits with rules", weir.ErrInvalid)
	}
	if err := o.validMessages(); err != nil {
		return nil, err
	}
	warn := o.warns()
	limits := &Limits{o: o}
	limits.judge = func(ctx context.Context, r *rules.Request, request any) (out httplimit.Outcome, a *admission) {
		if _, endless := request.(message); endless {
			out = m.Check(ctx, r)
		} else {
			var byRules *httplimit.Admission
			if out, byRules = m.BeginCheck(ctx, r); byRules != nil {
				a = &admission{limits: limits, byRules: byRules, ended: panicked}
			}
		}
		warn(ctx, r, &out)
		return out, a
	}
	return limits, nil
}

func (o *Options) settles() bool { return o.Settle != nil || o.SettleTrailer != "" }

// validMessages refuses Messages whose units are given back or settled at an end, and those
// whose own Messages nothing asks.
func (o *Options) validMessages() error {
	switch {
	case o.Messages == nil:
		return nil
	case o.Messages.ends:
		return fmt.Errorf("%w Options.Messages: a message has no end at which its units come back or its cost is known: use another limit for messages", weir.ErrInvalid)
	case o.Messages.o.Messages != nil:
		return fmt.Errorf("%w Options.Messages: a message has no messages: leave Messages out of the Options that these Limits were made with", weir.ErrInvalid)
	}
	return nil
}

// warns returns what warns once of a call that has no address and shares a key.
func (o *Options) warns() func(context.Context, *rules.Request, *httplimit.Outcome) {
	log := cmp.Or(o.Logger, slog.Default())
	var warned atomic.Bool
	return func(ctx context.Context, r *rules.Request, out *httplimit.Outcome) {
		if r.Client.IsValid() || !out.LacksAddress() || !warned.CompareAndSwap(false, true) {
			return
		}
		network := ""
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
			network = p.Addr.Network()
		}
		log.Warn("requests without an address share one key; for a Unix socket use ClientAddress.TrustUnix", "network", network)
	}
}

// ByLimiter limits calls by one limit: each costs one unit of Options.Key's count. Of an
// InFlight limit, a call holds one unit until its handler returns, and a stream also only
// until its client is gone. With Options.Settle or SettleTrailer each costs what it tells.
// The error is weir.ErrInvalid for what is wrong with o.
func ByLimiter(l *weir.Limiter, o Options) (*Limits, error) {
	if l == nil {
		return nil, fmt.Errorf("%w grpclimit.ByLimiter: the Limiter is nil: pass one that Node.Limiter returned", weir.ErrInvalid)
	}
	if err := o.validate(l.Limit()); err != nil {
		return nil, err
	}
	limits := &Limits{o: o, ends: l.Limit().Algorithm == weir.InFlight || o.settles()}
	rule, warn := rules.Single(l.Limit().Name, o.Key != nil, 0), o.warns()
	limits.judge = func(ctx context.Context, r *rules.Request, request any) (out httplimit.Outcome, a *admission) {
		asked := *r
		if o.Key != nil {
			var ok bool
			if asked.User, ok = o.Key(ctx, r); !ok {
				return out, nil
			}
		}
		key, _ := rule.Key(&asked) // an address always stands for a key
		v := httplimit.Verdict{Rule: rule, Limiter: l, Key: key, Units: 1}
		if a, out.Err = limits.ask(ctx, &v, request); errors.Is(out.Err, weir.ErrClosed) {
			if v.Decision = httplimit.Unserved(l.Limit()); v.Decision.Allowed {
				out.Err = nil
			}
		}
		out.Status, out.Verdicts = statusFor(&v, out.Err), []httplimit.Verdict{v}
		warn(ctx, r, &out)
		return out, a
	}
	return limits, nil
}

// validate returns what is wrong with the Options of ByLimiter.
func (o *Options) validate(l weir.Limit) error {
	if err := errors.Join(o.Client.Validate(), o.validMessages()); err != nil {
		return err
	}
	switch {
	case o.User != nil || o.APIKey != nil || o.Tier != nil:
		return fmt.Errorf("%w Options.User, APIKey and Tier: only rules use them: set Key, or call New with rules", weir.ErrInvalid)
	case !o.NoMetadata && strings.ContainsFunc(l.Name, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }):
		return fmt.Errorf("%w grpclimit.ByLimiter: metadata cannot carry the limit's name %q: use letters, digits and spaces, or set Options.NoMetadata", weir.ErrInvalid, l.Name)
	case l.Algorithm == weir.InFlight && o.settles():
		return fmt.Errorf("%w Options.Settle and SettleTrailer: %q is in_flight, whose units come back: use another limit, or leave them out", weir.ErrInvalid, l.Name)
	case o.Estimate != nil && !o.settles():
		return fmt.Errorf("%w Options.Estimate: nothing settles it: set Settle or SettleTrailer, too", weir.ErrInvalid)
	case o.SettleTrailer != "" && !isName(o.SettleTrailer):
		return fmt.Errorf("%w Options.SettleTrailer: %q is not a name of text metadata: use small letters, digits, and the signs - . and _", weir.ErrInvalid, o.SettleTrailer)
	}
	return nil
}

// statusFor is the Status of an Outcome with one Verdict, 0 if the call goes on.
func statusFor(v *httplimit.Verdict, err error) int {
	switch {
	case errors.Is(err, context.Canceled):
		return httplimit.StatusClientGone
	case err != nil || !v.Decision.Allowed && v.Decision.Source == weir.FailedClosed:
		return http.StatusServiceUnavailable
	case v.Decision.Allowed:
		return 0
	case v.Units > rules.Capacity(v.Limiter.Limit()):
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusTooManyRequests
}

// Unary limits calls with one request and one answer.
func (l *Limits) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if l.skips(info.FullMethod) {
			return handler(ctx, request)
		}
		var f *fields
		if !l.o.NoMetadata {
			set := func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }
			of, own, isNew := withFields(ctx, set)
			if f = own; isNew {
				defer f.flush()
				if stream := grpc.ServerTransportStreamFromContext(ctx); stream != nil {
					of = grpc.NewContextWithServerTransportStream(of, &unaryFields{stream, f})
				}
				ctx = of
			}
		}
		a, err := l.admit(ctx, l.request(ctx, info.FullMethod), request, f)
		switch {
		case err != nil:
			return nil, err
		case a == nil:
			return handler(ctx, request)
		}
		defer a.end()
		response, err := handler(a.watch(ctx), request)
		a.returned(ctx, err)
		if err == nil {
			a.sent(response)
		}
		return response, err
	}
}

// Stream limits streams, and their messages where Options.Messages are there. One
// that is denied is the error of the handler's Recv; a handler that goes on all
// the same has the next one judged anew.
func (l *Limits) Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if l.skips(info.FullMethod) {
			return handler(srv, stream)
		}
		ctx := stream.Context()
		var f *fields
		if !l.o.NoMetadata {
			of, own, isNew := withFields(ctx, stream.SetHeader)
			if f = own; isNew {
				defer f.flush()
				ctx, stream = of, &streamFields{stream, of, f}
			}
		}
		a, err := l.admit(ctx, l.request(ctx, info.FullMethod), nil, f)
		if err != nil {
			return err
		}
		if a != nil {
			defer context.AfterFunc(ctx, a.release)() // the client is gone
			defer a.end()
			stream = &endingStream{stream, a}
		}
		if m := l.o.Messages; m != nil && !m.skips(info.FullMethod) {
			stream = &limitedStream{stream, m, m.request(ctx, info.FullMethod)}
		}
		err = handler(srv, stream)
		if a != nil {
			a.returned(ctx, err)
		}
		return err
	}
}

func (l *Limits) skips(method string) bool { return l.o.Skip != nil && l.o.Skip(method) }

// limitedStream asks for each message that comes.
type limitedStream struct {
	grpc.ServerStream
	limits  *Limits
	request *rules.Request // the client of the stream is found once
}

func (s *limitedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	_, err := s.limits.admit(s.Context(), s.request, message{}, nil)
	return err
}

// message stands for a message of a stream, which has no end, in the place of a request.
type message struct{}
