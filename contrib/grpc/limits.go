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

// Options configure how Limits read calls and respond. The zero Options are valid: they
// use the address of the connection, and no users, keys or tiers.
type Options struct {
	// Client determines the client address of a call; the zero value uses the address of
	// the connection. Trusted header fields are read from the metadata.
	Client httplimit.ClientAddress

	// User, APIKey and Tier identify the caller. The source must not be forgeable, such as
	// a value that an earlier interceptor has put into the context. They return "" if the
	// value is not known. A nil function stands for a value that is never known. Only New
	// uses the functions. They must not block.
	User, APIKey, Tier func(context.Context) string

	// Claim returns a validated claim of a call, or the empty string if there is none. Keys of rules name
	// claims, as claim:org. Only New uses Claim. Claim must not block.
	Claim func(ctx context.Context, name string) string

	// Critical reports whether a call may spend the kept units of all its limits
	// (weir.Limit.Keep). The source must not be forgeable. Critical must not block.
	Critical func(context.Context) bool

	// Key returns the key of the count from which a call spends; ok is false if the call is
	// not limited. If key is empty or Key is nil, the call spends from the count of the
	// client address, or for IPv6 of its /64. A key that looks like an address has another
	// count than that address, as in httplimit. Only ByLimiter uses Key, because rules have
	// their own keys. Key must not block.
	Key func(context.Context, *rules.Request) (key string, ok bool)

	// Settle returns the cost of a call from a response message, such as a usage field.
	// The message has no cost if ok is false or the cost is negative. Settle is called
	// with the response of a call, and with each message that a stream sends; the last
	// message with a cost determines the cost. Only ByLimiter uses Settle: the units of
	// Estimate are spent before the call, and replaced by the cost when the call ends.
	// Settle must not block or change the message.
	Settle func(response any) (units int64, ok bool)

	// SettleTrailer is the name of the trailer metadata that has the cost, a decimal number
	// of 0 or more. SettleTrailer may be combined with Settle. If both give a cost, the cost
	// in the trailer is used.
	SettleTrailer string

	// Estimate returns the units that ByLimiter reserves for a call with Settle or
	// SettleTrailer. The request is nil for a stream, because its messages arrive later.
	// The estimate is 1 if Estimate is nil or returns less than 1. Estimate must not
	// block.
	Estimate func(ctx context.Context, request any) int64

	// Messages limits each message that arrives on a stream, in addition to the limits of
	// the stream itself. If nil, messages are not limited, and a stream costs as much as
	// a call.
	Messages *Limits

	NoMetadata bool // if true, the server sends the status but no header metadata

	// Skip reports whether the calls of a full method, such as /grpc.health.v1.Health/Check,
	// are not limited. If nil, all methods are limited.
	Skip func(fullMethod string) bool

	// Logger receives a single warning about calls without an address, because they share a
	// key: for example, the calls of a proxy on a Unix socket that is not trusted. It also
	// receives warnings about calls whose cost is not reported or not settled: a single one
	// from ByLimiter, and from New at a limited rate. slog.Default if nil.
	Logger *slog.Logger

	// OnDecision is called with the Outcome of each call that is subject to a limit, or that
	// is refused without a limit, for example by a Block. For a message, the OnDecision of the
	// Options of Messages is called. The call or message proceeds, or is denied, after
	// OnDecision has returned. A call whose client is gone has the Status
	// httplimit.StatusClientGone. OnDecision must not block, or change the Outcome.
	OnDecision func(context.Context, *rules.Request, *httplimit.Outcome)
}

// Limits decide on calls. They are safe for concurrent use, and do not need to be closed.
type Limits struct {
	o         Options
	judge     func(context.Context, *rules.Request, any) (httplimit.Outcome, *admission) // decides on a call or a message
	ends      bool                                                                       // set by ByLimiter if each admitted call has a hold or a reservation until its end. New does not set it
	unsettled atomic.Bool
}

// New returns Limits by the rules of a Book, as httplimit.New does for requests. The
// error is weir.ErrInvalid if o is invalid.
func New(node *weir.Node, book *rules.Book, o Options) (*Limits, error) {
	m, err := httplimit.New(node, book, httplimit.Options{Client: o.Client, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	switch {
	case o.Key != nil:
		return nil, fmt.Errorf("%w Options.Key: rules have their own keys: use ByLimiter, or leave it nil", weir.ErrInvalid)
	case o.settles() || o.Estimate != nil:
		return nil, fmt.Errorf("%w Options.Settle, SettleTrailer and Estimate: rules do not use them: use ByLimiter, if necessary in addition to Limits with rules", weir.ErrInvalid)
	}
	if err := o.validMessages(); err != nil {
		return nil, err
	}
	warn := o.newWarner()
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

// validMessages returns an error if Messages is from ByLimiter and its units are returned or
// settled at the end of a call, or if Messages has Messages of its own, which are never
// used. The rules of Messages are not checked.
func (o *Options) validMessages() error {
	switch {
	case o.Messages == nil:
		return nil
	case o.Messages.ends:
		return fmt.Errorf("%w Options.Messages: a message has no end at which a hold is released or a cost settled: use another limit for messages", weir.ErrInvalid)
	case o.Messages.o.Messages != nil:
		return fmt.Errorf("%w Options.Messages: a message has no messages: leave Messages out of the Options that these Limits were made with", weir.ErrInvalid)
	}
	return nil
}

// newWarner returns a function that logs a warning for the first call that shares a key because
// it has no address.
func (o *Options) newWarner() func(context.Context, *rules.Request, *httplimit.Outcome) {
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

// ByLimiter returns Limits by a Limiter. A call costs a unit of the count of Options.Key.
// With an InFlight limit, a call holds a unit until the handler returns, and a stream
// until the handler returns or the client is gone. With Options.Settle or SettleTrailer,
// a call costs the reported cost. The error is weir.ErrInvalid if o is invalid.
func ByLimiter(l *weir.Limiter, o Options) (*Limits, error) {
	if l == nil {
		return nil, fmt.Errorf("%w grpclimit.ByLimiter: the Limiter is nil: pass one that Node.Limiter returned", weir.ErrInvalid)
	}
	if err := o.validate(l.Limit()); err != nil {
		return nil, err
	}
	limits := &Limits{o: o, ends: l.Limit().Algorithm == weir.InFlight || o.settles()}
	rule, warn := rules.Single(l.Limit().Name, o.Key != nil, 0), o.newWarner()
	limits.judge = func(ctx context.Context, r *rules.Request, request any) (out httplimit.Outcome, a *admission) {
		asked := *r
		if o.Key != nil {
			var ok bool
			if asked.User, ok = o.Key(ctx, r); !ok {
				return out, nil
			}
		}
		key, _ := rule.Key(&asked) // ok is always true, because an address replaces a missing key
		v := httplimit.Verdict{Rule: rule, Limiter: l, Key: key, Units: 1, Critical: r.Critical}
		if r.Critical {
			v.Limiter = l.Critical()
		}
		if l.Node().UsesCallers() {
			caller := httplimit.CallerOf(r)
			caller.Route = r.Path
			ctx = weir.WithCaller(ctx, &caller)
		}
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

// validate returns the errors in the Options of ByLimiter.
func (o *Options) validate(l weir.Limit) error {
	if err := errors.Join(o.Client.Validate(), o.validMessages()); err != nil {
		return err
	}
	switch {
	case o.User != nil || o.APIKey != nil || o.Tier != nil || o.Claim != nil:
		return fmt.Errorf("%w Options.User, APIKey, Tier and Claim: only rules use them: set Key, or call New with rules", weir.ErrInvalid)
	case o.Critical != nil && l.Keep == 0:
		return fmt.Errorf("%w Options.Critical: limit %q keeps no units: set Limit.Keep, or leave Critical out", weir.ErrInvalid, l.Name)
	case !o.NoMetadata && strings.ContainsFunc(l.Name, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }):
		return fmt.Errorf("%w grpclimit.ByLimiter: metadata cannot carry the limit's name %q: use letters, digits and spaces, or set Options.NoMetadata", weir.ErrInvalid, l.Name)
	case l.Algorithm == weir.InFlight && o.settles():
		return fmt.Errorf("%w Options.Settle and SettleTrailer: limit %q is in_flight, whose units have no cost: use another limit, or leave both options out", weir.ErrInvalid, l.Name)
	case o.Estimate != nil && !o.settles():
		return fmt.Errorf("%w Options.Estimate: no option settles the estimate: set Settle or SettleTrailer, too", weir.ErrInvalid)
	case o.SettleTrailer != "" && !isName(o.SettleTrailer):
		return fmt.Errorf("%w Options.SettleTrailer: %q is not a name of text metadata: use small letters, digits, and the signs - . and _", weir.ErrInvalid, o.SettleTrailer)
	}
	return nil
}

// statusFor returns the Status of an Outcome with a single Verdict, or 0 if the call
// proceeds.
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

// Unary returns an interceptor that limits unary calls.
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
		a.recordResult(ctx, err)
		if err == nil {
			a.recordMessage(response)
		}
		return response, err
	}
}

// Stream returns an interceptor that limits streams, and also their messages if
// Options.Messages is set. If a message is denied, the handler's Recv returns the error. If
// the handler continues, the next message is decided independently.
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
			defer context.AfterFunc(ctx, a.release)() // for a client that leaves while the handler still runs
			defer a.end()
			stream = &endingStream{stream, a}
		}
		if m := l.o.Messages; m != nil && !m.skips(info.FullMethod) {
			stream = &limitedStream{stream, m, m.request(ctx, info.FullMethod)}
		}
		err = handler(srv, stream)
		if a != nil {
			a.recordResult(ctx, err)
		}
		return err
	}
}

func (l *Limits) skips(method string) bool { return l.o.Skip != nil && l.o.Skip(method) }

// limitedStream limits each message that arrives.
type limitedStream struct {
	grpc.ServerStream
	limits  *Limits
	request *rules.Request // the client address is determined once for the stream
}

func (s *limitedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	_, err := s.limits.admit(s.Context(), s.request, message{}, nil)
	return err
}

// message stands for a message of a stream where a call has its request. It tells the function
// judge that there is no end at which a hold is released or a cost settled.
type message struct{}
