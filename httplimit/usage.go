package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/rules"
)

// Usage has the limits of a caller.
type Usage struct {
	Tier   string       `json:"tier"` // the tier whose numbers apply; empty if there is none
	Exempt bool         `json:"exempt"`
	Limits []LimitUsage `json:"limits"` // limits of the caller, in the order of the rules
}

// LimitUsage is the state of a limit for a caller.
type LimitUsage struct {
	Rule       string `json:"rule"`
	Name       string `json:"name"` // name of the limit: the rule, or RULE/LIMIT
	Limit      int64  `json:"limit"`
	Used       int64  `json:"used"`
	Remaining  int64  `json:"remaining"`
	Window     string `json:"window,omitempty"`      // such as 1h or day; empty for in_flight
	Reset      int64  `json:"reset"`                 // time at which the whole limit is available, in Unix seconds
	RetryAfter int64  `json:"retry_after,omitempty"` // seconds until a unit is available, if none is
}

const (
	usageTimeout = time.Second // timeout of the requests for all limits; after it, the share of this node decides
	usageWorkers = 16          // number of limits that are asked at the same time
)

// UsageOf returns the limits of the caller of r, and spends no units. If the Path of r is empty, UsageOf
// considers all rules that the caller's requests can meet, and otherwise the rules that r meets. The Usage
// has only limits of enforced rules whose key identifies the caller (rules.Rule.OwnKey), and whose counts
// are known. UsageOf asks the owners of at most rules.MaxMet counts, and takes about a second at most. The
// error is weir.ErrClosed, or that of ctx.
func (m *Middleware) UsageOf(ctx context.Context, r *rules.Request) (Usage, error) {
	var s scratch
	s.request = *r
	u := Usage{Limits: []LimitUsage{}}
	if m.one != nil {
		s.rules = []*rules.Rule{m.one.rule}
	} else {
		now := m.book.Current()
		s.outcome.Snapshot = now
		u.Tier, u.Exempt = now.Tier(r.Tier), now.Exempt(r)
		if r.Path == "" {
			s.rules = now.MatchCaller(r, nil)
		} else {
			s.rules = now.Match(r, nil)
		}
	}
	verdicts := m.ownVerdicts(&s)
	if err := peekAll(ctx, verdicts); err != nil {
		return Usage{}, err
	}
	now := m.now()
	for i := range verdicts {
		v := &verdicts[i]
		d := &v.Decision
		if !v.hasState() {
			continue
		}
		l := LimitUsage{Rule: v.Rule.Name, Name: d.Name, Limit: d.Limit, Used: d.Limit - d.Remaining, Remaining: d.Remaining, Window: windowOf(v.Limiter.Limit()), Reset: resetOf(now, d)}
		if !d.Allowed {
			l.RetryAfter = int64((d.RetryAfter + time.Second - 1) / time.Second)
		}
		u.Limits = append(u.Limits, l)
	}
	return u, nil
}

// ownVerdicts returns a Verdict for each limit of the rules whose key identifies the caller.
func (m *Middleware) ownVerdicts(s *scratch) (all []Verdict) {
	for _, rule := range s.rules {
		key, ok := rule.OwnKey(&s.request)
		if !ok {
			continue
		}
		if m.one != nil {
			return []Verdict{{Rule: rule, Limiter: m.one.limiter, Key: key}}
		}
		if s.outcome.Snapshot.ModeFor(rule, key) != rules.Enforce {
			continue
		}
		for i := range rule.Limits {
			if len(all) == rules.MaxMet {
				return all
			}
			all = append(all, Verdict{Rule: rule, Key: key, Limiter: s.outcome.Snapshot.Limiter(&rule.Limits[i], s.request.Tier, key)})
		}
	}
	return all
}

// peekAll sets the Decisions, without spending units.
func peekAll(ctx context.Context, verdicts []Verdict) error {
	within, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	var asking errgroup.Group
	asking.SetLimit(usageWorkers)
	for i := range verdicts {
		v := &verdicts[i]
		asking.Go(func() (err error) {
			v.Decision, err = v.Limiter.Peek(within, v.Key)
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// windowOf returns the window of a limit as text, or "" for an InFlight limit.
func windowOf(l weir.Limit) string {
	switch {
	case l.Calendar != weir.NoCalendar:
		return l.Calendar.String()
	case l.Algorithm == weir.InFlight:
		return ""
	}
	return enum.Duration(l.Per)
}

// Usage returns a handler that answers GET and HEAD with the Usage of its caller, as JSON. The Options
// identify the caller as they do for Handler, so that callers cannot ask about each other. The parameters
// path and method select the limits of a request; without them, all limits of the caller are shown. The
// handler spends no units, so its route should be outside of Handler, or in match.not of the rules. A
// Handler in front of the route can limit it by a rule of its own.
func (m *Middleware) Usage() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setFields(w.Header(), []string{"Cache-Control", "X-Content-Type-Options"}, []string{"no-store", "nosniff"})
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			sendProblem(w, http.StatusMethodNotAllowed, "use GET")
			return
		}
		caller, err := m.callerOf(r)
		if err != nil {
			sendProblem(w, http.StatusBadRequest, err.Error())
			return
		}
		if m.book != nil {
			o := Outcome{Snapshot: m.book.Current()}
			if b := o.Snapshot.Block(&caller); b != nil {
				o.refuseBy(b, m.now())
				o.write(w, r)
				return
			}
		}
		u, err := m.UsageOf(r.Context(), &caller)
		if err != nil {
			m.logUncounted(err)
			sendProblem(w, http.StatusServiceUnavailable, "the limits cannot be read at the moment")
			return
		}
		sendJSON(w, "application/json", http.StatusOK, u)
	})
}

// callerOf returns the Request of a caller, with the method and path of the parameters.
func (m *Middleware) callerOf(r *http.Request) (rules.Request, error) {
	caller := m.Request(r)
	caller.Method, caller.Path = http.MethodGet, ""
	q := r.URL.Query()
	if !q.Has("path") {
		if q.Has("method") {
			return caller, errors.New("the parameter method needs the parameter path: add path, or leave method out")
		}
		return caller, nil
	}
	target, err := url.ParseRequestURI(q.Get("path"))
	if err != nil || !strings.HasPrefix(q.Get("path"), "/") {
		return caller, fmt.Errorf("path is %q: use a path with its escapes, like /v1/items", q.Get("path"))
	}
	caller.SetURL(target)
	if method := q.Get("method"); method != "" {
		caller.Method = method
	}
	return caller, nil
}

func sendProblem(w http.ResponseWriter, status int, detail string) {
	sendJSON(w, "application/problem+json", status, Problem{Type: noTypeOfProblem, Title: http.StatusText(status), Status: status, Detail: detail})
}

func sendJSON(w http.ResponseWriter, contentType string, status int, answer any) {
	text, _ := json.Marshal(answer) // never fails for texts and numbers
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}
