package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-go/weir/admin"
)

// client sends requests to the admin API of a running node.
type client struct {
	base   string
	token  string
	http   http.Client
	stdout io.Writer
	stderr io.Writer
}

// patience is the maximum time for which a command waits for a node. weir hold waits for each response
// for up to this time.
const patience = 20 * time.Second

// reaching contains the flags of every command that sends requests to the admin API of a node.
type reaching struct {
	Admin     string `placeholder:"URL" env:"WEIR_CLIENT_ADMIN" help:"the address of a node's admin API: HOST:PORT or unix:/path, like -admin of the node, or a URL; http://127.0.0.1:8081 if empty"`
	TokenFile string `placeholder:"FILE" env:"WEIR_CLIENT_TOKEN_FILE" help:"a file with a token that the node accepts"`
	files     `kong:"set='cert=a file with the client certificate of this command',set='ca=a file with the certificates that sign the node\\'s'"`
}

// clientSecrets returns the files of secrets that the flags name. Names may be empty.
func (a *reaching) clientSecrets() []string { return []string{a.TokenFile, a.Key} }

// asking contains the flags of commands that print a response.
type asking struct {
	reaching
	JSON bool `name:"json" help:"print the response of the node as JSON"`
}

// nodeCommand is a command that only sends requests to a node.
type nodeCommand interface {
	ask(ctx context.Context, c *client) (code int, err error)
	client(stdout io.Writer) (*client, error)
	clientSecrets() []string
}

// asked runs a nodeCommand. The error has the name of the command.
type asked struct {
	nodeCommand
	name string
}

func (a *asked) run(stdout, stderr io.Writer) (code int, err error) {
	out := &checkedWriter{Writer: stdout}
	c, err := a.client(out)
	if err == nil {
		defer c.http.CloseIdleConnections() // otherwise a node that leaves would wait for the connection
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.stderr = stderr
		code, err = a.ask(ctx, c)
	}
	if err = cmp.Or(err, out.err); err != nil {
		return bad, fmt.Errorf("%s: %w", a.name, err)
	}
	return code, nil
}

// checkedWriter keeps the first error of its writes.
type checkedWriter struct {
	io.Writer
	err error
}

func (w *checkedWriter) Write(p []byte) (n int, err error) {
	n, err = w.Writer.Write(p)
	w.err = cmp.Or(w.err, err)
	return n, err
}

// remove deletes a value, and prints the text in the argument done.
func (c *client) remove(ctx context.Context, path, done string) (int, error) {
	_, _, err := c.call(ctx, http.MethodDelete, path, nil, nil)
	if err == nil {
		fmt.Fprintln(c.stdout, done)
	}
	return ok, err
}

// print sends a request, decodes the response into the argument into unless that is nil, and prints
// the response: as JSON, or by a call of show.
func (a *asking) print(ctx context.Context, c *client, method, path string, question, into any, show func()) error {
	text, _, err := c.call(ctx, method, path, question, into)
	switch {
	case err != nil:
	case a.JSON:
		c.stdout.Write(text)
	default:
		show()
	}
	return err
}

func (a *reaching) client(stdout io.Writer) (*client, error) {
	address := a.address()
	c := &client{base: strings.TrimSuffix(address, "/"), stdout: stdout}
	transport := &http.Transport{ResponseHeaderTimeout: patience}
	if path, isUnix := strings.CutPrefix(address, unixPrefix); isUnix {
		c.base = "http://localhost"
		transport.DialContext = dialUnix(path)
	} else if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("-admin is %q: use HOST:PORT, a URL like http://127.0.0.1:8081, or unix:/path", address)
	}
	c.http.Transport = transport
	if a.TokenFile != "" {
		tokens, err := readTokens(a.TokenFile)
		if err != nil {
			return nil, err
		}
		c.token = string(tokens[0])
	}
	if a.CA != "" || a.Cert != "" {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if a.CA != "" {
			pool, err := readPool(a.CA)
			if err != nil {
				return nil, err
			}
			transport.TLSClientConfig.RootCAs = pool
		}
		if a.Cert != "" {
			certificate, err := a.certificate()
			if err != nil {
				return nil, err
			}
			transport.TLSClientConfig.Certificates = []tls.Certificate{*certificate}
		}
	}
	return c, nil
}

// address returns the URL of the admin API, or unix:/path. A listen address of weir serve
// without a host refers to this machine. The scheme is https if the flags name
// certificates.
func (a *reaching) address() string {
	host, port, err := net.SplitHostPort(a.Admin)
	switch {
	case a.Admin == "":
		return "http://127.0.0.1:8081"
	case err != nil || strings.Contains(a.Admin, "/") || strings.HasPrefix(a.Admin, unixPrefix):
		return a.Admin
	}
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	scheme := "http://"
	if a.CA != "" || a.Cert != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port)
}

// maxAnswer is larger than any response of a node.
const maxAnswer = 64 << 20

// call sends a request, decodes the response into the argument into unless that is nil, and
// returns the text and the status of the response.
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
		return nil, 0, fmt.Errorf("%w: check that the node runs with -admin_tokens, and that -admin is its address", err)
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
			p.Detail += ": set -token_file to the file with the token"
		}
		return nil, answer.StatusCode, errors.New(p.Detail)
	}
	if into == nil {
		return text, answer.StatusCode, nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, 0, fmt.Errorf("the server at -admin is not a Weir node: check the address: %w", err)
	}
	return text, answer.StatusCode, nil
}

// verdict is the part of a response that is about a limit. Only the responses of /v1/status
// and /v1/clients have Owner and Policy.
type verdict struct {
	admin.Take
	Owner  string `json:"owner"`
	Policy string `json:"policy"`
}

// code returns the exit code for a verdict. A shadow denies nothing.
func (v *verdict) code() int {
	if v.Allowed || v.Shadow {
		return ok
	}
	return denied
}

// print prints a verdict.
func (v *verdict) print(w io.Writer, yes, no string) {
	what := yes
	if v.code() == denied {
		what = no
	}
	fmt.Fprintf(w, "%s: %d of %d left, by %s", what, v.Remaining, v.Limit, v.Source)
	if v.RetryAfterS > 0 {
		fmt.Fprintf(w, ", retry after %d s", v.RetryAfterS)
	}
	if v.Banned {
		fmt.Fprint(w, ", the key is banned")
	}
	if v.Soft {
		fmt.Fprint(w, ", from the overrun of the rule")
	}
	switch {
	case v.Off:
		fmt.Fprint(w, ", the rule is off: nothing is counted")
	case v.Shadow && (v.ShadowDenied || !v.Allowed):
		fmt.Fprint(w, ", the limit is a shadow: its denial is not enforced")
	case v.Shadow:
		fmt.Fprint(w, ", the limit is a shadow, which is not enforced")
	}
	fmt.Fprintln(w)
}

// countOf contains the arguments that identify a count: a limit and a key.
type countOf struct {
	Limit string `arg:"" help:"name of a limit of the rules, such as api/hourly"`
	Key   string `arg:"" help:"key of the count, such as a user or an address"`
}

// taking is the request of the API to take or peek at units, and to make or settle a
// reservation.
type taking struct {
	Limit       string `json:"limit"`
	Key         string `json:"key"`
	Units       int64  `json:"units"`
	Tier        string `json:"tier"`
	Critical    bool   `json:"critical,omitempty"`
	AtMost      bool   `json:"at_most,omitempty"`
	Reservation string `json:"reservation,omitempty"`
}

// checkCommand spends units of a key.
type checkCommand struct {
	asking
	countOf
	Units    int64  `default:"1" help:"number of units"`
	Tier     string `help:"the tier of the key"`
	Critical bool   `help:"spend kept units too"`
	AtMost   bool   `help:"spend as many of the units as there are"`
}

func (q *checkCommand) ask(ctx context.Context, c *client) (int, error) {
	question := taking{Limit: q.Limit, Key: q.countOf.Key, Units: q.Units, Tier: q.Tier, Critical: q.Critical, AtMost: q.AtMost}
	return q.requestUnits(ctx, c, "/v1/take", &question, "allowed", "denied")
}

// requestUnits sends a request to take units or to peek at them, and prints the verdict.
func (a *asking) requestUnits(ctx context.Context, c *client, path string, question *taking, yes, no string) (int, error) {
	var v verdict
	err := a.print(ctx, c, http.MethodPost, path, question, &v, func() {
		if question.AtMost {
			yes = fmt.Sprintf("%s %d of %d units", yes, v.Granted, question.Units)
		}
		v.print(c.stdout, yes, no)
	})
	return v.code(), err
}

// peekCommand shows the remaining units of a key, and spends nothing.
type peekCommand struct {
	asking
	countOf
	Units int64  `placeholder:"N" help:"show whether a check of this number of units would be allowed; 1 by default"`
	Tier  string `help:"the tier of the key"`
}

func (q *peekCommand) ask(ctx context.Context, c *client) (int, error) {
	if q.Units != 0 {
		question := taking{Limit: q.Limit, Key: q.countOf.Key, Units: q.Units, Tier: q.Tier}
		return q.requestUnits(ctx, c, "/v1/peek", &question, "would be allowed", "would be denied")
	}
	rule, _, _ := strings.Cut(q.Limit, "/")
	query := url.Values{"key": {q.countOf.Key}, "rule": {rule}}
	if q.Tier != "" {
		query.Set("tier", q.Tier)
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
		if v.Name != q.Limit {
			continue
		}
		if q.JSON {
			fmt.Fprintf(c.stdout, "%s\n", text)
		} else {
			v.print(c.stdout, "would be allowed", "would be denied")
			fmt.Fprintf(c.stdout, "%s; owner %s; all units available at %s\n", v.Policy, v.Owner, v.ResetAt.Format(time.RFC3339))
		}
		return v.code(), nil
	}
	return 0, fmt.Errorf("there is no limit %q for this key and tier: weir rules check lists the limits that apply to a request", q.Limit)
}

// resetCommand deletes a count on every member.
type resetCommand struct {
	asking
	countOf
}

func (q *resetCommand) ask(ctx context.Context, c *client) (int, error) {
	path := "/v1/counts?" + url.Values{"limit": {q.Limit}, "key": {q.countOf.Key}}.Encode()
	return q.reset(ctx, c, path, "the count is deleted on all members")
}

// reset sends a reset, and prints the text in the argument done if the reset has reached all members.
func (a *asking) reset(ctx context.Context, c *client, path, done string) (int, error) {
	var answer struct {
		NotReached []string `json:"not_reached"`
	}
	err := a.print(ctx, c, http.MethodDelete, path, nil, &answer, func() {
		if len(answer.NotReached) == 0 {
			fmt.Fprintln(c.stdout, done)
		}
	})
	if len(answer.NotReached) > 0 {
		err = fmt.Errorf("the reset did not reach %s, which may still have the count: repeat the reset when they are reachable", strings.Join(answer.NotReached, ", "))
	}
	return ok, err
}
