package envoylimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/httpread"
	"github.com/weir-go/weir/internal/loglimit"
	"github.com/weir-go/weir/rules"
)

// Options configure how a Service counts and responds. The zero Options are valid.
// Sliding, Scope and Partition must be equal on all nodes of a cluster.
type Options struct {
	// Sliding selects SlidingWindow, which has no boundary around which a client can
	// spend twice the limit. Otherwise the algorithm is FixedWindow, and a window begins
	// at the first request for its descriptor.
	Sliding   bool
	Scope     weir.Scope           // scope of all limits: with Global, a limit counts over all regions of the node
	Partition weir.PartitionPolicy // policy of all limits while members are missing

	// ShadowMode sets the overall code of every response to OK, and omits Headers. The
	// statuses of descriptors still have the code OVER_LIMIT for limits without room.
	ShadowMode bool

	// DebitMany debits every descriptor for which a request asks for two hits or more,
	// because the hits may be a cost that is known only afterwards. If at least one unit
	// is left, all hits are spent, even if there is no room for all of them. If no unit
	// is left, the request is denied. DebitMany is for configurations that cannot mark
	// the descriptors with debit.
	DebitMany bool

	// Headers adds header fields to the response to the client. They describe the limit
	// that denies the request, or otherwise the limit with the fewest units left. The
	// zero Headers add no field.
	Headers Headers

	// Metadata adds dynamic metadata to responses, which other filters of Envoy can read:
	// the domain, the descriptors, the metadata of the limits that allow the request, and
	// which descriptors with quota_mode are used up.
	Metadata bool

	// MergeDomains lets Watch and Follow merge files or resources of the same domain, as
	// LoadMerged does. Otherwise they refuse a configuration with two files or resources of a
	// domain.
	MergeDomains bool

	// Book has the blocks of clients, for descriptors with an entry remote_address, user or
	// api_key. A blocked client is over the limit, and spends nothing, except by Kuadrant's Report
	// and Commit. If nil, no client is blocked.
	Book *rules.Book

	Logger *slog.Logger // slog.Default if nil; never receives a value of a descriptor

	// OnDecision is called before the response is sent, for each descriptor that has a limit
	// or is unlimited by the configuration, except for replaced limits. It is not called for a
	// request that is refused because its client is blocked, for a request that is too large or fails, or for a Commit
	// of a reservation. OnDecision must not block, and may be nil.
	OnDecision func(context.Context, *Decided)
}

// Headers contains the names of header fields. A field with an empty name is left out.
type Headers struct {
	Limit     string // units that the limit grants in each window
	Remaining string // units that are left
	Reset     string // seconds until all units are available again, rounded up
}

// Decided is the decision for a descriptor.
type Decided struct {
	Domain string
	// Path is the domain and the matching descriptors of the configuration, such as
	// messaging.message_type_marketing.to_number. The Path contains values of the request
	// where detailed_metric or value_to_metric is set. If neither is set anywhere, and Envoy
	// sends no limits with its requests, the number of paths is at most the number of
	// descriptors in the configuration.
	Path     string
	Hits     uint64 // number of requested or returned units; 0 if the request only asks, or if the descriptor is unlimited
	Negative bool   // the hits were returned
	Over     bool   // the limit had no room
	Enforced bool   // false in shadow mode, with Options.ShadowMode, and in quota mode unless all quotas of the request are used up
	// Decision is the decision of the limit; zero for a limit of zero units, and for an
	// unlimited descriptor, which is never Over.
	Decision weir.Decision
}

// Service implements Envoy's rate limit service on a node. A Service is safe for
// concurrent use, and does not need to be closed.
type Service struct {
	rls.UnimplementedRateLimitServiceServer

	node    *weir.Node
	o       Options
	retry   time.Duration // pause before Follow connects again
	refused loglimit.Line // for refused configurations
	large   loglimit.Line // for requests that are too large
	drained chan struct{} // closed by Drain
	drain   sync.Once

	releases releases // releases of the reservations of Kuadrant

	mu      sync.Mutex // held while the field current is replaced
	current atomic.Pointer[book]
}

// book is a Config with the limiters of a node.
type book struct {
	*Config
	limiters map[*limit]*weir.Limiter // except for unlimited limits and limits of zero units
}

// New returns a Service that applies cfg until Use, Watch or Follow replaces it. The
// error is weir.ErrInvalid or weir.ErrClosed.
func New(node *weir.Node, cfg *Config, o Options) (*Service, error) {
	if node == nil || cfg == nil {
		return nil, fmt.Errorf("%w envoylimit.New: node or Config is nil: pass what weir.Start and Load returned", weir.ErrInvalid)
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	s := &Service{node: node, o: o, retry: followRetry, drained: make(chan struct{})}
	if err := s.Use(cfg); err != nil {
		return nil, err
	}
	return s, nil
}

// Use replaces the Config. If the path and the unit of a descriptor are unchanged, its counts
// are kept, even if requests_per_unit has changed. The error is weir.ErrInvalid or
// weir.ErrClosed. After an error, the previous Config stays in force.
func (s *Service) Use(cfg *Config) error {
	if cfg == nil {
		return fmt.Errorf("%w Service.Use: the Config is nil: pass one that Load returned", weir.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &book{cfg, make(map[*limit]*weir.Limiter)}
	for _, d := range cfg.domains {
		for _, l := range d.limits {
			if l.current.GetRequestsPerUnit() == 0 {
				continue
			}
			limiter, err := s.limiter(l.path, l.current)
			if err != nil {
				return fmt.Errorf("%s: %w", l.path, err)
			}
			b.limiters[l] = limiter
		}
	}
	s.current.Store(b)
	return nil
}

// limiter returns the limiter for a limit of the configuration or of a request. The
// numbers of such limits change without a version, because files of this format have no
// version.
func (s *Service) limiter(path string, r *rls.RateLimitResponse_RateLimit) (*weir.Limiter, error) {
	per, name := period(r)
	l := weir.Limit{
		Name: limitName(path, name, s.o.Sliding), Algorithm: weir.FixedWindow, Rate: int64(r.GetRequestsPerUnit()), Per: per,
		Scope: s.o.Scope, Partition: s.o.Partition, Varies: true, SecretKeys: httpread.IsSecretName(path),
	}
	if s.o.Sliding {
		l.Algorithm = weir.SlidingWindow
	}
	return s.node.Limiter(l)
}

// Watch reads path, as Load or LoadMerged does, at the given interval (5 s if every is
// zero or negative) until ctx is done, and returns the error of ctx. A changed
// configuration takes effect when Watch reads it. A configuration that cannot be read or is
// invalid is logged once, and the previous Config stays in force.
//
// Watch polls the files, because events of the file system would be lost with the links of a
// ConfigMap or on network file systems.
func (s *Service) Watch(ctx context.Context, path string, every time.Duration) error {
	if every <= 0 {
		every = watchEvery
	}
	tick := time.Tick(every)
	w := watch{service: s, path: path}
	for {
		w.poll()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
	}
}

const watchEvery = 5 * time.Second

// ShouldRateLimit decides all descriptors of a request together. A denied request changes
// no count.
func (s *Service) ShouldRateLimit(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return s.answer(ctx, req, asked)
}

// method is the gRPC method of a request.
type method uint8

const (
	asked    method = iota // Envoy's service
	checked                // Kuadrant's CheckRateLimit
	reported               // Kuadrant's Report
)

func (s *Service) answer(ctx context.Context, req *rls.RateLimitRequest, called method) (*rls.RateLimitResponse, error) {
	var room [8]item
	items, err := s.read(ctx, req, room[:0])
	switch {
	case errors.Is(err, errTooLarge):
		return s.respondTooLarge(req, err), nil
	case err != nil:
		return nil, err
	}
	if called != reported {
		if r := s.respondBlocked(req, items); r != nil {
			return r, nil
		}
	}
	if s.node.UsesCallers() {
		ctx = weir.WithCaller(ctx, callerOf(req))
	}
	ctx, cancel := withinTime(ctx, len(items))
	defer cancel()
	denied := false
	switch called {
	case asked:
		denied, err = s.decide(ctx, items)
	case checked:
		denied, err = s.check(ctx, items)
	case reported:
		err = s.report(ctx, items)
	}
	if err != nil {
		return nil, refusal(err)
	}
	s.reportDecisions(ctx, req, items)
	return s.respond(req, items, denied), nil
}

// callerOf returns the Caller of a request: its domain, and the first address in a descriptor.
func callerOf(req *rls.RateLimitRequest) *weir.Caller {
	c := &weir.Caller{Route: req.GetDomain()}
	for _, d := range req.GetDescriptors() {
		if c.Client = namedClient(d).Client; c.Client.IsValid() {
			break
		}
	}
	return c
}

// reportDecisions calls Options.OnDecision for each descriptor that has a limit or is
// unlimited by the configuration, except for replaced limits.
func (s *Service) reportDecisions(ctx context.Context, req *rls.RateLimitRequest, items []item) {
	if s.o.OnDecision == nil {
		return
	}
	for i := range items {
		if it := &items[i]; it.isMatched() && !it.replaced {
			s.o.OnDecision(ctx, it.newDecided(req))
		}
	}
}

// withinTime returns the context for a decision on the given number of descriptors. The
// context ends before the deadline of the caller, because the response needs time to
// arrive.
func withinTime(ctx context.Context, descriptors int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	switch {
	case ok:
		return context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/answering))
	case descriptors > few:
		return context.WithTimeout(ctx, maxWait)
	}
	return ctx, func() {}
}

// withoutCaller returns a context that keeps the deadline of ctx, but is not canceled
// when the caller goes away.
func withoutCaller(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return context.WithoutCancel(ctx), func() {}
}

const (
	// answering is the divisor of the time until the deadline of the caller: this part of the
	// time is kept for sending the response.
	answering = 4
	// few is the largest number of descriptors for which a request without a deadline waits at
	// most for a small multiple of the Timeout of the node. With more descriptors, it waits for
	// other nodes for at most maxWait in total.
	few     = 8
	maxWait = time.Second
)

// refusal returns the gRPC status of a request that was not decided. Envoy lets such a
// request pass or not, depending on failure_mode_deny.
func refusal(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, weir.ErrClosed), errors.Is(err, weir.ErrUnavailable):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, weir.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, weir.ErrSettled), errors.Is(err, weir.ErrExpired):
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
