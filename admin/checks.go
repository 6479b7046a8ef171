package admin

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/ratelimit"
	"github.com/weir-go/weir/rules"
)

// CheckOptions configure the credentials of clients. Tokens, MutualTLS or Open must be set.
type CheckOptions struct {
	// Tokens, MutualTLS and Certificate are as in Options. Services and proxies need not change
	// limits: give them tokens that are not in Options.Tokens.
	Tokens      [][]byte
	MutualTLS   bool
	Certificate func(*x509.Certificate) bool

	// Open admits every client that can reach the address, which should be on loopback or a Unix socket.
	// Open cannot be combined with Tokens, MutualTLS and Certificate.
	Open bool

	// Usage enables GET /v1/usage, which returns the limits of the caller. A proxy must forward the request
	// with the fields that identify the caller. If nil, the response is 404.
	Usage *UsageFields

	// Logger records failures. The Logger never receives a key. If nil, slog.Default is used.
	Logger *slog.Logger
}

// CheckHandler returns the part of Handler for services in other languages and for proxies. It needs an
// address of its own.
//
//	POST /v1/request                         decides on a request by the rules
//	POST /v1/take, /v1/take_all              take units of a limit of the rules, or of several together
//	POST /v1/check                           decides by a limit in the request
//	POST /v1/peek                            answers as /v1/take, but spends nothing
//	POST /v1/debit, /v1/refund               spend a cost that is known only afterwards, and return units
//	POST /v1/hold, /v1/renew, /v1/release    hold units of an in_flight limit
//	POST /v1/reserve, /v1/settle             reserve an estimate, and replace it by the cost
//	GET /v1/usage                            shows callers their own limits, with CheckOptions.Usage
//	/v1/forward_auth, /v1/auth_request, /v1/ext_authz/    answer proxies that ask before they forward a request
//
// The result also serves /openapi.json. docs/proxies.md has configurations of proxies. A client can use up
// every limit and return spent units, but cannot change a limit. Time limits, size limits and the errors of
// responses are those of Handler. The error is weir.ErrInvalid if node is nil or o is not valid.
//
// Do not put an http.ServeMux in front, because it cleans the paths of /v1/ext_authz/.
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
		if g, err = newGate(Options{Tokens: o.Tokens, MutualTLS: o.MutualTLS, Certificate: o.Certificate}, "CheckOptions", "set Open to admit every client"); err != nil {
			return nil, err
		}
	}
	if u := o.Usage; u != nil && (u.Hops < 0 || u.Hops > maxHops) {
		return nil, fmt.Errorf("%w CheckOptions.Usage: Hops is %d: use 1 to %d, or 0 for 1", weir.ErrInvalid, u.Hops, maxHops)
	}
	a, err := newAPI(node, book, g, o.Logger, forServices)
	if err != nil {
		return nil, err
	}
	a.usageFields = o.Usage
	return a, nil
}

// showVerdict converts a Verdict at the time now.
func showVerdict(v *httplimit.Verdict, now time.Time) Take {
	return Take{
		Name: v.Limiter.Limit().Name, Source: v.Decision.Source.String(), Shadow: v.Mode == rules.Shadow, Off: v.Mode == rules.Off,
		ShadowDenied: v.Mode == rules.Shadow && !v.Decision.Allowed, Soft: v.Soft, Banned: v.Decision.Banned, Left: showLeft(v.Decision, v.Limiter, now),
	}
}

// question is a request for units of a limit of the rules.
type question struct {
	name, key, tier string
	units           int64
	critical        bool
}

// questionFields returns the fields of the count and of the units, which are 1 if the field is missing. If
// spends is true, there is also the field critical.
func (r *request) questionFields(t *question, spends bool) []field {
	t.units = 1
	fields := append(r.countFields(t), field{name: "units", into: &t.units, least: 1, most: maxUnits})
	if spends {
		fields = append(fields, field{name: "critical", into: &t.critical})
	}
	return fields
}

// countFields returns the fields that name a count.
func (r *request) countFields(t *question) []field {
	return []field{
		{name: "limit", into: &t.name, required: true}, {name: "key", into: &t.key, required: true, most: maxKeyBytes}, r.tierField(&t.tier),
	}
}

// tierField returns the field for a tier of the rules.
func (r *request) tierField(into *string) field {
	return field{name: "tier", into: into, known: r.rules.Tiers}
}

// newVerdict returns a Verdict of the limit, which has not decided yet, or an error if there is no
// such limit.
func (t *question) newVerdict(s *rules.Snapshot) (httplimit.Verdict, error) {
	of, err := findLimit(s, t.name)
	if err != nil {
		return httplimit.Verdict{}, err
	}
	_, rule, _ := s.Limit(t.name)
	count := s.Count(of, t.tier, t.key)
	l, _ := count.LimiterFor(t.critical)
	return httplimit.Verdict{Rule: rule, Mode: s.ModeFor(rule, t.key), Limiter: l, Key: t.key, Tier: t.tier, Units: t.units, Critical: t.critical, Overrun: count.Soft}, nil
}

// judge lets the limits of an Outcome decide together, as they decide on a request that meets their rules.
// Modes and overruns have the same effect. There are no queues: a caller that is denied waits by itself. A
// limit whose rule is off is not asked, and grants all units.
func (a *api) judge(ctx context.Context, o *httplimit.Outcome) error {
	if o.RefuseBlocked(time.Now()) {
		return nil
	}
	if err := checkPossible(o); err != nil {
		return err
	}
	a.lenient.Judge(ctx, o)
	return o.Err
}

// checkPossible returns a refusal if an enforced limit can never grant the units of its Verdict, or the sum of
// the units that several Verdicts take of the limit for one key.
func checkPossible(o *httplimit.Outcome) error {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.Mode != rules.Enforce {
			continue
		}
		sum := int64(0)
		most, name := rules.Capacity(v.Limiter.Limit()), v.Limiter.Limit().Name
		for j := range o.Verdicts {
			if same := &o.Verdicts[j]; same.Key == v.Key && same.Limiter.Limit().Name == name {
				sum += same.Units // at most maxTakes * maxUnits, which an int64 can hold
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

// readCount reads a request about a count of a limit of the rules. The request may have more fields.
func (r *request) readCount(more ...field) (httplimit.Verdict, error) {
	of := question{units: 1}
	return r.readVerdict(&of, append(r.countFields(&of), more...))
}

// readQuestion reads a request for units of a limit of the rules. The request may have more fields. The
// Verdict is the only Verdict of the Outcome, and its limit has not decided yet. spends is as in questionFields.
func (r *request) readQuestion(spends bool, more ...field) (*httplimit.Verdict, *httplimit.Outcome, error) {
	var of question
	v, err := r.readVerdict(&of, append(r.questionFields(&of, spends), more...))
	o := &httplimit.Outcome{Snapshot: r.rules, Verdicts: []httplimit.Verdict{v}}
	return &o.Verdicts[0], o, err
}

// readVerdict reads the body, whose fields include the fields of a question, and returns its Verdict.
func (r *request) readVerdict(asked *question, fields []field) (v httplimit.Verdict, err error) {
	if err := r.body(fields...); err != nil {
		return v, err
	}
	if v, err = asked.newVerdict(r.rules); err == nil && v.Limiter.Node().UsesCallers() {
		r.Request = r.WithContext(weir.WithCaller(r.Context(), &weir.Caller{Tier: v.Tier}))
	}
	return v, err
}

// readPossible is like readQuestion, but refuses units that an enforced limit can never grant. Unless the rule
// is off, it also refuses a limit whose kind the path does not accept.
func (r *request) readPossible(spends bool, more ...field) (*httplimit.Verdict, *httplimit.Outcome, error) {
	v, o, err := r.readQuestion(spends, more...)
	if err == nil {
		err = checkPossible(o)
	}
	if err == nil && v.Mode != rules.Off {
		err = r.checkKind(v.Limiter.Limit())
	}
	return v, o, err
}

// mustAsk reports whether the caller must ask the limit. If not, mustAsk has set the Decision: a rule that
// is off grants all units, a block denies, and a shadow denies more units than it can ever grant.
func mustAsk(o *httplimit.Outcome, v *httplimit.Verdict) bool {
	l := v.Limiter.Limit()
	if v.Mode == rules.Off {
		v.Decision = httplimit.Unasked(l)
		return false
	}
	if o.RefuseBlocked(time.Now()) {
		return false
	}
	if most := rules.Capacity(l); v.Units > most {
		v.Decision = weir.Decision{Name: l.Name, Limit: most}
		return false
	}
	return true
}

// askedLimiter returns the Limiter to ask. For a shadow, this is a Limiter that counts decisions separately.
func askedLimiter(v *httplimit.Verdict) *weir.Limiter {
	if v.Mode == rules.Shadow {
		return v.Limiter.Shadow()
	}
	return v.Limiter
}

// mayOverrun reports whether the overrun of the rule may grant units that the limit has denied.
func mayOverrun(v *httplimit.Verdict) bool {
	return v.Mode == rules.Enforce && !v.Decision.Allowed && v.Overrun != nil && v.Decision.Source != weir.FailedClosed
}

// countDenial counts the denial of a limit that was asked directly.
func countDenial(o *httplimit.Outcome, v *httplimit.Verdict) {
	if !v.Decision.Allowed {
		o.Snapshot.CountDenial(v.Rule, v.Tier, v.Mode)
	}
}

// showOnly converts the only Verdict of an Outcome, and sets the header fields for it.
func showOnly(o *httplimit.Outcome, h http.Header) Take {
	v := &o.Verdicts[0]
	switch {
	case o.Status != 0 || v.Mode != rules.Enforce || v.Decision.Allowed:
	case v.Decision.Source == weir.FailedClosed:
		o.Status = http.StatusServiceUnavailable
	default:
		o.Status = http.StatusTooManyRequests
	}
	answer := showVerdict(v, time.Now())
	if answer.Allowed = o.Status == 0; answer.Allowed {
		answer.RetryAfterS = 0
	}
	httplimit.SetHeader(h, o)
	return answer
}

// takeUnits spends units of a limit in the rules.
func (a *api) takeUnits(r *request) (int, any, error) {
	var atMost bool
	v, o, err := r.readQuestion(true, field{name: "at_most", into: &atMost})
	granted := int64(0)
	switch {
	case err != nil:
	case atMost:
		granted, err = r.takeAtMost(v, o)
	default:
		err = a.judge(r.Context(), o)
	}
	if err != nil {
		return 0, nil, err
	}
	answer := showOnly(o, r.w.Header())
	answer.Granted = granted
	return http.StatusOK, answer, nil
}

// takeAtMost spends as many of the units as there is room for, and returns their number. If the limit denies,
// takeAtMost asks the overrun of the rule in the same way. If the rule is not enforced, all units are granted.
func (r *request) takeAtMost(v *httplimit.Verdict, o *httplimit.Outcome) (granted int64, err error) {
	units := v.Units
	if v.Mode != rules.Off {
		if err := r.checkKind(v.Limiter.Limit()); err != nil {
			return 0, err
		}
		v.Units = min(units, rules.Capacity(v.Limiter.Limit()))
	}
	if mustAsk(o, v) {
		if v.Decision, granted, err = askedLimiter(v).AllowAtMost(r.Context(), v.Key, units); err == nil && mayOverrun(v) {
			var over weir.Decision
			if over, granted, err = v.Overrun.AllowAtMost(r.Context(), v.Key, units); over.Allowed {
				v.Soft, v.Decision.Allowed, v.Decision.RetryAfter = true, true, 0
			}
		}
	}
	countDenial(o, v)
	if v.Mode != rules.Enforce {
		granted = units
	}
	return granted, err
}

// requestAnswer is the response to POST /v1/request.
type requestAnswer struct {
	Allowed     bool   `json:"allowed"`
	Status      int    `json:"status"`
	RetryAfterS int64  `json:"retry_after_s"`
	Soft        bool   `json:"soft"`
	Limits      []Take `json:"limits"`

	Off    []string      `json:"off,omitempty"` // rules that the request would meet if they were not off
	Denial *denialAnswer `json:"denial,omitempty"`

	Holds        []carried `json:"holds,omitempty"`
	Reservations []carried `json:"reservations,omitempty"`
}

// denialAnswer is the body of a denial for the client, in the form that its Accept prefers.
type denialAnswer struct {
	ContentType string `json:"content_type"`
	Body        string `json:"body"`
}

// carried is a hold or a reservation of a request. It is a valid body for release and renew, or for settle
// once the units are added.
type carried struct {
	Limit       string `json:"limit"`
	Key         string `json:"key"`
	Tier        string `json:"tier,omitempty"`
	Hold        string `json:"hold,omitempty"`
	Reservation string `json:"reservation,omitempty"`
}

// request decides on a request that the caller describes, as a Middleware decides on a request that it
// receives. So request accepts every path that a client can send, and treats an unknown tier as the default
// tier. With a ttl, the caller ends the described request by releasing its holds and settling its reservations.
func (a *api) request(r *request) (int, any, error) {
	of := rules.Request{Method: http.MethodGet, Header: make(http.Header)}
	var ttl time.Duration
	if err := r.body(
		field{name: "method", into: &of.Method}, field{name: "path", into: &of.Path, required: true},
		field{name: "host", into: &of.Host}, field{name: "ip", into: &of.Client},
		field{name: "user", into: &of.User}, field{name: "api_key", into: &of.APIKey},
		field{name: "tier", into: &of.Tier}, field{name: "length", into: &of.Length, most: maxUnits},
		field{name: "headers", into: of.Header}, ttlField(&ttl), field{name: "critical", into: &of.Critical},
	); err != nil {
		return 0, nil, err
	}
	of.Path, of.Query, _ = strings.Cut(of.Path, "?")
	if of.Path == "" || of.Path[0] != '/' && of.Path != "*" {
		return 0, nil, refuse(http.StatusBadRequest, "path is %q: use one that begins with /, escaped as in the request", shorten(of.Path))
	}
	o, holds, reservations := a.lenient.CheckFor(r.Context(), &of, ttl)
	switch {
	case o.Status == http.StatusBadRequest:
		return 0, nil, refuse(http.StatusBadRequest, "%s", o.Err)
	case o.Err != nil:
		return 0, nil, o.Err
	}
	httplimit.SetHeader(r.w.Header(), &o)
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
	} else {
		contentType, body := o.Body(of.Header["Accept"])
		answer.Denial = &denialAnswer{contentType, string(body)}
	}
	for _, rule := range o.Snapshot.MatchOff(&of) {
		answer.Off = append(answer.Off, rule.Name)
	}
	now := time.Now()
	for i := range o.Verdicts {
		answer.Limits = append(answer.Limits, showVerdict(&o.Verdicts[i], now))
	}
	return http.StatusOK, answer, nil
}
