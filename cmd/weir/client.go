package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// client asks a node that runs, through its admin API.
type client struct {
	base   string
	token  string
	http   http.Client
	stdout io.Writer
}

// patience is the most that a command waits for a node.
const patience = 20 * time.Second

// asking are the flags of every command that asks a node.
type asking struct {
	url, tokens string
	json        bool
	files
}

func (a *asking) flags(name string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("weir "+name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() { fmt.Fprint(stderr, help) }
	f.StringVar(&a.url, "admin", "http://127.0.0.1:8081", "")
	f.StringVar(&a.tokens, "token_file", "", "")
	f.StringVar(&a.ca, "ca", "", "")
	f.StringVar(&a.cert, "cert", "", "")
	f.StringVar(&a.key, "key", "", "")
	f.BoolVar(&a.json, "json", false, "")
	return f
}

// ask runs a command that asks a node: with so many arguments besides its flags.
func ask(name string, args []string, wants int, stdout, stderr io.Writer, more func(*flag.FlagSet), do func(ctx context.Context, c *client, a *asking, args []string) (int, error)) int {
	var a asking
	f := a.flags(name, stderr)
	if more != nil {
		more(f)
	}
	others, err := interleaved(f, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ok
	case err != nil:
		return usage
	case len(others) != wants:
		fmt.Fprintf(stderr, "weir %s: %d arguments besides the flags, and it wants %d: weir help says which\n", name, len(others), wants)
		return usage
	}
	given := make(map[string]bool)
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for flag, into := range map[string]*string{"admin": &a.url, "token_file": &a.tokens} {
		if value := os.Getenv("WEIR_CLIENT_" + strings.ToUpper(flag)); value != "" && !given[flag] {
			*into = value
		}
	}
	c, err := a.client(stdout)
	if err != nil {
		fmt.Fprintf(stderr, "weir %s: %v\n", name, err)
		return bad
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	code, err := do(ctx, c, &a, others)
	if err != nil {
		fmt.Fprintf(stderr, "weir %s: %v\n", name, err)
		return bad
	}
	return code
}

func (a *asking) client(stdout io.Writer) (*client, error) {
	c := &client{base: strings.TrimSuffix(a.url, "/"), stdout: stdout}
	transport := &http.Transport{ResponseHeaderTimeout: patience}
	if path, isUnix := strings.CutPrefix(a.url, unixPrefix); isUnix {
		c.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	} else if u, err := url.Parse(a.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("-admin is %q: use a URL like http://127.0.0.1:8081, or unix:/path", a.url)
	}
	c.http.Transport = transport
	if a.tokens != "" {
		tokens, err := readTokens(a.tokens)
		if err != nil {
			return nil, err
		}
		c.token = string(tokens[0])
	}
	if a.ca != "" || a.cert != "" {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if a.ca != "" {
			pool, err := readPool(a.ca)
			if err != nil {
				return nil, err
			}
			transport.TLSClientConfig.RootCAs = pool
		}
		if a.cert != "" {
			certificate, err := a.certificate()
			if err != nil {
				return nil, err
			}
			transport.TLSClientConfig.Certificates = []tls.Certificate{*certificate}
		}
	}
	return c, nil
}

// maxAnswer is more than a node answers.
const maxAnswer = 64 << 20

// call asks, and reads the answer into what is given, and as it is.
func (c *client) call(ctx context.Context, method, path string, question, into any) (text []byte, status int, err error) {
	var body io.Reader
	if question != nil {
		b, err := json.Marshal(question)
		if err != nil {
			return nil, 0, err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, 0, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if question != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: does the node run, with -admin_tokens, and is -admin right?", err)
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer)); err != nil {
		return nil, 0, err
	}
	if answer.StatusCode >= 300 {
		var p struct {
			Detail string `json:"detail"`
		}
		if json.Unmarshal(text, &p) != nil || p.Detail == "" {
			p.Detail = answer.Status
		}
		if answer.StatusCode == http.StatusUnauthorized && c.token == "" {
			p.Detail += ": give -token_file the file with it"
		}
		return nil, answer.StatusCode, errors.New(p.Detail)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, 0, fmt.Errorf("what answers there is no node of Weir: %w", err)
	}
	return text, answer.StatusCode, nil
}

// verdict is what a limit says, of /v1/take and of /v1/status.
type verdict struct {
	Name        string    `json:"name"`
	Source      string    `json:"source"`
	Owner       string    `json:"owner"`
	Policy      string    `json:"policy"`
	Shadow      bool      `json:"shadow"`
	WouldDeny   bool      `json:"shadow_denied"`
	Soft        bool      `json:"soft"`
	Allowed     bool      `json:"allowed"`
	Limit       int64     `json:"limit"`
	Remaining   int64     `json:"remaining"`
	ResetAt     time.Time `json:"reset_at"`
	RetryAfterS int64     `json:"retry_after_s"`
}

// code is the exit code for a verdict. A shadow denies nothing.
func (v *verdict) code() int {
	if v.Allowed || v.Shadow {
		return ok
	}
	return denied
}

// tell prints a verdict, and is the exit code for it.
func (c *client) tell(v *verdict, yes, no string) int {
	what := yes
	if !v.Allowed && !v.Shadow {
		what = no
	}
	fmt.Fprintf(c.stdout, "%s: %d of %d left, by %s", what, v.Remaining, v.Limit, v.Source)
	if v.RetryAfterS > 0 {
		fmt.Fprintf(c.stdout, ", retry after %d s", v.RetryAfterS)
	}
	if v.Soft {
		fmt.Fprint(c.stdout, ", by the overrun that the rule allows")
	}
	switch {
	case v.Shadow && (v.WouldDeny || !v.Allowed):
		fmt.Fprint(c.stdout, ", a shadow: it has no room, and is not enforced")
	case v.Shadow:
		fmt.Fprint(c.stdout, ", a shadow: not enforced")
	}
	fmt.Fprintln(c.stdout)
	return v.code()
}

// takeUnits is weir check.
func takeUnits(args []string, stdout, stderr io.Writer) int {
	question := struct {
		Limit string `json:"limit"`
		Key   string `json:"key"`
		Units int64  `json:"units"`
		Tier  string `json:"tier"`
	}{}
	more := func(f *flag.FlagSet) {
		f.Int64Var(&question.Units, "units", 1, "")
		f.StringVar(&question.Tier, "tier", "", "")
	}
	return ask("check", args, 2, stdout, stderr, more, func(ctx context.Context, c *client, a *asking, args []string) (int, error) {
		question.Limit, question.Key = args[0], args[1]
		var v verdict
		text, _, err := c.call(ctx, http.MethodPost, "/v1/take", &question, &v)
		if err != nil {
			return 0, err
		}
		if a.json {
			stdout.Write(text)
			return v.code(), nil
		}
		return c.tell(&v, "allowed", "denied"), nil
	})
}

// peek looks, and spends nothing.
func peek(args []string, stdout, stderr io.Writer) int {
	tier := ""
	more := func(f *flag.FlagSet) { f.StringVar(&tier, "tier", "", "") }
	return ask("peek", args, 2, stdout, stderr, more, func(ctx context.Context, c *client, a *asking, args []string) (int, error) {
		rule, _, _ := strings.Cut(args[0], "/")
		query := url.Values{"key": {args[1]}, "rule": {rule}}
		if tier != "" {
			query.Set("tier", tier)
		}
		var status struct{ Limits []json.RawMessage }
		if _, _, err := c.call(ctx, http.MethodGet, "/v1/status?"+query.Encode(), nil, &status); err != nil {
			return 0, err
		}
		for _, text := range status.Limits {
			var v verdict
			if err := json.Unmarshal(text, &v); err != nil {
				return 0, err
			}
			if v.Name != args[0] {
				continue
			}
			if a.json {
				fmt.Fprintf(stdout, "%s\n", text)
				return v.code(), nil
			}
			code := c.tell(&v, "would be allowed", "would be denied")
			fmt.Fprintf(stdout, "%s; owner %s; whole again at %s\n", v.Policy, v.Owner, v.ResetAt.Format(time.RFC3339))
			return code, nil
		}
		return 0, fmt.Errorf("there is no limit %q for this key and tier: weir rules check lists them by request", args[0])
	})
}

// resetCount forgets a count on every member.
func resetCount(args []string, stdout, stderr io.Writer) int {
	return ask("reset", args, 2, stdout, stderr, nil, func(ctx context.Context, c *client, a *asking, args []string) (int, error) {
		var answer struct {
			NotReached []string `json:"not_reached"`
		}
		text, _, err := c.call(ctx, http.MethodDelete, "/v1/counts?"+url.Values{"limit": {args[0]}, "key": {args[1]}}.Encode(), nil, &answer)
		if err != nil {
			return 0, err
		}
		if a.json {
			stdout.Write(text)
		} else if len(answer.NotReached) == 0 {
			fmt.Fprintln(stdout, "forgotten on all members")
		}
		if len(answer.NotReached) > 0 {
			return 0, fmt.Errorf("%s: not reached, and may still hold the count: ask again when they are back", strings.Join(answer.NotReached, ", "))
		}
		return ok, nil
	})
}
