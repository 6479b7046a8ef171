package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"
)

func TestOverrideAndTopCommandsAskNode(t *testing.T) {
	t.Parallel()
	p := begin(t, insecure.NewCredentials(), folder(t))
	p.expect(t, []call{
		{"the override is in force until ", ok, []string{"override", "api/hourly", "ada", "-rate", "5", "-for", "1h"}},
		{"allowed: 4 of 5 left", ok, []string{"check", "api/hourly", "ada"}},
		{"the override is in force without an end", ok, []string{"override", "api/hourly", "ada", "-rate", "5", "-used", "reset"}},
		{"allowed: 4 of 5 left", ok, []string{"check", "api/hourly", "ada"}},
		{"no override", ok, []string{"override", "api/hourly", "ada", "-remove"}},
		{"59 of 60 left", ok, []string{"peek", "api/hourly", "ada"}},
		{`(?m)^api/hourly +ada +\d+$`, ok, []string{"top"}},
		{"-rate is missing", usage, []string{"override", "api/hourly", "ada"}},
	})
}

// The -admin flag of a command accepts the addresses that weir serve accepts.
func TestClientAcceptsAdminAddressOfServe(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                       "http://127.0.0.1:8081",
		":8081":                  "http://localhost:8081",
		"0.0.0.0:8081":           "http://localhost:8081",
		"[::]:8081":              "http://localhost:8081",
		"[::1]:8081":             "http://[::1]:8081",
		"weir.internal:8081":     "http://weir.internal:8081",
		"unix:/run/weir/admin":   "unix:/run/weir/admin",
		"http://127.0.0.1:8081/": "http://127.0.0.1:8081/",
		"https://weir:8081":      "https://weir:8081",
		"weir":                   "weir", // client refuses it
	} {
		require.Equal(t, want, (&reaching{Admin: given}).address(), given)
	}
	secured := &reaching{Admin: "weir:8081"}
	secured.CA = "ca.pem"
	require.Equal(t, "https://weir:8081", secured.address())
	_, err := (&reaching{Admin: "weir"}).client(nil)
	require.ErrorContains(t, err, `-admin is "weir": use HOST:PORT`)
}

// full is a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestCommandFailsIfItsOutputIsLost(t *testing.T) {
	t.Parallel()
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("{}")) }))
	defer node.Close()
	for _, args := range [][]string{{"ban", "list"}, {"ban", "list", "-json"}, {"block", "-user", "a"}, {"switch", "a", "-remove"}, {"check", "a", "k"}} {
		var errs strings.Builder
		require.Equal(t, bad, run(append(args, "-admin", node.URL), full{}, &errs), args)
		require.Contains(t, errs.String(), ": no space left on device\n")
		require.Contains(t, errs.String(), "weir "+args[0])
	}
}

func TestMissingFileIsReportedWithItsFlag(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for _, c := range []struct {
		flag, more string
	}{
		{"rules", ""}, {"shared", ""}, {"checks_tokens", ""}, {"admin_tokens", ""}, {"envoy_config", ""},
		{"peer_tls", ",x,y"}, {"http_tls", ",x"}, {"envoy_tls", ",x,y"},
	} {
		err := refused(t, serving(dir, "-"+c.flag, "nofile.yaml"+c.more)...)
		require.Regexp(t, `^weir serve: -`+c.flag+`: .*nofile\.yaml`, err.Error())
	}
	err := refused(t, serving(dir, "-region", "eu", "-regions", "us=127.0.0.1:1", "-region_secrets", "us=nofile.yaml")...)
	require.ErrorContains(t, err, "weir serve: -region_secrets: ")
}
