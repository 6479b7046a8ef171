package main

import (
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	weirnode "github.com/weir-go/weir"
)

func TestWrongCommandLineNamesRemedy(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"-x", "unknown flag -x"},
		{"-chekcs :1", `unknown flag --chekcs, did you mean "--checks"?`},
		{"--leave_witihn 1s", `unknown flag --leave_witihn, did you mean "--leave_within"?`},
		{"extra", "unexpected argument extra"},
		{"-envoy :1", "-envoy_config is missing"},
		{"-envoy :1 -envoy_config xds://a:1", `-envoy_config is "xds://a:1": use xds://ID@HOST:PORT`},
		{"-envoy :1 -envoy_config xds://id@a", `-envoy_config is "xds://id@a": use xds://ID@HOST:PORT`},
		{"-envoy :1 -envoy_config f -envoy_options sliding,headers", `-envoy_options has "headers": use sliding, debit_many, merge_domains, metadata`},
		{"-envoy_config f", "-envoy is missing"},
		{"-envoy :1 -envoy_config f -envoy_tls c,k", "-envoy_tls has no CA"},
		{"-peer_tls c,k", "-peer_tls has no CA"},
		{"-peer_tls c,k,a,b", `"c,k,a,b" names 4 files: use CERT,KEY,CA`},
		{"-http_tls c", `"c" names 1 files: use CERT,KEY,CA`},
		{"-envoy_partition open", `--envoy_partition: `},
		{"-checks :8080", "give -checks_tokens a file with tokens"},
		{"-checks 192.0.2.1:8080", "-checks is 192.0.2.1:8080, which other machines reach"},
		{"-usage user=X-User", "-usage needs -checks"},
		{"-rules_cache f", "-rules is missing: name the file, the directory or the URL"},
		{"-rules f -usage user", `--usage: "user" is not FIELD=HEADER: use user, api_key, tier or client with a header field, or hops with a number`},
		{"-rules f -usage key=X", `"key=X" is not FIELD=HEADER`},
		{"-rules f -usage hops=two", `--usage: strconv.Atoi: parsing "two"`},
		{"-snapshot_every 10s", "-snapshots is missing: name the directory or the bucket"},
		{"-log_format xml", `-log_format is "xml": use text or json`},
		{"-leave_within -1s", "-leave_within is -1s: use a duration above 0"},
		{"-regions us", `--regions: "us" is not REGION=VALUE`},
		{"-region_shares us=many", `--region_shares: strconv.ParseInt: parsing "many": invalid syntax`},
		{"-timeout soon", `--timeout: expected duration but got "soon"`},
	} {
		_, err := parseServe(strings.Fields(c.args))
		require.ErrorContains(t, err, c.says, c.args)
		require.ErrorContains(t, err, "\nusage: weir serve [flags]\nweir serve --help lists the flags")
	}
}

func TestEnvironmentSetsMissingFlags(t *testing.T) {
	env := map[string]string{
		"WEIR_BIND": "127.0.0.1:1", "WEIR_JOIN": "a:1, b", "WEIR_REGION": "eu", "WEIR_REGIONS": "us=c:1,d:1;ap=e:1", "WEIR_TIMEOUT": "5s",
		"WEIR_REGION_SHARES": "eu=1", "WEIR_REPLICAS": "2", "WEIR_LOG_LEVEL": "warn", "WEIR_ENVOY_OPTIONS": "metadata, sliding", "WEIR_HTTP_TLS": "c,k", "WEIR_RULES": "f", "WEIR_USAGE": "user=X-User, hops=2", "WEIR_CERTIFICATE_NAMES": "eu=*.eu.internal",
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	o, err := parseServe([]string{"-bind", "127.0.0.1:2", "-region_shares", "eu=70", "-region_shares", "us=20;ap=10"})
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:2", o.Bind, "a flag comes first")
	require.Equal(t, []string{"a:1", "b"}, o.node().Join)
	require.Equal(t, map[string][]string{"us": {"c:1", "d:1"}, "ap": {"e:1"}}, o.node().Regions)
	require.Equal(t, map[string]int64{"eu": 70, "us": 20, "ap": 10}, o.node().RegionShares)
	require.Equal(t, map[string][]string{"eu": {"*.eu.internal"}}, o.node().CertificateNames)
	require.Equal(t, 5*time.Second, o.Timeout)
	require.Equal(t, 2, o.Replicas)
	require.Equal(t, slog.LevelWarn, o.LogLevel)
	require.True(t, o.limits(nil).Metadata)
	require.True(t, o.limits(nil).Sliding)
	require.False(t, o.limits(nil).MergeDomains)
	require.Equal(t, files{Cert: "c", Key: "k"}, o.HTTPTLS.files)
	require.Equal(t, usageFlag{User: "X-User", Hops: 2}, *o.Usage)
	t.Setenv("WEIR_MAX_KEYS", "lots")
	_, err = parseServe(nil)
	require.ErrorContains(t, err, `weir serve: --max_keys: expected a valid 64 bit int but got "lots" (from envar WEIR_MAX_KEYS="lots")`)
}

func TestEachFieldOfConfigHasAFlag(t *testing.T) {
	flags := make(map[string]bool)
	for _, f := range serveModel(t).Flags {
		flags[f.Name] = true
		require.NotEmpty(t, f.Help, f.Name)
		require.Contains(t, groups, *f.Group, f.Name)
		require.Equal(t, []string{variable(f.Name)}, f.Envs)
	}
	config := reflect.TypeFor[weirnode.Config]()
	for i := range config.NumField() {
		name := config.Field(i).Name
		if of := flagOf(name); of != "" {
			require.True(t, flags[of], "Config.%s has no flag -%s", name, of)
		}
	}
}

func TestConfigErrorsNameTheirFlags(t *testing.T) {
	for args, says := range map[string]string{
		"-timeout 5h":                       "weir serve: -timeout is 5h0m0s: use 0 for 100ms, or 100µs to 1m (-timeout is WEIR_TIMEOUT in the environment)",
		"-join_timeout -1s":                 "weir serve: -join_timeout is -1s: use 0 for 10s, or 1ms to 24h (-join_timeout is WEIR_JOIN_TIMEOUT in the environment)",
		"-forget 1ms":                       "weir serve: -forget is 1ms: ",
		"-replicas 9":                       "weir serve: -replicas is 9: ",
		"-max_keys -1":                      "weir serve: -max_keys is -1: ",
		"-top_keys 5000":                    "weir serve: -top_keys is 5000: ",
		"-expect -2":                        "weir serve: -expect is -2: ",
		"-name Join\tForget":                `weir serve: -name "Join\tForget" has spaces or control characters: use a host's or pod's name (-name is WEIR_NAME in the environment)`,
		"-join a:1":                         "weir serve: -join is set and -bind is empty: give -bind a host:port, ",
		"-bind 127.0.0.1:0 -regions us=a:1": "weir serve: -regions is set and -region is empty: ",
	} {
		o := parsed(t, strings.Split(args, " ")...)
		cfg, err := o.config()
		require.NoError(t, err)
		require.Contains(t, inFlags(cfg.Validate()).Error(), says, args)
	}
}

func TestRegionSecretsAndCertificatesAreReadFromFiles(t *testing.T) {
	shared := write(t, "secret: 000102030405060708090a0b0c0d0e0f\nseed: 000102030405060708090a0b0c0d0e0f\n")
	us := write(t, "secret: ff0102030405060708090a0b0c0d0e0f\n")
	c := certified(t)
	o := parsed(t, "-bind", "127.0.0.1:1", "-region", "eu", "-regions", "us=a:1", "-shared", shared, "-region_secrets", "us="+us, "-peer_tls", c.Cert+","+c.Key+","+c.CA)
	cfg, err := o.config()
	require.NoError(t, err)
	require.NoError(t, cfg.Validate())
	require.Equal(t, byte(0xff), cfg.RegionSecrets["us"][0][0])
	require.Len(t, cfg.Secrets, 1)
	require.NotNil(t, cfg.TLS)
	o.RegionSecrets["us"] = "none"
	_, err = o.config()
	require.Error(t, err)
}

func TestTokenFileHasOneTokenPerLine(t *testing.T) {
	tokens, err := readTokens(write(t, "# of operators\n0123456789abcdef\n\n fedcba9876543210 \n"))
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("0123456789abcdef"), []byte("fedcba9876543210")}, tokens)
	_, err = readTokens(write(t, "# none\n"))
	require.ErrorContains(t, err, "has no token")
}

// parseServe parses a command line of weir serve, with the environment for missing flags.
func parseServe(args []string) (*serveOptions, error) {
	c, err := parse(append([]string{"serve"}, args...), io.Discard)
	if err != nil {
		return nil, err
	}
	return &c.(*serveCommand).serveOptions, nil
}
