package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
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
	// it is not known, as when they are nil. They must not block.
	User, APIKey, Tier func(context.Context) string

	// Key says whose count a call spends from, not ok if nobody's. It is for
	// ByLimiter alone, as rules have their own. ClientKey if nil.
	Key func(context.Context, *rules.Request) (key string, ok bool)

	// Messages are asked once for each message that comes on a stream, after
	// the Limits themselves were asked for the stream. None if nil: then a
	// stream costs as much as a call.
	Messages *Limits

	NoMetadata bool // no header metadata, only the status

	// Skip reports whether a full method is not limited, like /grpc.health.v1.Health/Check.
	// Nil: none is.
	Skip func(fullMethod string) bool

	// Logger is warned once of calls without an address, which share one key, as those
	// of a proxy on a Unix socket that is not trusted. slog.Default if nil.
	Logger *slog.Logger

	// OnDecision is told what became of each call and message that met a limit,
	// before it goes on or is denied; the Outcome must not be changed. A call whose
	// client is gone has the Status httplimit.StatusClientGone. It must not block.
	OnDecision func(context.Context, *rules.Request, *httplimit.Outcome)
}

// Limits decide on calls. They are safe for concurrent use, and have nothing to
// close.
type Limits struct {
	o     Options
	judge func(context.Context, *rules.Request) httplimit.Outcome
}

// New limits calls by the rules of a Book, as httplimit.New does requests. The
// error is weir.ErrInvalid for what is wrong with o.
func New(node *weir.Node, book *rules.Book, o Options) (*Limits, error) {
	m, err := httplimit.New(node, book, httplimit.Options{Client: o.Client})
	if err != nil {
		return nil, err
	}
	if o.Key != nil {
		return nil, fmt.Errorf("%w Options.Key: rules have their own keys: use ByLimiter, or leave it nil", weir.ErrInvalid)
	}
	return &Limits{o, o.warns(m.Check, (*httplimit.Outcome).LacksAddress)}, nil
}

// warns is judge, and warns once of a call that has no address and shares a key.
func (o *Options) warns(judge func(context.Context, *rules.Request) httplimit.Outcome, shares func(*httplimit.Outcome) bool) func(context.Context, *rules.Request) httplimit.Outcome {
	log := cmp.Or(o.Logger, slog.Default())
	var warned atomic.Bool
	return func(ctx context.Context, r *rules.Request) httplimit.Outcome {
		out := judge(ctx, r)
		if !r.Client.IsValid() && shares(&out) && warned.CompareAndSwap(false, true) {
			network := ""
			if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
				network = p.Addr.Network()
			}
			log.Warn("calls without an address share one key; for a Unix socket use ClientAddress.TrustUnix", "network", network)
		}
		return out
	}
}

// ByLimiter limits calls by one limit: each costs one unit of Options.Key's count.
// The error is weir.ErrInvalid for what is wrong with o.
func ByLimiter(l *weir.Limiter, o Options) (*Limits, error) {
	if l == nil {
		return nil, fmt.Errorf("%w grpclimit.ByLimiter: it needs a Limiter", weir.ErrInvalid)
	}
	if err := o.Client.Validate(); err != nil {
		return nil, err
	}
	if o.Key == nil {
		o.Key = ClientKey
	}
	name := l.Limit().Name
	if !o.NoMetadata && strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		return nil, fmt.Errorf("%w grpclimit.ByLimiter: metadata cannot tell the limit's name %q: use letters, digits and spaces, or set Options.NoMetadata", weir.ErrInvalid, name)
	}
	rule := &rules.Rule{Name: name}
	return &Limits{o, o.warns(func(ctx context.Context, r *rules.Request) (out httplimit.Outcome) {
		key, ok := o.Key(ctx, r)
		if !ok {
			return out
		}
		v := httplimit.Verdict{Rule: rule, Limiter: l, Key: key, Units: 1}
		v.Decision, out.Err = l.Allow(ctx, key)
		if errors.Is(out.Err, weir.ErrClosed) {
			if v.Decision = httplimit.Unserved(l.Limit()); v.Decision.Allowed {
				out.Err = nil
			}
		}
		switch {
		case errors.Is(out.Err, context.Canceled):
			out.Status = httplimit.StatusClientGone
		case out.Err != nil || !v.Decision.Allowed && v.Decision.Source == weir.FailedClosed:
			out.Status = http.StatusServiceUnavailable
		case !v.Decision.Allowed:
			out.Status = http.StatusTooManyRequests
		}
		out.Verdicts = []httplimit.Verdict{v}
		return out
	}, func(out *httplimit.Outcome) bool { return len(out.Verdicts) > 0 && out.Verdicts[0].Key == "" })}, nil
}

// ClientKey is for Options.Key: the client's address, of an IPv6 one its /64, as
// its users pick the rest. Calls whose address is not known have one count.
func ClientKey(_ context.Context, r *rules.Request) (key string, ok bool) {
	a := r.Client.Unmap().WithZone("")
	if !a.Is6() {
		if !a.IsValid() {
			return "", true
		}
		return a.String(), true
	}
	return netip.PrefixFrom(a, 64).Masked().String(), true
}

// Unary limits calls with one request and one answer.
func (l *Limits) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !l.skips(info.FullMethod) {
			header, err := l.admit(ctx, l.request(ctx, info.FullMethod))
			if len(header) > 0 {
				_ = grpc.SetHeader(ctx, header) // what was said already stands
			}
			if err != nil {
				return nil, err
			}
		}
		return handler(ctx, request)
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
		header, err := l.admit(ctx, l.request(ctx, info.FullMethod))
		if len(header) > 0 {
			_ = stream.SetHeader(header) // what was said already stands
		}
		if err != nil {
			return err
		}
		if m := l.o.Messages; m != nil && !m.skips(info.FullMethod) {
			stream = &limitedStream{stream, m, m.request(ctx, info.FullMethod)}
		}
		return handler(srv, stream)
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
	_, err := s.limits.admit(s.Context(), s.request)
	return err
}
