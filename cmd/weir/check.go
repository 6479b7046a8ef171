package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	envoylimit "github.com/weir-go/weir/contrib/envoy"
	"github.com/weir-go/weir/internal/spelling"
	"github.com/weir-go/weir/rules"
)

// check says what is wrong with a file, or what a request meets.
func check(args []string, stdout, stderr io.Writer) int {
	r := rules.Request{Header: make(http.Header)}
	flags := flag.NewFlagSet("weir rules check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, help) }
	asked := false
	flags.Func("request", "", func(text string) error { asked = true; return request(&r, text) })
	flags.Func("header", "", func(text string) error { return header(&r, text) })
	flags.Func("ip", "", func(text string) (err error) { r.Client, err = netip.ParseAddr(text); return err })
	flags.StringVar(&r.User, "user", "", "")
	flags.StringVar(&r.APIKey, "api_key", "", "")
	flags.StringVar(&r.Tier, "tier", "", "")
	flags.Int64Var(&r.Length, "length", 0, "")
	files, err := interleaved(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ok
	case err != nil:
		return usage
	case len(files) != 1:
		return wrongly(stderr, "%d files: give one", len(files))
	case !asked && flags.NFlag() > 0:
		return wrongly(stderr, "no -request: the other flags are about one")
	}
	text, err := read(files[0])
	if err != nil {
		fmt.Fprintln(stderr, err)
		return bad
	}
	set, err := rules.Parse(files[0], text)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return bad
	}
	limits := 0
	for _, rule := range set.Rules() {
		limits += len(rule.Limits)
	}
	fmt.Fprintf(stdout, "%s is good: %s, %s, version %d\n", files[0], counted(len(set.Rules()), "rule"), counted(limits, "limit"), set.Version())
	if !set.Enabled() {
		fmt.Fprintln(stdout, "It switches the limiter off: no request meets a rule.")
	}
	if asked {
		explain(stdout, set, &r)
	}
	return ok
}

// maxFile is more than rules.Parse takes: of what never ends, as a device may, no more is
// read. A pipe is as good as a file here, since the caller that waits for it can stop waiting.
const maxFile = 8 << 20

func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// request reads "METHOD URL"; the method is GET if there is none.
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
	r.Method, r.Host, r.Path = strings.ToUpper(method), u.Host, u.EscapedPath()
	return nil
}

func header(r *rules.Request, text string) error {
	name, value, found := strings.Cut(text, ":")
	if name = strings.TrimSpace(name); !found || name == "" {
		return fmt.Errorf("%q is no field: use 'Name: value'", text)
	}
	r.Header.Add(name, strings.TrimSpace(value))
	return nil
}

// explain tells which rules a request meets, with which key, at what cost.
func explain(w io.Writer, set *rules.Set, r *rules.Request) {
	fmt.Fprintf(w, "\n%s %s%s", r.Method, r.Host, r.Path)
	if tier := set.Tier(r.Tier); tier != "" {
		fmt.Fprintf(w, " in tier %s", tier)
	}
	if r.Tier != "" && set.Tier(r.Tier) != r.Tier {
		fmt.Fprintf(w, " (the file has no tier %q)", r.Tier)
	}
	met := set.Match(r, nil)
	switch {
	case !set.Enabled():
		fmt.Fprintln(w, " meets no rule: the limiter is switched off.")
	case set.Exempt(r):
		fmt.Fprintln(w, " meets no rule: it is exempt.")
	case len(met) == 0:
		fmt.Fprintln(w, " meets no rule.")
	default:
		fmt.Fprintf(w, " meets %s:\n", counted(len(met), "rule"))
	}
	for _, rule := range met {
		explainRule(w, rule, r)
	}
	for _, out := range set.Excluded(r) {
		fmt.Fprintf(w, "\n%s: path %s\n  leaves the request out: not %s\n", out.Rule.Name, out.Rule.When.Path, out.By)
	}
}

func explainRule(w io.Writer, rule *rules.Rule, r *rules.Request) {
	fmt.Fprintf(w, "\n%s: path %s\n", rule.Name, rule.When.Path)
	for i := range rule.When.Not {
		fmt.Fprintf(w, "  not:   %s\n", &rule.When.Not[i])
	}
	key, has := rule.Key(r)
	if !has {
		fmt.Fprintf(w, "  does not apply: the request lacks a part of the key %s\n", rule.By)
		return
	}
	units := rule.Units(r)
	fmt.Fprintf(w, "  key:   %s, by %s\n", shown(key), rule.By)
	fmt.Fprintf(w, "  cost:  %s%s\n", counted(int(units), "unit"), by(rule.Cost, units))
	for i := range rule.Limits {
		l := rule.Limits[i].For(r.Tier)
		fmt.Fprintf(w, "  limit: %s: %s\n", l.Name, rules.Describe(l))
		if units > rules.Capacity(l) {
			fmt.Fprintf(w, "         never allowed: it costs more than the %d that the limit can grant\n", rules.Capacity(l))
		}
	}
	switch {
	case rule.Shadow:
		fmt.Fprintln(w, "  shadow: counted, and never enforced")
	case rule.Queue > 0:
		fmt.Fprintf(w, "  queue: waits up to %s for its turn\n", spelling.Duration(rule.Queue))
	case rule.Soft.Over > 0:
		fmt.Fprintf(w, "  soft:  %.4g%% more in %s, marked, once a limit is exhausted\n", rule.Soft.Over*100, spelling.Duration(rule.Soft.For))
	}
	if units == 0 {
		fmt.Fprintln(w, "  spends nothing")
	}
}

// by says where a cost is from, if it is not just a number.
func by(cost string, units int64) string {
	if cost == fmt.Sprint(units) {
		return ""
	}
	return ", by " + cost
}

// shown is a key as it is; in quotes, where it could not be read otherwise.
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

// checkEnvoy says what is wrong with a configuration of envoyproxy/ratelimit.
func checkEnvoy(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("weir envoy check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	merges := flags.Bool("merge_domains", false, "several files may have one domain")
	paths, err := interleaved(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ok
	case err != nil:
		return usage
	case len(paths) != 1:
		fmt.Fprintf(stderr, "weir envoy check: %d paths: give one, a file or a directory\n", len(paths))
		return usage
	}
	path, load := paths[0], envoylimit.Load
	if *merges {
		load = envoylimit.LoadMerged
	}
	cfg, err := load(path)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return bad
	}
	fmt.Fprintf(stdout, "%s is good: %s\n", path, strings.Join(cfg.Domains(), ", "))
	return ok
}
