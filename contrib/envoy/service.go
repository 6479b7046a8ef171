package envoylimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/httpread"
	"github.com/weir-go/weir/internal/loglimit"
)

// Options say how a Service counts and answers. The zero Options are valid. Sliding,
// Scope and Partition are equal on all nodes of a cluster.
type Options struct {
	// Sliding counts by a SlidingWindow: no window ends at once for a client to ask
	// twice as much around. Else it is a FixedWindow, which begins when a descriptor
	// is first asked for.
	Sliding   bool
	Scope     weir.Scope           // of all limits: Global is over all regions of the node
	Partition weir.PartitionPolicy // of all limits, while members are missing

	// ShadowMode answers every request with OK as a whole. All else is as it would be,
	// the statuses of descriptors included.
	ShadowMode bool

	// DebitMany debits every descriptor for which a request asks for more than one hit,
	// because the hits may be a cost that is known only afterwards. They are spent if a
	// unit is left, though there is no room for all of them; where nothing is left, the
	// request is denied. It is for a configuration that cannot name the descriptors.
	DebitMany bool

	// Headers has answers bring header fields for the response to the client, of the limit
	// that denies it, or else of the one with the least left. None if zero.
	Headers Headers

	// Metadata has answers bring dynamic metadata, which other filters of Envoy can
	// read: the domain, the descriptors, and which of those with quota_mode are used up.
	Metadata bool

	// MergeDomains has Watch and Follow put files or resources of one domain together,
	// as LoadMerged does. Else they refuse a second one.
	MergeDomains bool

	Logger *slog.Logger // slog.Default if nil. Never sees a value of a descriptor

	// OnDecision is told what became of each descriptor that met a limit, before the
	// request is answered. It must not block. Nobody is told if nil.
	OnDecision func(context.Context, *Decided)
}

// Headers are the names of header fields; one that is empty is left out.
type Headers struct {
	Limit     string // the limit's units, of each of its windows
	Remaining string // units that are left
	Reset     string // seconds until all are there again, or until units are, rounded up
}

// Decided is what became of a descriptor.
type Decided struct {
	Domain string
	// Path is the domain and the descriptors of the configuration that matched, as in
	// messaging.message_type_marketing.to_number, with the request's values where
	// detailed_metric or value_to_metric asks for them. Without these there are no more
	// paths than descriptors in the configuration, unless Envoy sends limits of its own.
	Path     string
	Hits     uint64 // that were asked for, or given back; 0 of an unlimited descriptor
	Negative bool   // given back
	Over     bool   // there was no room
	Enforced bool   // false in shadow mode, with Options.ShadowMode, and in quota mode unless all quotas of the request are used up
	// Decision is the decision of the limit. It is zero for a limit of zero units, and for an
	// unlimited descriptor, which is never Over.
	Decision weir.Decision
}

// Service is Envoy's rate limit service on a node. It is safe for concurrent use, and
// has nothing to close.
type Service struct {
	rls.UnimplementedRateLimitServiceServer

	node    *weir.Node
	o       Options
	retry   time.Duration // of Follow
	refused loglimit.Line // of the line that a configuration was
	large   loglimit.Line // of the line that a request was
	drained chan struct{} // closed by Drain
	drain   sync.Once

	releases releases // of Kuadrant's reservations

	mu      sync.Mutex // over changes of current
	current atomic.Pointer[book]
}

// book is a Config with the limiters of a node.
type book struct {
	*Config
	limiters map[*limit]*weir.Limiter // but for limits of nothing, and unlimited ones
}

// New limits by cfg, until Use or Watch gives it another. The error is
// weir.ErrInvalid, or weir.ErrClosed.
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

// Use limits by cfg from now on. Counts go on: of a descriptor whose path and unit
// stay, what is used stays used, also where the number of requests is another one. On
// an error the Config before stays in force.
func (s *Service) Use(cfg *Config) error {
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

// limiter is for a limit of the configuration, or of a request. Their numbers change
// without a version, which files of this format do not have.
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

// Watch reads path, as Load or LoadMerged does, every so often (5 s if every is zero) until ctx is
// done, whose error it returns. What has changed is in force from then on; what cannot
// be read or is wrong is logged, once, and leaves the Config before in force.
//
// It reads on a timer and waits for no events, which get lost where a ConfigMap's links
// or a network's file systems are.
func (s *Service) Watch(ctx context.Context, path string, every time.Duration) error {
	if every <= 0 {
		every = watchEvery
	}
	tick := time.Tick(every)
	var seen *Config
	complaint, load := "", Load
	if s.o.MergeDomains {
		load = LoadMerged
	}
	for {
		cfg, err := load(path)
		if err == nil && (seen == nil || !cfg.same(seen)) {
			if err = s.Use(cfg); err == nil {
				seen = cfg
				s.o.Logger.Info("an Envoy configuration is in force", "path", path, "domains", len(cfg.domains), "limits", cfg.count())
			}
		}
		switch {
		case err == nil:
			complaint = ""
		case err.Error() != complaint:
			complaint = err.Error()
			s.o.Logger.Error("the Envoy configuration was refused; the last one stays in force", "path", path, "error", err, "not_found", errors.Is(err, os.ErrNotExist))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
	}
}

const watchEvery = 5 * time.Second

// ShouldRateLimit decides on all descriptors of a request together. A request that is
// denied changes no count.
func (s *Service) ShouldRateLimit(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return s.answer(ctx, req, asked)
}

// method is what a request was sent to.
type method uint8

const (
	asked    method = iota // Envoy's service
	checked                // Kuadrant's, to look
	reported               // Kuadrant's, to debit
)

func (s *Service) answer(ctx context.Context, req *rls.RateLimitRequest, by method) (*rls.RateLimitResponse, error) {
	var room [8]item
	items, err := s.read(ctx, req, room[:0])
	switch {
	case errors.Is(err, errTooLarge):
		return s.unread(req, err), nil
	case err != nil:
		return nil, err
	}
	ctx, cancel := withinTime(ctx, len(items))
	defer cancel()
	denied := false
	switch by {
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
	s.tell(ctx, req, items)
	return s.respond(req, items, denied), nil
}

// tell tells Options.OnDecision what became of the descriptors that met a limit.
func (s *Service) tell(ctx context.Context, req *rls.RateLimitRequest, items []item) {
	if s.o.OnDecision == nil {
		return
	}
	for i := range items {
		if it := &items[i]; it.meets() && !it.replaced {
			s.o.OnDecision(ctx, it.told(req))
		}
	}
}

// withinTime returns the context of a decision on so many descriptors. It ends before the
// caller's deadline does, because an answer takes time to arrive, too.
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

// withoutCaller returns a context that has the deadline of another one, and does not end
// when its caller goes away.
func withoutCaller(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return context.WithoutCancel(ctx), func() {}
}

const (
	// answering is the part of the time until a deadline that is kept for the answer,
	// as one in so many.
	answering = 4
	// A request of more than a few descriptors waits for other nodes for maxWait in all,
	// where its caller has no deadline. One of a few waits for some times the node's
	// Timeout.
	few     = 8
	maxWait = time.Second
)

// refusal is what a request gets that was not decided on, and that Envoy lets pass or
// not by its failure_mode_deny.
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
