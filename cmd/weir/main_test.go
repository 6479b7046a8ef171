package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rules"
)

const file = `
version: 3
tiers: {free: {}, paid: {multiply: 10}}
exempt: {user: root}
rules:
- {name: all, key: global, limit: {rate: 1000, per: 1s}}
- name: login
  match: {method: POST, path: /login}
  key: [user, ip]
  missing_key: skip
  limits:
  - {rate: 5, per: 1m}
  - {name: month, rate: 100, calendar: month, zone: Europe/Berlin}
  soft: {over: 20%, for: 10m}
- name: upload
  match: {method: PUT, path: "/files/{path...}", host: api.example.com}
  key: header:X-Tenant
  cost: {from: content_length, unit: 1000}
  limit: {algorithm: leaky_bucket, rate: 100, per: 1m, burst: 3}
  queue: 2s
- name: watch
  match: {path: /watch}
  key: ip
  cost: header:X-Cost
  limit: {rate: 5, per: 90m}
  shadow: true
`

// runWeir runs the command on a file with the given text. FILE in args stands for the
// file.
func runWeir(t *testing.T, text string, args ...string) (code int, stdout, stderr string) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	for i := range args {
		if args[i] == "FILE" {
			args[i] = name
		}
	}
	var out, errs strings.Builder
	code = run(args, &out, &errs)
	return code, strings.ReplaceAll(out.String(), name, "FILE"), strings.ReplaceAll(errs.String(), name, "FILE")
}

const good = "FILE is good: 4 rules, 5 limits, version 3\n"

func TestCheckWarnsOfMultipliedAddress(t *testing.T) {
	t.Parallel()
	code, out, _ := runWeir(t, "tiers: {paid: {multiply: 10}}\nrules: [{name: login, key: ip, multiply: true, limit: {rate: 5, per: 1m}}]", "rules", "check", "FILE")
	require.Equal(t, 0, code)
	require.Contains(t, out, `warning: FILE:2:42: tiers multiply the limits of rule "login", whose key is ip`)
}

func TestCheckReadsDirectoriesAndURLs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": "version: 2", "b.yaml": "rules: [{name: login, key: ip, limit: {rate: 5, per: 1m}}]"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var out, errs strings.Builder
	require.Zero(t, run([]string{"rules", "check", dir}, &out, &errs), &errs)
	require.Equal(t, dir+" is good: 1 rule, 1 limit, version 2\n", out.String())

	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	out.Reset()
	require.Zero(t, run([]string{"rules", "check", server.URL + "/b.yaml"}, &out, &errs), &errs)
	require.Equal(t, server.URL+"/b.yaml is good: 1 rule, 1 limit, version 0\n", out.String())
	require.Equal(t, bad, run([]string{"rules", "check", server.URL + "/none"}, &out, &errs))
	require.Contains(t, errs.String(), "status 404: there are no rules")
}

func TestCheckPrintsExceptionsOfRule(t *testing.T) {
	t.Parallel()
	const text = `
rules:
- {name: all, match: {not: [{path: [/healthz, /readyz]}, {method: OPTIONS, host: a}]}, key: global, limit: {rate: 1000, per: 1s}}
- {name: some, match: {path: /t}, key: query:t, limit: {rate: 1000, per: 1s}}
`
	for request, want := range map[string]string{
		"GET /x":               "GET /x meets 1 rule:\n\nall: path /\n  not:   path /healthz or /readyz\n  not:   method OPTIONS, host a\n  key:",
		"GET /readyz":          "GET /readyz meets no rule.\n\nall: path /\n  does not apply: the request meets the exception: path /healthz or /readyz\n",
		"OPTIONS http://a/":    "OPTIONS a/ meets no rule.\n\nall: path /\n  does not apply: the request meets the exception: method OPTIONS, host a\n",
		"GET /t?t=1&t=2":       "  the request is refused with 400: servers interpret query:t of the request differently\n  key:",
		"GET http://b//readyz": "GET b//readyz meets 1 rule:",
	} {
		code, out, _ := runWeir(t, text, "rules", "check", "FILE", "-request", request)
		require.Equal(t, 0, code)
		require.Contains(t, out, want)
	}
}

func TestCheckPrintsRulesThatRequestMeets(t *testing.T) {
	t.Parallel()
	const all = `all: path /
  key:   "", by global
  cost:  1 unit
  limit: all: 1000 per 1s, sliding_window, majority_share
`
	for _, c := range []struct {
		about string
		args  []string
		want  string
	}{
		{"the file alone", nil, ""},
		{"one rule", []string{"-request", "GET /x"}, `
GET /x meets 1 rule:

ALL
`},
		{"several limits, a tier, a combined key and an overrun", []string{"-request", "post https://example.com//login", "-user", "al|ice", "-ip", "::ffff:192.0.2.1", "-tier", "paid"}, `
POST example.com//login in tier paid meets 2 rules:

ALL

login: path /login
  key:   al\|ice|192.0.2.1, by user|ip
  cost:  1 unit
  limit: login/1: 50 per 1m, sliding_window, majority_share
  limit: login/month: 1000 per calendar month of Europe/Berlin, fixed_window, majority_share
  soft:  an overrun of 20% in 10m after a limit is exhausted; responses are marked
`},
		{"a key that is missing", []string{"-request", "POST /login", "-tier", "gold"}, `
POST /login (the rules file has no tier "gold") meets 2 rules:

ALL

login: path /login
  does not apply: the request lacks a part of the key user|ip
`},
		{"a cost that can never be granted, and a queue", []string{"-length", "3001", "-header", "x-tenant: acme", "-request", "PUT https://API.example.com:8443/files/a/b"}, `
PUT API.example.com:8443/files/a/b meets 2 rules:

ALL

upload: path /files/{path...}
  key:   acme, by header:X-Tenant
  cost:  4 units, by content_length/1000, or 1
  limit: upload: 100 per 1m, burst 3, leaky_bucket, majority_share
         never allowed: the cost exceeds the 3 units that the limit can grant
  queue: the request waits up to 2s in place of a denial
`},
		{"a shadow, at no cost", []string{"-request", "/watch", "-ip", "2001:db8::1", "-header", "X-Cost: 0"}, `
GET /watch meets 2 rules:

ALL

watch: path /watch
  key:   2001:db8::/64, by ip
  cost:  0 units, by header:X-Cost, or 1
  limit: watch: 5 per 1h30m, sliding_window, majority_share
  shadow: the limiter counts the decisions, and never enforces them
  the request spends no units
`},
		{"who is exempt", []string{"-request", "GET /x", "-user", "root"}, "\nGET /x meets no rule: it is exempt.\n"},
	} {
		want := good + strings.ReplaceAll(c.want, "ALL\n", all)
		code, stdout, stderr := runWeir(t, file, append([]string{"rules", "check", "FILE"}, c.args...)...)
		require.Equal(t, []any{ok, want, ""}, []any{code, stdout, stderr}, c.about)
		code, again, _ := runWeir(t, file, append(append([]string{"rules", "check"}, c.args...), "FILE")...)
		require.Equal(t, []any{ok, stdout}, []any{code, again}, "the flags first: %s", c.about)
	}
}

func TestRulesCheckShowsOpenTimeWindows(t *testing.T) {
	t.Parallel()
	const text = `
times: [{name: peak, days: [mon, tue], from: "09:00", to: "18:00", zone: Europe/Berlin}, {name: night, from: "22:00", to: "06:00"}, {name: always}]
rules: [{name: r, key: global, limit: {rate: 10, per: 1s, times: {peak: {multiply: 0.5}}}}]
`
	check := func(at string) string {
		code, out, _ := runWeir(t, text, "rules", "check", "FILE", "-at", at, "-request", "/")
		require.Equal(t, ok, code)
		return out
	}
	require.Contains(t, check("2026-11-30T12:00:00Z"), `version 0
time peak: mon, tue from 09:00 to 18:00, Europe/Berlin: now, until Mon 2026-11-30T18:00:00+01:00
time night: each day from 22:00 to 06:00, UTC: not now, until Mon 2026-11-30T22:00:00Z
time always: each day, UTC: now

GET / meets 1 rule:

r: path /
  key:   "", by global
  cost:  1 unit
  limit: r: 5 per 1s, sliding_window, majority_share
`)
	require.Contains(t, check("2026-11-30T23:00:00Z"), "limit: r: 10 per 1s, sliding_window, majority_share\n")
	code, _, stderr := runWeir(t, text, "rules", "check", "FILE", "-at", "noon")
	require.Equal(t, usage, code)
	require.Contains(t, stderr, "noon")
}

func TestCheckReportsDisabledAndBlockingRules(t *testing.T) {
	code, stdout, _ := runWeir(t, "enabled: false\nrules: []", "rules", "check", "FILE", "-request", "/")
	require.Equal(t, ok, code)
	require.Equal(t, "FILE is good: 0 rules, 0 limits, version 0\nThe file switches all rules off: no rule applies to a request.\n\nGET / meets no rule: the limiter is switched off.\n", stdout)
	const denied = "deny: [{ip: 192.0.2.0/24, reason: scanner, until: 2999-01-01T00:00:00Z}, {key: {r: 'a|b'}}]\nrules: [{name: r, key: [user, 'header:X'], limit: {rate: 1, per: 1s}}]"
	_, stdout, _ = runWeir(t, denied, "rules", "check", "FILE", "-request", "/", "-ip", "192.0.2.1")
	require.Contains(t, stdout, "GET / is refused with 403: deny has its ip in 192.0.2.0/24 until 2999-01-01T00:00:00Z (scanner).\n")
	_, stdout, _ = runWeir(t, denied, "rules", "check", "FILE", "-request", "/", "-user", "a", "-header", "X: b")
	require.Contains(t, stdout, "  the request is refused with 403: deny has its key\n")
	_, stdout, _ = runWeir(t, "rules: []", "rules", "check", "FILE", "-request", "/")
	require.Contains(t, stdout, "GET / meets no rule.\n")
}

func TestExitCodeMatchesResult(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		about  string
		args   []string
		code   int
		stderr string
	}{
		{"a bad file", []string{"rules", "check", "FILE"}, bad, "FILE:1:1: unknown field \"rule\": did you mean \"rules\"?\nFILE:1:1: rules is missing\n"},
		{"no such file", []string{"rules", "check", "FILE.none"}, bad, "open FILE.none: no such file or directory\n"},
		{"no file", []string{"rules", "check"}, usage, "weir rules check: expected \"<file>\"" + rulesUsage},
		{"two files", []string{"rules", "check", "FILE", "FILE"}, usage, "weir rules check: unexpected argument FILE" + rulesUsage},
		{"a request without its flag", []string{"rules", "check", "FILE", "-ip", "192.0.2.1"}, usage, "weir rules check: -request is missing: the other flags describe a request" + rulesUsage},
		{"an unknown flag", []string{"rules", "check", "FILE", "-x"}, usage, "weir rules check: unknown flag -x, did you mean \"-h\"?" + rulesUsage},
		{"a misspelt flag", []string{"rules", "check", "FILE", "-reqest", "/"}, usage, "weir rules check: unknown flag --reqest, did you mean \"--request\"?" + rulesUsage},
		{"no address", []string{"rules", "check", "FILE", "-ip", "x"}, usage, "weir rules check: --ip: ParseAddr(\"x\"): unable to parse IP" + rulesUsage},
		{"no field", []string{"rules", "check", "FILE", "-header", "x"}, usage, "weir rules check: -header: \"x\" is not a header field: use 'Name: value'" + rulesUsage},
		{"no URL", []string{"rules", "check", "FILE", "-request", "GET x"}, usage, "weir rules check: -request: \"x\" is neither a URL, like https://api.example.com/v1, nor a path, like /v1" + rulesUsage},
		{"no command", nil, usage, "weir: expected one of \"serve\", \"live\", \"status\", \"check\", \"reserve\", ..." + weirUsage},
		{"an unknown command", []string{"stauts"}, usage, "weir: unknown command stauts, did you mean \"status\"?" + weirUsage},
		{"one below another", []string{"rules", "chekc"}, usage, "weir rules: unknown command chekc, did you mean \"check\"?\nusage: weir rules <command> [flags]\nweir rules --help lists the flags\n"},
		{"an argument that is missing", []string{"peek", "api/hourly"}, usage, "weir peek: expected \"<key>\"\nusage: weir peek <limit> <key> [flags]\nweir peek --help lists the flags\n"},
	} {
		args := append([]string(nil), c.args...)
		code, stdout, stderr := runWeir(t, "rule: []", args...)
		require.Equal(t, []any{c.code, "", c.stderr}, []any{code, stdout, stderr}, c.about)
	}
}

// The lines after an error.
const (
	weirUsage  = "\nusage: weir <command> [flags]\nweir --help lists the flags\n"
	rulesUsage = "\nusage: weir rules check <file> [flags]\nweir rules check --help lists the flags\n"
)

func TestHelpHasGroupsAndExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"-h"}, []string{"Usage: weir <command>", "rules check", "Exit codes: 0", "completion"}},
		{[]string{"help"}, []string{"Usage: weir <command>"}},
		{[]string{"--help"}, []string{"Usage: weir <command>"}},
		{[]string{"help", "serve"}, []string{"Usage: weir serve", "What it serves, as in --rules rules.yaml", "Envoy, as in", "The node, as in", "Audit, as in", "$WEIR_LEAVE_WITHIN", "-log_level as WEIR_LOG_LEVEL"}},
		{[]string{"rules", "check", "-help"}, []string{"The request whose rules and limits are shown, as in --request", "--api_key=KEY"}},
		{[]string{"serve", "-bind", ":1", "-h"}, []string{"Usage: weir serve"}},
		{[]string{"status", "-h"}, []string{"$WEIR_CLIENT_TOKEN_FILE"}},
	} {
		code, stdout, stderr := runWeir(t, "", c.args...)
		require.Equal(t, []any{ok, ""}, []any{code, stderr}, "%q", c.args)
		for _, says := range c.says {
			require.Contains(t, stdout, says, "%q", c.args)
		}
		require.NotContains(t, stdout, "${", "%q", c.args)
		for line := range strings.Lines(stdout) {
			require.LessOrEqual(t, len(line), 101, "%q", line)
		}
	}
}

func TestFlagsHaveOneDashOrTwo(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"check -units 5 -json=false a -b":  "check --units 5 --json=false a -b",
		"--units=5 -tier -json -json":      "--units=5 --tier -json --json",
		"-leave_within -1s -unknown -x -h": "--leave_within -1s --unknown -x -h",
		"check -- -units":                  "check -- -units",
		"check - -":                        "check - -",
	} {
		args := strings.Fields(line)
		require.Equal(t, want, strings.Join(twoDashes(parser(io.Discard).Model.Node, args), " "))
		require.Equal(t, line, strings.Join(args, " "), "what is given stays")
	}
}

func TestEndlessFileIsReadToBound(t *testing.T) {
	t.Parallel()
	const endless = "/dev/zero"
	if _, err := os.Stat(endless); err != nil {
		t.Skip(err)
	}
	var out, errs strings.Builder
	require.Equal(t, bad, run([]string{"rules", "check", endless}, &out, &errs))
	require.Contains(t, errs.String(), "at most")
}

func TestSchemaIsPrinted(t *testing.T) {
	code, stdout, _ := runWeir(t, "", "rules", "schema")
	require.Equal(t, []any{ok, string(rules.Schema())}, []any{code, stdout})
}
