package admin

import (
	"net/http"
	"net/netip"

	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/rules"
)

// rulesAnswer is the response to GET /v1/rules.
type rulesAnswer struct {
	rulesState
	Source    string       `json:"source"`
	LastError string       `json:"last_error"`
	Enabled   bool         `json:"enabled"`
	Tiers     []string     `json:"tiers"`
	Times     []string     `json:"times"`
	Rules     []ruleAnswer `json:"rules"`
}

// ruleAnswer is a rule with the mode and the numbers in force. Exemptions are not shown, because they may
// contain API keys.
type ruleAnswer struct {
	Name     string            `json:"name"`
	Match    matchAnswer       `json:"match"`
	Key      string            `json:"key"`
	Cost     string            `json:"cost"`
	Limits   []limitAnswer     `json:"limits"`
	Critical []exceptionAnswer `json:"critical,omitempty"`
	Mode     string            `json:"mode"`
	Switch   *switchAnswer     `json:"switch,omitempty"`
	Soft     *softAnswer       `json:"soft,omitempty"`
	Queue    string            `json:"queue,omitempty"`
	Adapt    *adaptAnswer      `json:"adapt,omitempty"`
}

type matchAnswer struct {
	Methods []string            `json:"methods,omitempty"`
	Hosts   []string            `json:"hosts,omitempty"`
	Path    string              `json:"path,omitempty"`
	Headers map[string][]string `json:"headers,omitempty"`
	Tiers   []string            `json:"tiers,omitempty"`
	clientsAnswer
	Not []exceptionAnswer `json:"not,omitempty"`
}

type exceptionAnswer struct {
	Methods []string            `json:"methods,omitempty"`
	Hosts   []string            `json:"hosts,omitempty"`
	Paths   []string            `json:"paths,omitempty"`
	Headers map[string][]string `json:"headers,omitempty"`
	Tiers   []string            `json:"tiers,omitempty"`
	clientsAnswer
}

// clientsAnswer is a condition on clients. It has only the number of API keys, because API keys are secret.
type clientsAnswer struct {
	IPs     []netip.Prefix `json:"ips,omitempty"`
	Users   []string       `json:"users,omitempty"`
	APIKeys int            `json:"api_keys,omitempty"`
}

func showClients(c *rules.Clients) clientsAnswer {
	return clientsAnswer{c.Networks, c.Users, c.APIKeys()}
}

type limitAnswer struct {
	Name   string            `json:"name"`
	Policy string            `json:"policy"`
	Tiers  map[string]string `json:"tiers,omitempty"`
	Values int               `json:"values,omitempty"`
	Warn   float64           `json:"warn,omitempty"`
}

type adaptAnswer struct {
	Latency string  `json:"latency"`
	Slow    float64 `json:"slow"`
	Errors  float64 `json:"errors"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Factor
}

type softAnswer struct {
	Over float64 `json:"over"`
	For  string  `json:"for"`
}

// rules returns the current rules, and the reason why the present text of the source was refused or could not be
// read.
func (a *api) rules(r *request) (int, any, error) {
	s, stats := r.rules, a.book.Stats()
	answer := rulesAnswer{
		rulesState: showState(&stats), Source: stats.Source, Enabled: s.Enabled(),
		Tiers: append([]string{}, s.Tiers()...), Times: append([]string{}, s.OpenTimeWindows()...), Rules: make([]ruleAnswer, len(s.Rules())),
	}
	if stats.LastError != nil {
		answer.LastError = stats.LastError.Error()
	}
	for i, r := range s.Rules() {
		answer.Rules[i] = showRule(s, r)
	}
	return http.StatusOK, answer, nil
}

func showRule(s *rules.Snapshot, r *rules.Rule) ruleAnswer {
	a := ruleAnswer{
		Name: r.Name, Key: r.By, Cost: r.Cost, Mode: s.Mode(r).String(),
		Match: matchAnswer{Methods: r.When.Methods, Hosts: r.When.Hosts, Path: r.When.Path, Headers: showHeaders(r.When.Headers), Tiers: r.When.Tiers, clientsAnswer: showClients(&r.When.Clients)},
	}
	if w, ok := s.SwitchOf(r); ok {
		a.Switch = showSwitch(w)
	}
	for i := range r.When.Not {
		a.Match.Not = append(a.Match.Not, showException(&r.When.Not[i]))
	}
	for i := range r.Critical {
		a.Critical = append(a.Critical, showException(&r.Critical[i]))
	}
	if r.Soft.Over > 0 {
		a.Soft = &softAnswer{r.Soft.Over, enum.Duration(r.Soft.For)}
	}
	if r.Queue > 0 {
		a.Queue = enum.Duration(r.Queue)
	}
	if state, ok := s.Adaptation(r); ok {
		a.Adapt = &adaptAnswer{enum.Duration(r.Adapt.Latency), r.Adapt.Slow, r.Adapt.Errors, r.Adapt.Min, r.Adapt.Max, showFactor(state)}
	}
	for i := range r.Limits {
		l := s.InForce(&r.Limits[i])
		limit := limitAnswer{Name: l.Name, Policy: rules.Describe(l.ForTier("")), Tiers: make(map[string]string), Values: l.Values(), Warn: l.Warn}
		for _, tier := range s.Tiers() {
			if policy := rules.Describe(l.ForTier(tier)); policy != limit.Policy {
				limit.Tiers[tier] = policy
			}
		}
		a.Limits = append(a.Limits, limit)
	}
	return a
}

func showException(e *rules.Exception) exceptionAnswer {
	return exceptionAnswer{e.Methods, e.Hosts, e.Paths, showHeaders(e.Headers), e.Tiers, showClients(&e.Clients)}
}

func showHeaders(headers []rules.Header) map[string][]string {
	values := make(map[string][]string)
	for _, h := range headers {
		values[h.Name] = append([]string{}, h.Values...)
	}
	return values
}
