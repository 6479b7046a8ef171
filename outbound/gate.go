package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/loglimit"
)

// Options configure a Gate. Only Limits is required.
type Options struct {
	Limits []Limit // the first that matches a request applies

	// Credential returns the credential or the account of a request, or "". Each credential has its own
	// count. If nil, the credential is the value of the first of these header fields that the request has:
	// Authorization, X-API-Key, API-Key and X-Goog-API-Key. If the tokens of an account change, Credential
	// should return the name of the account. The key of a count contains only a hash of the text, under
	// Config.Seed. Credential must not block.
	Credential func(*http.Request) string

	// MaxPause is the maximum length of a pause, from 1 ms to 24 h. 0 means 5 min.
	MaxPause time.Duration

	// Attempts is the maximum number of times that Transport sends a request, at most 10. 0 and 1 mean
	// no retries. Transport sends a request again after an error of the connection, or after the status
	// 429, 502, 503 or 504. The request must have an idempotent method or an Idempotency-Key, and if it
	// has a body, a GetBody. Before a retry, Transport sleeps for a random time, and then waits for
	// another turn.
	Attempts int

	// RetryPart is the number of retries that each request permits to the requests under its limit, above
	// 0 and at most 1. 0 means 0.1: one retry for ten requests. Each process begins with 10 permitted
	// retries under each limit, and never saves more than 10.
	RetryPart float64

	Logger *slog.Logger // slog.Default if nil. It receives no credential
}

// Limit is a limit of another service.
type Limit struct {
	// Host is the host of the URL, such as "api.example.com". "host:443" matches only this port; a URL
	// without a port has the port of its scheme. "*.example.com" matches all names below example.com, and
	// "*" matches every host. Each matching host has a count of its own.
	Host string

	// Match reports whether the limit applies to a request to Host. If nil, the limit applies to all such
	// requests. Match must not block.
	Match func(*http.Request) bool

	// Limit has the numbers. Only the requests of a LeakyBucket wait in order of arrival. New sets the
	// field Pauses. The Algorithm must not be InFlight.
	weir.Limit
}

const (
	defaultMaxPause  = 5 * time.Minute
	mostAttempts     = 10
	defaultRetryPart = 0.1
)

// A Gate makes each request to another service wait until the request has a turn. A Gate is safe for concurrent
// use, and need not be closed.
type Gate struct {
	o      Options
	limits []*limit
}

// limit is a Limit of a Gate.
type limit struct {
	hosts   hosts
	match   func(*http.Request) bool
	limiter *weir.Limiter
	name    string // name of the limit
	pauses  pauses
	logged  loglimit.Line
	budget  budget

	requests, unsent, waited, paused, retries, retriesRefused atomic.Uint64
}

// New returns a Gate with the limits of o on a node. The error is weir.ErrInvalid with all invalid fields, or
// weir.ErrClosed.
func New(node *weir.Node, o Options) (*Gate, error) {
	if node == nil {
		return nil, fmt.Errorf("%w outbound.New: node is nil: pass a Node that was started", weir.ErrInvalid)
	}
	o.MaxPause = cmp.Or(o.MaxPause, defaultMaxPause)
	o.RetryPart = cmp.Or(o.RetryPart, defaultRetryPart)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Credential == nil {
		o.Credential = credentialOf
	}
	err := o.validate()
	g := &Gate{o: o}
	for i := range o.Limits {
		l, limitErr := newLimit(node, &o.Limits[i])
		if limitErr != nil {
			err = errors.Join(err, fmt.Errorf("outbound: Options.Limits[%d]: %w", i, limitErr))
			continue
		}
		g.limits = append(g.limits, l)
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

func (o *Options) validate() error {
	var errs []error
	refuse := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("%w outbound: Options."+format, append([]any{weir.ErrInvalid}, args...)...))
		}
	}
	refuse(len(o.Limits) == 0, "Limits is empty: give at least one Limit, or use no Gate")
	refuse(o.MaxPause < time.Millisecond || o.MaxPause > weir.MaxPause, "MaxPause is %v: it must be from 1ms to %v", o.MaxPause, weir.MaxPause)
	refuse(o.Attempts < 0 || o.Attempts > mostAttempts, "Attempts is %d: it must be from 0 to %d", o.Attempts, mostAttempts)
	refuse(!(o.RetryPart > 0 && o.RetryPart <= 1), "RetryPart is %v: it must be above 0 and at most 1", o.RetryPart)
	return errors.Join(errs...)
}

func newLimit(node *weir.Node, of *Limit) (*limit, error) {
	if of.Algorithm == weir.InFlight {
		return nil, fmt.Errorf("%w Limit: Algorithm is in_flight: use an algorithm with a rate, such as leaky_bucket", weir.ErrInvalid)
	}
	within, err := parseHosts(of.Host)
	if err != nil {
		return nil, err
	}
	numbers := of.Limit
	numbers.Pauses = true
	limiter, err := node.Limiter(numbers)
	if err != nil {
		return nil, err
	}
	l := &limit{hosts: within, match: of.Match, limiter: limiter, name: of.Name, pauses: pauses{until: make(map[string]time.Time)}}
	l.budget.parts.Store(mostBudget)
	return l, nil
}

// limitOf returns the limit of a request, or nil.
func (g *Gate) limitOf(r *http.Request) *limit {
	if r.URL == nil {
		return nil
	}
	for _, l := range g.limits {
		if l.hosts.contains(r.URL) && (l.match == nil || l.match(r)) {
			return l
		}
	}
	return nil
}

// Stats has the counters of a limit in this process. All counters only grow. weir.Stats counts each turn as a
// decision.
type Stats struct {
	Requests       uint64        // the number of granted turns, each for a request or a retry
	Unsent         uint64        // the number of requests and retries that were not sent, because Wait returned an error
	Waited         time.Duration // the sum of the waits for the granted turns
	Pauses         uint64        // the number of times that this process started or extended a pause
	Retries        uint64        // the number of retries that RetryPart permitted, including retries that then were not sent
	RetriesRefused uint64        // the number of retries that RetryPart did not permit
}

// Stats returns the counters of each limit of this process, by its name.
func (g *Gate) Stats() map[string]Stats {
	all := make(map[string]Stats, len(g.limits))
	for _, l := range g.limits {
		s := all[l.name]
		s.Requests += l.requests.Load()
		s.Unsent += l.unsent.Load()
		s.Waited += time.Duration(l.waited.Load())
		s.Pauses += l.paused.Load()
		s.Retries += l.retries.Load()
		s.RetriesRefused += l.retriesRefused.Load()
		all[l.name] = s
	}
	return all
}
