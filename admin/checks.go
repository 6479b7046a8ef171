package admin

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/ratelimit"
	"github.com/weir-go/weir/rules"
)

// CheckOptions say who may ask for checks. Tokens, MutualTLS or Open must be there.
type CheckOptions struct {
	Tokens      [][]byte                     // as in Options; those of services and proxies, which need not be able to change limits
	MutualTLS   bool                         // as in Options
	Certificate func(*x509.Certificate) bool // as in Options
	Open        bool                         // every client that reaches the address may ask: for a loopback's, or a UNIX socket. Not with the others
	Logger      *slog.Logger                 // what failed; slog.Default if nil. Never sees a key
}

// Checks is the part of Admin that services in other languages need, for an address of its
// own: POST /v1/request decides on a request by the rules, POST /v1/take by one limit of
// theirs, POST /v1/take_all by several, all or none, and POST /v1/check by a limit in the
// request. POST /v1/peek returns the response of /v1/take without spending units. POST /v1/debit
// spends units whose number is known only afterwards, and POST /v1/refund gives units back. POST /v1/hold, /v1/renew and /v1/release are a Hold's, and POST
// /v1/reserve and /v1/settle a Reservation's. /v1/forward_auth, /v1/auth_request and /v1/ext_authz answer
// proxies, which ask before they pass a request on; docs/proxies.md has their configurations.
// A client that may ask can use up any limit, give back what was spent, and change no limit.
// Bounds and errors are those of Admin.
//
// Serve it as it is: an http.ServeMux before it cleans the paths of /v1/ext_authz.
func CheckHandler(node *weir.Node, book *rules.Book, o CheckOptions) (http.Handler, error) {
	if node == nil {
		return nil, fmt.Errorf("%w admin.CheckHandler: node is nil: pass one that weir.Start returned", weir.ErrInvalid)
	}
	var g *gate
	switch guarded := len(o.Tokens) > 0 || o.MutualTLS || o.Certificate != nil; {
	case o.Open && guarded:
		return nil, fmt.Errorf("%w CheckOptions: Open is set together with Tokens or MutualTLS: leave one of them out", weir.ErrInvalid)
	case !o.Open:
		var err error
		if g, err = newGate(Options{Tokens: o.Tokens, MutualTLS: o.MutualTLS, Certificate: o.Certificate}); err != nil {
			return nil, err
		}
	}
	return newAPI(node, book, g, o.Logger, forServices)
}

func showVerdict(v *httplimit.Verdict, now time.Time) Take {
	return Take{
		Name: v.Limiter.Limit().Name, Source: v.Decision.Source.String(), Shadow: v.Rule.Shadow,
		ShadowDenied: v.Rule.Shadow && !v.Decision.Allowed, Soft: v.Soft, Left: showLeft(v.Decision, v.Limiter, now),
	}
}

// question is a question for units of one limit of the rules.
type question struct {
	name, key, tier string
	units           int64
}

func (t *question) fields() []field {
	t.units = 1
	return append(t.countFields(), field{name: "units", into: &t.units})
}

// countFields are the fields that name a count.
func (t *question) countFields() []field {
	return []field{
		{name: "limit", into: &t.name, required: true}, {name: "key", into: &t.key, required: true}, {name: "tier", into: &t.tier},
	}
}

// validate notes what is wrong with it.
func (t *question) validate(wrong *faults, s *rules.Snapshot) {
	wrong.checkKey(t.key)
	wrong.checkRange("units", t.units, 1, maxUnits)
	wrong.checkTier(t.tier, s)
}

// newVerdict is the limit that it asks, which has not decided yet. It returns an error if
// there is no such limit.
func (t *question) newVerdict(s *rules.Snapshot) (httplimit.Verdict, error) {
	of, err := findLimit(s, t.name)
	if err != nil {
		return httplimit.Verdict{}, err
	}
	_, rule, _ := s.Limit(t.name)
	count := s.Count(of, t.tier, t.key)
	return httplimit.Verdict{Rule: rule, Limiter: count.Limiter, Key: t.key, Units: t.units, Overrun: count.Soft}, nil
}

// judge has the limits of an Outcome decide together, as they do on a request that meets
// their rules: shadows, an overrun and the switch of the rules mean the same. A queue has no
// part in it: the caller that is denied waits by itself. Where the rules are switched off
// nothing is asked, and all units are granted.
func (a *api) judge(ctx context.Context, o *httplimit.Outcome) error {
	if !o.Snapshot.Enabled() {
		for i := range o.Verdicts {
			o.Verdicts[i].Decision = disabledDecision(o.Verdicts[i].Limiter.Limit())
		}
		return nil
	}
	if err := checkPossible(o); err != nil {
		return err
	}
	a.lenient.Judge(ctx, o)
	return o.Err
}

// disabledDecision is the answer for a limit of rules that are switched off.
func disabledDecision(l weir.Limit) weir.Decision {
	return weir.Decision{Allowed: true, Name: l.Name, Limit: rules.Capacity(l), Remaining: rules.Capacity(l)}
}

// checkPossible returns an error for more units than an enforced limit can ever grant,
// those for one key together.
func checkPossible(o *httplimit.Outcome) error {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.Rule.Shadow {
			continue
		}
		sum := int64(0)
		most, name := rules.Capacity(v.Limiter.Limit()), v.Limiter.Limit().Name
		for j := range o.Verdicts {
			if same := &o.Verdicts[j]; same.Key == v.Key && same.Limiter.Limit().Name == name {
				sum += same.Units // 64 takes of 10^12 at most
			}
		}
		switch {
		case v.Units > most:
			return refuse(http.StatusRequestEntityTooLarge, "units is %d: more than the %d that %s can ever grant", v.Units, most, name)
		case sum > most:
			return refuse(http.StatusRequestEntityTooLarge, "units of one key sum to %d: more than the %d that %s can ever grant", sum, most, name)
		}
	}
	return nil
}

// readCount reads a question about one count of a limit of the rules, which may have more fields.
func (r *request) readCount(more ...field) (httplimit.Verdict, error) {
	of := question{units: 1}
	return r.readVerdict(&of, append(of.countFields(), more...))
}

// readQuestion reads a question for one limit of the rules, which may have more fields. The
// limit has not decided yet, and is the only one of the Outcome.
func (r *request) readQuestion(more ...field) (*httplimit.Verdict, *httplimit.Outcome, error) {
	var of question
	v, err := r.readVerdict(&of, append(of.fields(), more...))
	o := &httplimit.Outcome{Snapshot: r.rules, Verdicts: []httplimit.Verdict{v}}
	return &o.Verdicts[0], o, err
}

// readVerdict reads the fields of the body, and returns the Verdict that of asks for.
func (r *request) readVerdict(of *question, fields []field) (v httplimit.Verdict, err error) {
	if err := r.body(fields...); err != nil {
		return v, err
	}
	var wrong faults
	if of.validate(&wrong, r.rules); wrong != nil {
		return v, wrong.err()
	}
	return of.newVerdict(r.rules)
}

// readPossible is readQuestion, for a limit of the kind that the path takes, and for no more units than
// it can grant.
func (r *request) readPossible(more ...field) (*httplimit.Verdict, *httplimit.Outcome, error) {
	v, o, err := r.readQuestion(more...)
	if err == nil && r.rules.Enabled() {
		err = checkPossible(o)
	}
	if err == nil && r.rules.Enabled() {
		err = r.checkKind(v.Limiter.Limit())
	}
	return v, o, err
}

// mustAsk reports whether the limit is to be asked: where the rules are switched off it grants
// everything, and a shadow that can never grant the units denies them.
func mustAsk(o *httplimit.Outcome, v *httplimit.Verdict) bool {
	l := v.Limiter.Limit()
	if !o.Snapshot.Enabled() {
		v.Decision = disabledDecision(l)
		return false
	}
	if most := rules.Capacity(l); v.Units > most {
		v.Decision = weir.Decision{Name: l.Name, Limit: most}
		return false
	}
	return true
}

// askedLimiter returns the Limiter to ask, which counts the decisions of a shadow apart.
func askedLimiter(v *httplimit.Verdict) *weir.Limiter {
	if v.Rule.Shadow {
		return v.Limiter.Shadow()
	}
	return v.Limiter
}

// mayOverrun reports whether the overrun of the rule may grant what the limit has denied.
func mayOverrun(v *httplimit.Verdict) bool {
	return !v.Rule.Shadow && !v.Decision.Allowed && v.Overrun != nil && v.Decision.Source != weir.FailedClosed
}

// showOnly is what the only limit of the Outcome says, which h tells too.
func showOnly(o *httplimit.Outcome, h http.Header) Take {
	v := &o.Verdicts[0]
	switch {
	case o.Status != 0 || v.Rule.Shadow || v.Decision.Allowed:
	case v.Decision.Source == weir.FailedClosed:
		o.Status = http.StatusServiceUnavailable
	default:
		o.Status = http.StatusTooManyRequests
	}
	answer := showVerdict(v, time.Now())
	if answer.Allowed = o.Status == 0; answer.Allowed {
		answer.RetryAfterS = 0
	}
	setHeader(h, o)
	return answer
}

// take asks one limit of the rules for units.
func (a *api) take(r *request) (int, any, error) {
	_, o, err := r.readQuestion()
	if err == nil {
		err = a.judge(r.Context(), o)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, showOnly(o, r.w.Header()), nil
}

// setHeader sets the fields that a client of the caller can be given as they are. Rules that
// are switched off have asked nothing, and tell nothing.
func setHeader(h http.Header, o *httplimit.Outcome) {
	if o.Snapshot.Enabled() {
		httplimit.SetHeader(h, o)
	}
}

// checkTier notes a tier that the rules do not have.
func (w *faults) checkTier(tier string, s *rules.Snapshot) {
	if tier != "" && !slices.Contains(s.Tiers(), tier) {
		w.add("there is no tier %q: %s", tier, enum.Suggest(tier, s.Tiers()))
	}
}

// requestAnswer is what the rules say of a request.
type requestAnswer struct {
	Allowed     bool   `json:"allowed"`
	Status      int    `json:"status"`
	RetryAfterS int64  `json:"retry_after_s"`
	Soft        bool   `json:"soft"`
	Limits      []Take `json:"limits"`

	Holds        []carried `json:"holds,omitempty"`
	Reservations []carried `json:"reservations,omitempty"`
}

// carried is a hold of a request, as release and renew take it, or a reservation, as settle
// takes it with the units.
type carried struct {
	Limit       string `json:"limit"`
	Key         string `json:"key"`
	Tier        string `json:"tier,omitempty"`
	Hold        string `json:"hold,omitempty"`
	Reservation string `json:"reservation,omitempty"`
}

// request decides on a request that is described, as a Middleware does on one that it
// sees: any path that a client can send, and a tier that the rules do not have counts as
// the default one. With a ttl the client ends the request: it releases the holds, and settles
// the reservations.
func (a *api) request(r *request) (int, any, error) {
	of := rules.Request{Method: http.MethodGet, Header: make(http.Header)}
	var ttl time.Duration
	if err := r.body(
		field{name: "method", into: &of.Method}, field{name: "path", into: &of.Path, required: true},
		field{name: "host", into: &of.Host}, field{name: "ip", into: &of.Client},
		field{name: "user", into: &of.User}, field{name: "api_key", into: &of.APIKey},
		field{name: "tier", into: &of.Tier}, field{name: "length", into: &of.Length},
		field{name: "headers", into: of.Header}, field{name: "ttl", into: &ttl},
	); err != nil {
		return 0, nil, err
	}
	var wrong faults
	wrong.checkRange("length", of.Length, 0, maxUnits)
	of.Path, _, _ = strings.Cut(of.Path, "?")
	if of.Path == "" || of.Path[0] != '/' && of.Path != "*" {
		wrong.add("path is %q: use one that begins with /, escaped as in the request", shorten(of.Path))
	}
	err := wrong.err()
	if err == nil && ttl != 0 {
		err = checkHoldTTL(ttl)
	}
	if err != nil {
		return 0, nil, err
	}
	o, holds, reservations := a.lenient.CheckFor(r.Context(), &of, ttl)
	if o.Err != nil {
		return 0, nil, o.Err
	}
	setHeader(r.w.Header(), &o)
	answer := requestAnswer{Allowed: o.Status == 0, Status: o.Status, RetryAfterS: ratelimit.Seconds(o.RetryAfter()), Soft: o.Soft(), Limits: []Take{}}
	tier := o.Snapshot.Tier(of.Tier)
	for _, h := range holds {
		answer.Holds = append(answer.Holds, carried{Limit: h.Limit, Key: h.Key, Tier: tier, Hold: h.Text})
	}
	for _, v := range reservations {
		answer.Reservations = append(answer.Reservations, carried{Limit: v.Limit, Key: v.Key, Tier: tier, Reservation: v.Text})
	}
	if answer.Allowed {
		answer.Status = http.StatusOK
	}
	now := time.Now()
	for i := range o.Verdicts {
		answer.Limits = append(answer.Limits, showVerdict(&o.Verdicts[i], now))
	}
	return http.StatusOK, answer, nil
}
