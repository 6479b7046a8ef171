package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rules"
)

// For any command line and environment, the result is valid options, whose configuration can be validated, or an
// error with a message.
func FuzzServeOptions(f *testing.F) {
	f.Add("-bind :7946 -join a:1,b -regions us=c:1,d:1;ap=e:1", "WEIR_TIMEOUT=5s")
	f.Add("-envoy :1 -envoy_config f -checks :8080", "WEIR_REGION_SHARES=eu=70;us=x")
	f.Add("-log_level loud -leave_within -1s extra", "WEIR_CERTIFICATE_NAMES==;=")
	f.Fuzz(func(t *testing.T, line, variables string) {
		for one := range strings.FieldsSeq(variables) {
			name, value, _ := strings.Cut(one, "=")
			if strings.HasPrefix(name, "WEIR_") && !strings.Contains(name+value, "\x00") {
				t.Setenv(name, value)
			}
		}
		o, err := parseServe(strings.Fields(line))
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NoError(t, o.Validate())
		_ = o.node().Validate()
	})
}

// Any file of secrets, tokens or certificates is read as a whole or refused, and no error
// repeats a possible secret.
func FuzzConfidentialFiles(f *testing.F) {
	f.Add([]byte("secret: 000102030405060708090a0b0c0d0e0f\nseed: 0001"))
	f.Add([]byte("secret: hush-hush\n"))
	f.Add([]byte("# a token\n0123456789abcdef\n\n"))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	name := filepath.Join(f.TempDir(), "f") // only this process uses it
	f.Fuzz(func(t *testing.T, text []byte) {
		require.NoError(t, os.WriteFile(name, text, 0o600))
		secrets, _, err := readShared(name)
		require.True(t, err != nil || len(secrets) > 0)
		if err != nil {
			said := strings.ReplaceAll(err.Error(), name, "")
			for line := range strings.Lines(string(text)) {
				if _, value, found := strings.Cut(strings.TrimSpace(line), ": "); found && len(value) > 20 {
					require.NotContains(t, said, value)
				}
			}
		}
		tokens, err := readTokens(name)
		require.Equal(t, err == nil, len(tokens) > 0)
		for _, token := range tokens {
			require.NotEmpty(t, bytes.TrimSpace(token))
		}
		pool, err := readPool(name)
		require.Equal(t, err == nil, pool != nil)
	})
}

// whatever is an http.RoundTripper that returns fuzzed responses.
type whatever struct {
	status int
	body   []byte
}

func (w whatever) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: w.status, Status: fmt.Sprintf("%03d %s", w.status, http.StatusText(w.status)), Header: make(http.Header), Body: io.NopCloser(bytes.NewReader(w.body)), Request: r}, nil
}

// For any response, a client command ends with a verdict or an error.
func FuzzAnswers(f *testing.F) {
	f.Add(uint16(200), []byte(`{"name":"a","allowed":true,"limit":1,"remaining":9223372036854775807,"retry_after_s":-1}`))
	f.Add(uint16(401), []byte(`{"detail":"no"}`))
	f.Add(uint16(500), []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status uint16, body []byte) {
		var out bytes.Buffer
		c := &client{base: "http://node", http: http.Client{Transport: whatever{100 + int(status%500), body}}}
		var v verdict
		if _, _, err := c.call(t.Context(), http.MethodPost, "/v1/take", struct{}{}, &v); err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.Equal(t, v.Allowed, v.code() == ok)
		v.print(&out, "allowed", "denied")
		require.Equal(t, 1, strings.Count(out.String(), "\n")-strings.Count(v.Source, "\n"))
	})
}

// Any request for a rules file is valid or refused.
func FuzzTriedRequest(f *testing.F) {
	f.Add("GET https://api.example.com/v1/a%2fb?x", "X-User: a")
	f.Add("/..;/\x00", ":")
	f.Add("http://[::1", "no field")
	set, err := rules.Parse("rules.yaml", []byte("rules: [{name: a, match: {path: /v1/}, key: user, limit: {rate: 1, per: 1s}}]"))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, line, field string) {
		r := rules.Request{Header: make(http.Header)}
		if request(&r, line) != nil || header(&r, field) != nil {
			return
		}
		explain(io.Discard, set, &r, time.Unix(0, 0))
	})
}
