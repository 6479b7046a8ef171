package httplimit

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/pathform"
	"github.com/weir-go/weir/internal/ratelimit"
	"github.com/weir-go/weir/internal/spelling"
	"github.com/weir-go/weir/rules"
)

// CheckOptions say who may ask for checks. Tokens, MutualTLS or Open must be there.
type CheckOptions struct {
	Tokens      [][]byte                     // as in AdminOptions; those of services, who need not be able to lift limits
	MutualTLS   bool                         // as in AdminOptions
	Certificate func(*x509.Certificate) bool // as in AdminOptions
	Open        bool                         // whoever reaches the address may ask: for a loopback's, or a UNIX socket. Not with the others
	Logger      *slog.Logger                 // what failed; slog.Default if nil. Never sees a key
}

// Checks is the part of Admin that services in other languages need, for an address of its
// own: POST /v1/request decides on a request by the rules, POST /v1/take by one limit of
// theirs, POST /v1/take_all by several, all or none, and POST /v1/check by a limit that the question brings along. Whoever may ask
// can use up any limit, and change none. Bounds and errors are those of Admin.
func Checks(node *weir.Node, book *rules.Book, o CheckOptions) (http.Handler, error) {
	if node == nil {
		return nil, fmt.Errorf("%w httplimit.Checks: it needs a node", weir.ErrInvalid)
	}
	var gate *adminGate
	switch guarded := len(o.Tokens) > 0 || o.MutualTLS || o.Certificate != nil; {
	case o.Open && guarded:
		return nil, fmt.Errorf("%w CheckOptions: Open is set, and so is who may ask: leave one of them out", weir.ErrInvalid)
	case !o.Open:
		var err error
		if gate, err = newAdminGate(AdminOptions{Tokens: o.Tokens, MutualTLS: o.MutualTLS, Certificate: o.Certificate}); err != nil {
			return nil, err
		}
	}
	var routes []adminRoute
	for _, r := range adminRoutes {
		switch r.path {
		case "/v1/check", "/v1/take", "/v1/take_all", "/v1/request", "/openapi.json":
			routes = append(routes, r)
		}
	}
	return routed(node, book, gate, o.Logger, routes)
}

// takeAnswer is what one limit says.
type takeAnswer struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Shadow bool   `json:"shadow"`
	numbersLeft
}

// taking is a question for units of one limit of the rules.
type taking struct {
	name, key, tier string
	units           int64

	rule    *rules.Rule // by resolve
	limiter *weir.Limiter
}

func (t *taking) fields() []adminField {
	t.units = 1
	return []adminField{
		{name: "limit", into: &t.name, required: true}, {name: "key", into: &t.key, required: true},
		{name: "units", into: &t.units}, {name: "tier", into: &t.tier},
	}
}

// check notes what is wrong with it.
func (t *taking) check(wrong *adminWrongs, s *rules.Snapshot) {
	wrong.key(t.key)
	wrong.between("units", t.units, 1, adminMaxUnits)
	wrong.tier(t.tier, s)
}

// resolve finds its limit. The error says that there is none.
func (t *taking) resolve(s *rules.Snapshot) error {
	of, err := adminLimit(s, t.name)
	if err != nil {
		return err
	}
	_, t.rule, _ = s.Limit(t.name)
	t.limiter = s.Limiter(of, t.tier, t.key)
	return nil
}

// possible returns an error for what is more than the limit can ever grant.
func (t *taking) possible() error {
	if most := rules.Capacity(t.limiter.Limit()); t.units > most {
		return adminRefusal(http.StatusRequestEntityTooLarge, "units is %d: more than the %d that %s can ever grant", t.units, most, t.name)
	}
	return nil
}

func (t *taking) answer(d weir.Decision, now time.Time) takeAnswer {
	return takeAnswer{t.name, d.Source.String(), t.rule.Shadow, statusLeft(d, t.limiter, now)}
}

// take asks one limit of the rules for units.
func (a *admin) take(r *adminRequest) (int, any, error) {
	s, err := a.current()
	if err != nil {
		return 0, nil, err
	}
	var t taking
	if err := r.body(t.fields()...); err != nil {
		return 0, nil, err
	}
	var wrong adminWrongs
	t.check(&wrong, s)
	if err := wrong.err(); err != nil {
		return 0, nil, err
	}
	if err := t.resolve(s); err != nil {
		return 0, nil, err
	}
	if err := t.possible(); err != nil {
		return 0, nil, err
	}
	d, err := t.limiter.AllowN(r.Context(), t.key, t.units)
	if err != nil {
		return 0, nil, err
	}
	h := r.w.Header()
	h.Set(ratelimit.PolicyField, string(ratelimit.AppendPolicy(nil, t.limiter.Limit(), false)))
	h.Set(ratelimit.StateField, string(ratelimit.AppendState(nil, &d, t.limiter)))
	tellRetry(h, &d)
	return http.StatusOK, t.answer(d, time.Now()), nil
}

// tellRetry says in the header when to come back, as a denial's body does: for clients
// that hand it on.
func tellRetry(h http.Header, d *weir.Decision) {
	if !d.Allowed {
		h.Set("Retry-After", strconv.FormatInt(ratelimit.Seconds(d.RetryAfter), 10))
	}
}

// tier notes a tier that the rules do not have.
func (w *adminWrongs) tier(tier string, s *rules.Snapshot) {
	for _, known := range s.Tiers() {
		if tier == known {
			return
		}
	}
	if tier != "" {
		w.add("there is no tier %q: %s", tier, spelling.Meant(tier, s.Tiers()))
	}
}

// requestAnswer is what the rules say of a request.
type requestAnswer struct {
	Allowed     bool         `json:"allowed"`
	Status      int          `json:"status"`
	RetryAfterS int64        `json:"retry_after_s"`
	Soft        bool         `json:"soft"`
	Limits      []takeAnswer `json:"limits"`
}

// request decides on a request that is described, as a Middleware does on one that it sees.
func (a *admin) request(r *adminRequest) (int, any, error) {
	s, err := a.current()
	if err != nil {
		return 0, nil, err
	}
	of := rules.Request{Method: http.MethodGet, Header: make(http.Header)}
	var headers map[string]string
	if err := r.body(
		adminField{name: "method", into: &of.Method}, adminField{name: "path", into: &of.Path, required: true},
		adminField{name: "host", into: &of.Host}, adminField{name: "ip", into: &of.Client},
		adminField{name: "user", into: &of.User}, adminField{name: "api_key", into: &of.APIKey},
		adminField{name: "tier", into: &of.Tier}, adminField{name: "length", into: &of.Length},
		adminField{name: "headers", into: &headers},
	); err != nil {
		return 0, nil, err
	}
	var wrong adminWrongs
	wrong.between("length", of.Length, 0, adminMaxUnits)
	wrong.tier(of.Tier, s)
	if of.Path == "" || of.Path[0] != '/' {
		wrong.add("path is %q: use one that begins with /, escaped as in the request", adminShort(of.Path))
	} else if why := pathform.Ambiguity(of.Path); why != "" {
		wrong.add("path has %s, which servers read in several ways: write it plainly", why)
	}
	if err := wrong.err(); err != nil {
		return 0, nil, err
	}
	for name, value := range headers {
		of.Header.Set(name, value)
	}
	o := a.rulesOf.Check(r.Context(), &of)
	if o.Err != nil {
		return 0, nil, o.Err
	}
	answer := requestAnswer{o.Status == 0, o.Status, ratelimit.Seconds(o.RetryAfter()), o.Soft(), []takeAnswer{}}
	if answer.Allowed {
		answer.Status = http.StatusOK
	}
	now := time.Now()
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		answer.Limits = append(answer.Limits, takeAnswer{v.Limiter.Limit().Name, v.Decision.Source.String(), v.Rule.Shadow, statusLeft(v.Decision, v.Limiter, now)})
	}
	return http.StatusOK, answer, nil
}
