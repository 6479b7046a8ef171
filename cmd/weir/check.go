package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	envoylimit "github.com/weir-go/weir/contrib/envoy"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/rules"
)

// rulesCommand checks rules, or shows the rules that a request matches.
type rulesCommand struct {
	File    string     `arg:"" help:"a rules file, a directory of files *.yaml, or a URL"`
	At      time.Time  `placeholder:"TIME" help:"the moment at which the times of the file are checked, such as 2026-12-31T09:00:00Z; now by default"`
	Request string     `group:"request" placeholder:"'METHOD URL'" help:"the method and URL of the request, such as 'GET https://api.example.com/v1/items'"`
	Header  []string   `group:"request" sep:"none" placeholder:"'NAME: VALUE'" help:"a header field of the request; may be repeated"`
	IP      netip.Addr `group:"request" name:"ip" placeholder:"ADDRESS" help:"the address of the client"`
	User    string     `group:"request" placeholder:"NAME" help:"the user"`
	APIKey  string     `group:"request" name:"api_key" placeholder:"KEY" help:"the API key"`
	Tier    string     `group:"request" placeholder:"NAME" help:"the tier of the user"`
	Length  int64      `group:"request" placeholder:"BYTES" help:"the length of the content in bytes"`

	request rules.Request // set by Validate from the flags
}

// Validate parses the request.
func (c *rulesCommand) Validate() error {
	c.request = rules.Request{Header: make(http.Header), Client: c.IP, User: c.User, APIKey: c.APIKey, Tier: c.Tier, Length: c.Length}
	for _, field := range c.Header {
		if err := header(&c.request, field); err != nil {
			return fmt.Errorf("-header: %w", err)
		}
	}
	switch {
	case c.Request != "":
		if err := request(&c.request, c.Request); err != nil {
			return fmt.Errorf("-request: %w", err)
		}
	case len(c.Header) > 0 || c.IP.IsValid() || c.User != "" || c.APIKey != "" || c.Tier != "" || c.Length != 0:
		return errors.New("-request is missing: the other flags describe a request")
	}
	return nil
}

func (c *rulesCommand) run(stdout, _ io.Writer) (int, error) {
	text, err := readRules(c.File)
	if err != nil {
		return bad, err
	}
	set, err := rules.Parse(text.Name, text.Bytes)
	if err != nil {
		return bad, err
	}
	limits := 0
	for _, rule := range set.Rules() {
		limits += len(rule.Limits)
	}
	fmt.Fprintf(stdout, "%s is good: %s, %s, version %d\n", c.File, counted(len(set.Rules()), "rule"), counted(limits, "limit"), set.Version())
	for _, warning := range set.Warnings() {
		fmt.Fprintf(stdout, "warning: %v\n", warning)
	}
	if !set.Enabled() {
		fmt.Fprintln(stdout, "The file switches all rules off: no rule applies to a request.")
	}
	if c.At.IsZero() {
		c.At = time.Now()
	}
	for _, w := range set.TimeWindows() {
		fmt.Fprintf(stdout, "time %s: %s: %s\n", w.Name, w, describeTime(w, c.At))
	}
	if c.Request != "" {
		explain(stdout, set, &c.request, c.At)
	}
	return ok, nil
}

// request parses "METHOD URL"; a missing method is GET.
func request(r *rules.Request, text string) error {
	method, address, found := strings.Cut(strings.TrimSpace(text), " ")
	if !found {
		method, address = http.MethodGet, method
	}
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil {
		return err
	}
	if u.Host == "" && !strings.HasPrefix(u.Path, "/") {
		return fmt.Errorf("%q is neither a URL, like https://api.example.com/v1, nor a path, like /v1", address)
	}
	r.Method, r.Host = strings.ToUpper(method), u.Host
	r.SetURL(u)
	return nil
}

func header(r *rules.Request, text string) error {
	name, value, found := strings.Cut(text, ":")
	if name = strings.TrimSpace(name); !found || name == "" {
		return fmt.Errorf("%q is not a header field: use 'Name: value'", text)
	}
	r.Header.Add(name, strings.TrimSpace(value))
	return nil
}

// explain prints the rules that a request matches, with the key and the cost for each
// rule.
func explain(w io.Writer, set *rules.Set, r *rules.Request, at time.Time) {
	fmt.Fprintf(w, "\n%s %s%s", r.Method, r.Host, r.Path)
	if tier := set.Tier(r.Tier); tier != "" {
		fmt.Fprintf(w, " in tier %s", tier)
	}
	if r.Tier != "" && set.Tier(r.Tier) != r.Tier {
		fmt.Fprintf(w, " (the rules file has no tier %q)", r.Tier)
	}
	met := set.Match(r, nil)
	switch {
	case !set.Enabled():
		fmt.Fprintln(w, " meets no rule: the limiter is switched off.")
	case set.Block(r) != nil:
		fmt.Fprintf(w, " is refused with 403: %s.\n", describeBlock(set.Block(r)))
		return
	case set.Exempt(r):
		fmt.Fprintln(w, " meets no rule: it is exempt.")
	case len(met) == 0:
		fmt.Fprintln(w, " meets no rule.")
	default:
		fmt.Fprintf(w, " meets %s:\n", counted(len(met), "rule"))
	}
	for _, rule := range met {
		explainRule(w, set, rule, r, at)
	}
	if set.Enabled() {
		for _, rule := range set.MatchOff(r) {
			fmt.Fprintf(w, "\n%s: path %s\n  does not apply: the rule is off\n", rule.Name, rule.When.Path)
		}
	}
	for _, out := range set.Excluded(r) {
		fmt.Fprintf(w, "\n%s: path %s\n  does not apply: the request meets the exception: %s\n", out.Rule.Name, out.Rule.When.Path, out.By)
	}
}

// describeTime describes whether a time window is open.
func describeTime(w *rules.TimeWindow, at time.Time) string {
	text := "not now"
	if w.IsOpen(at) {
		text = "now"
	}
	if next := w.Next(at); !next.IsZero() {
		text += ", until " + next.Format("Mon "+time.RFC3339)
	}
	return text
}

// describeBlock describes a block, without a user or an API key.
func describeBlock(b *rules.Block) string {
	text := "deny has its " + b.Kind.String()
	if b.Kind == rules.BlockIP {
		text += " in " + b.Network.String()
	}
	if !b.Until.IsZero() {
		text += " until " + b.Until.Format(time.RFC3339)
	}
	if b.Reason != "" {
		text += fmt.Sprintf(" (%s)", b.Reason)
	}
	return text
}

func explainRule(w io.Writer, set *rules.Set, rule *rules.Rule, r *rules.Request, at time.Time) {
	fmt.Fprintf(w, "\n%s: path %s\n", rule.Name, rule.When.Path)
	for i := range rule.When.Not {
		fmt.Fprintf(w, "  not:   %s\n", &rule.When.Not[i])
	}
	key, has := rule.Key(r)
	if !has {
		fmt.Fprintf(w, "  does not apply: the request lacks a part of the key %s\n", rule.By)
		return
	}
	if b := set.KeyBlock(rule, key); b != nil && set.Mode(rule) == rules.Enforce {
		fmt.Fprintf(w, "  the request is refused with 403: %s\n", describeBlock(b))
	}
	if part := rule.AmbiguousPart(r); part != "" && set.Mode(rule) == rules.Enforce {
		fmt.Fprintf(w, "  the request is refused with 400: servers interpret %s of the request differently\n", part)
	}
	units := rule.Units(r)
	fmt.Fprintf(w, "  key:   %s, by %s\n", shown(key), rule.By)
	estimate := units
	if rule.Estimates() {
		estimate = rule.Estimate(r)
		fmt.Fprintf(w, "  cost:  %s spent ahead%s\n", counted(int(estimate), "unit"), costSource(rule.Reserve, estimate))
	} else {
		fmt.Fprintf(w, "  cost:  %s%s\n", counted(int(units), "unit"), costSource(rule.Cost, units))
	}
	if len(rule.Count) > 0 {
		fmt.Fprintf(w, "  count: responses of %s\n", rule.Count)
	}
	if len(rule.RefundOn) > 0 {
		fmt.Fprintf(w, "  refund_on: responses of %s\n", rule.RefundOn)
	}
	for i := range rule.Limits {
		l := rule.Limits[i].At(at).ForKey(r.Tier, key)
		fmt.Fprintf(w, "  limit: %s: %s\n", l.Name, rules.Describe(l))
		if l.Keep > 0 && set.IsCritical(rule, r) {
			fmt.Fprintf(w, "         critical: the request may spend the %d kept units\n", l.Keep)
			l.Keep = 0
		}
		if warn := rule.Limits[i].Warn; warn > 0 {
			fmt.Fprintf(w, "  warn:  from %g %% of it\n", warn*100)
		}
		costs := estimate
		if rule.Limits[i].InFlight() {
			costs = units
		}
		if costs > rules.Capacity(l) {
			fmt.Fprintf(w, "         never allowed: the cost exceeds the %d units that the limit can grant\n", rules.Capacity(l))
		}
	}
	if rule.Adapt != nil {
		fmt.Fprintf(w, "  adapt: %s\n", rule.Adapt)
	}
	if r := rule.Raise; r != nil {
		fmt.Fprintf(w, "  raise: up to %g times for keys of which %.4g%% is denied for %s\n", r.Most, r.Denied*100, enum.Duration(r.For))
	}
	switch mode := set.Mode(rule); {
	case mode == rules.Shadow:
		fmt.Fprintln(w, "  shadow: the limiter counts the decisions, and never enforces them")
	case mode != rules.Enforce:
		fmt.Fprintf(w, "  enforce: for %v of the keys; for the other keys the limiter only counts the decisions\n", mode)
	}
	switch {
	case rule.Queue > 0:
		fmt.Fprintf(w, "  queue: the request waits up to %s in place of a denial\n", enum.Duration(rule.Queue))
	case rule.Soft.Over > 0:
		fmt.Fprintf(w, "  soft:  an overrun of %.4g%% in %s after a limit is exhausted; responses are marked\n", rule.Soft.Over*100, enum.Duration(rule.Soft.For))
	}
	if units == 0 {
		fmt.Fprintln(w, "  the request spends no units")
	}
}

// costSource returns the source of a cost, or "" if the cost is a constant.
func costSource(cost string, units int64) string {
	if cost == fmt.Sprint(units) {
		return ""
	}
	return ", by " + cost
}

// shown returns a key, quoted if it would not be readable otherwise.
func shown(key string) string {
	if key == "" || strings.ContainsFunc(key, func(c rune) bool { return !strconv.IsPrint(c) }) {
		return strconv.Quote(key)
	}
	return key
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// envoyCommand checks a configuration of envoyproxy/ratelimit.
type envoyCommand struct {
	Path         string `arg:"" help:"a file or a directory"`
	MergeDomains bool   `help:"allow several files of the same domain"`
}

func (c *envoyCommand) run(stdout, _ io.Writer) (int, error) {
	cfg, err := loadEnvoy(c.Path, c.MergeDomains)
	if err != nil {
		return bad, err
	}
	fmt.Fprintf(stdout, "%s is good: %s\n", c.Path, strings.Join(cfg.Domains(), ", "))
	return ok, nil
}

func loadEnvoy(path string, merge bool) (*envoylimit.Config, error) {
	if merge {
		return envoylimit.LoadMerged(path)
	}
	return envoylimit.Load(path)
}
