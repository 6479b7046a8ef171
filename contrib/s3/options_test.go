package s3snapshot_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	s3snapshot "github.com/weir-go/weir/contrib/s3"
)

func TestInvalidOptionsAreReportedTogether(t *testing.T) {
	_, err := s3snapshot.New(s3snapshot.Options{
		Prefix: "a//b", Endpoint: "minio:9000", MaxBytes: -1, RequestTimeout: -time.Second,
	})
	require.ErrorIs(t, err, weir.ErrInvalid)
	for _, field := range []string{"Bucket", "Prefix", "Endpoint", "MaxBytes", "RequestTimeout"} {
		require.ErrorContains(t, err, "s3snapshot.Options: "+field+" ")
	}
	for name, o := range map[string]s3snapshot.Options{
		"Bucket":                    {Bucket: "has/slash"},
		"Prefix":                    {Prefix: "a/../b"},
		"Prefix is":                 {Prefix: strings.Repeat("p", 513)},
		"Endpoint has more than":    {Endpoint: "https://minio:9000/path"},
		"Endpoint has more":         {Endpoint: "https://key:secret@minio:9000"},
		"Endpoint is not a URL":     {Endpoint: "ftp://minio"},
		"TLS is set, and Endpoint ": {Endpoint: "http://minio", TLS: &tls.Config{}},
		"MaxBytes is 83886080001":   {MaxBytes: 83_886_080_001},
	} {
		if o.Bucket == "" {
			o.Bucket = "backups"
		}
		_, err := s3snapshot.New(o)
		require.ErrorIs(t, err, weir.ErrInvalid, name)
		require.ErrorContains(t, err, "s3snapshot.Options: "+name)
		require.NotContains(t, err.Error(), "secret")
	}
	b, err := s3snapshot.New(s3snapshot.Options{Bucket: "backups"})
	require.NoError(t, err, "all else has a default")
	require.NoError(t, b.Close())
}

func TestURLSetsOptions(t *testing.T) {
	for text, want := range map[string]s3snapshot.Options{
		"s3://backups":                 {Bucket: "backups"},
		"s3://backups/weir/production": {Bucket: "backups", Prefix: "/weir/production"},
		"s3://backups/w?endpoint=http://127.0.0.1:9000&region=eu-west-1&virtual_host=true": {
			Bucket: "backups", Prefix: "/w", Endpoint: "http://127.0.0.1:9000", Region: "eu-west-1", VirtualHost: true,
		},
	} {
		got, err := s3snapshot.ParseURL(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		_, err = s3snapshot.New(got)
		require.NoError(t, err, text)
	}
}

func TestErrorOfInvalidURLOmitsSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "write s3://BUCKET/PREFIX",
		"backups/weir":                      "write s3://BUCKET/PREFIX",
		"https://backups/weir":              "write s3://BUCKET/PREFIX",
		"s3:///weir":                        "write s3://BUCKET/PREFIX",
		"s3://backups/weir#x":               "write s3://BUCKET/PREFIX",
		"s3://key:SECRET@backups/weir":      "AWS_SECRET_ACCESS_KEY",
		"s3://key:SECRET@back ups":          "invalid character",
		"s3://B/weir":                       "Bucket",
		"s3://backups/a/../b":               "Prefix",
		"s3://backups/w?endpoint=m":         "Endpoint",
		"s3://backups/w?secret=SECRET":      `unknown parameter "secret"`,
		"s3://backups/w?region=a&region=b":  "region is given 2 times",
		"s3://backups/w?virtual_host=maybe": `virtual_host is "maybe"`,
		"s3://backups/w?region=%zz":         "parameters",
	} {
		_, err := s3snapshot.ParseURL(text)
		require.ErrorIs(t, err, weir.ErrInvalid, text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "SECRET"+"@", text)
	}
}

// captureHeader returns a channel that receives the header of the next request. Until this header
// is read from the channel, the headers of later requests are dropped.
func captureHeader(s *server) chan http.Header {
	got := make(chan http.Header, 1)
	s.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case got <- r.Header.Clone():
		default:
		}
		return false
	})
	return got
}

func TestEnvironmentSetsCredentialsAndRegion(t *testing.T) {
	s := startFake(t)
	got := captureHeader(s)
	t.Setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_REGION", "eu-west-1")
	b := open(t, s, func(o *s3snapshot.Options) { o.Credentials, o.Region = nil, "" })
	require.NoError(t, b.Load(withTimeout(t, patience), everyNode, ignoreSnapshot))
	authorization := (<-got).Get("Authorization")
	require.Contains(t, authorization, "Credential=of-the-environment/")
	require.Contains(t, authorization, "/eu-west-1/s3/")
}

// The credentials of a role come from a service, which ECS and EKS provide in each
// container.
func TestRoleCredentialsAreRequestedAndAbsenceReported(t *testing.T) {
	roles := http.NewServeMux()
	service := httptest.NewServer(roles)
	t.Cleanup(service.Close)
	roles.HandleFunc("/role", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"AccessKeyId":"of-the-role","SecretAccessKey":"secret","Token":"session","Expiration":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339))
	})
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	s := startFake(t)
	got := captureHeader(s)
	anonymous := func(o *s3snapshot.Options) { o.Credentials = nil }

	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.URL+"/role")
	require.NoError(t, open(t, s, anonymous).Save(withTimeout(t, patience), "api-1", text("")))
	header := <-got
	require.Contains(t, header.Get("Authorization"), "Credential=of-the-role/")
	require.Equal(t, "session", header.Get("X-Amz-Security-Token"))

	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.URL+"/none")
	err := open(t, s, anonymous).Save(withTimeout(t, patience), "api-1", text(""))
	require.ErrorContains(t, err, "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine or the pod a role")
	require.ErrorContains(t, err, "404", "and what each source said")
	require.Empty(t, got, "nothing is sent without a signature")
}
