package main

import (
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
)

// s3Secret must not appear in any output.
const s3Secret = "of-the-environment-alone"

// setCredentials sets the credentials of this process and its children. They are set
// once, because parallel tests share the environment.
func setCredentials() {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "weir", "AWS_SECRET_ACCESS_KEY": s3Secret, "AWS_REGION": "us-east-1"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

// bucketURL starts an S3 server with a bucket. The function at returns the URL of a path in the bucket.
func bucketURL(t *testing.T) (at func(path string) string) {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("counts"))
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	return func(path string) string { return "s3://counts/" + path + "?endpoint=" + server.URL }
}

// listed returns how often each node has saved to a bucket.
func listed(t *testing.T, url string) map[string]uint64 {
	t.Helper()
	bucket, err := openBucket(url)
	require.NoError(t, err)
	defer bucket.Close()
	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	entries, err := bucket.List(ctx)
	require.NoError(t, err)
	newest := make(map[string]uint64)
	for _, e := range entries {
		newest[e.Node] = max(newest[e.Node], e.Generation)
	}
	return newest
}

func TestBucketCountsSurviveKillsAndRenames(t *testing.T) {
	t.Parallel()
	url, dir := bucketURL(t)("production"), folder(t)
	both := func(first, second string) (a, b *process) {
		a = start(t, dir, "-name", first, "-snapshots", url, "-snapshot_every", "1s")
		b = start(t, dir, "-name", second, "-snapshots", url, "-snapshot_every", "1s", "-join", a.addr(t))
		waitReady(t, a, b)
		return a, b
	}
	a, b := both("a", "b")
	for _, key := range []string{"u", "v", "w"} {
		for _, p := range []*process{a, b} {
			code, out := p.ask("check", "api/hourly", key, "-units", "20")
			require.Equal(t, ok, code, out)
		}
	}
	was := listed(t, url) // wait for two more snapshots of each node, because the first may have begun before the last check
	wait(t, func() bool { is := listed(t, url); return is["a"] >= was["a"]+2 && is["b"] >= was["b"]+2 }, "no snapshots")
	for _, p := range []*process{a, b} {
		require.NoError(t, p.Process.Kill())
		_ = p.Wait()
	}

	c, d := both("c", "d")
	for _, key := range []string{"u", "v", "w"} {
		wait(t, func() bool {
			code, out := d.ask("peek", "api/hourly", key)
			return code == ok && strings.Contains(out, "20 of 60 left")
		}, "the counts are not there")
	}
	wait(t, func() bool { code, _ := c.ask("status"); return code == ok }, "an outage goes on") // a late check may have begun an outage
	for _, p := range []*process{a, b, c, d} {
		require.NotContains(t, p.out.String(), s3Secret)
	}
}

func TestProcessServesWithoutItsBucket(t *testing.T) {
	t.Parallel()
	p := start(t, folder(t), "-snapshots", "s3://counts/production?endpoint=http://127.0.0.1:1", "-snapshot_every", "1s")
	waitReady(t, p)
	status, answer := p.post(t, "/v1/take", `{"limit":"api/hourly","key":"u"}`)
	require.Equal(t, 200, status, answer)
	wait(t, func() bool { return strings.Contains(p.out.String(), "a snapshot was not written") })
	require.Contains(t, p.out.String(), "cannot read snapshots")
	require.NotContains(t, p.out.String(), s3Secret)
}

func TestBucketSnapshotsAreListedShownAndVerified(t *testing.T) {
	t.Parallel()
	at := bucketURL(t)
	store, err := openBucket(at("production"))
	require.NoError(t, err)
	shared := saveThree(t, store)
	const newest, oldest, other = "a/00000000000000000002.snapshot", "a/00000000000000000001.snapshot", "b_20c_0a/00000000000000000001.snapshot"

	code, out, errs := weirSnapshot("list", at("production"))
	require.Equal(t, ok, code, errs)
	require.Equal(t, "NODE SAVED AGE BYTES GENERATION FILE\na TIME AGE 426 2 "+newest+"\na TIME AGE 426 1 "+oldest+"\n\"b c\\n\" TIME AGE 429 1 "+other+"\n", out)
	code, out, errs = weirSnapshot("show", at("production/"+other), "-shared", shared)
	require.Equal(t, ok, code, errs)
	require.Contains(t, out, "node: \"b c\\n\"\n")
	require.Contains(t, out, "counts 2 300\nvalues 1 7\n")
	code, out, errs = weirSnapshot("verify", at("production"), "-shared", shared)
	require.Equal(t, ok, code, errs)
	require.Equal(t, newest+": good, 3 blocks\n"+oldest+": good, 3 blocks\n"+other+": good, 3 blocks\n", out)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"none under this prefix":    {[]string{"verify", at("staging")}, "has no snapshots"},
		"no such bucket":            {[]string{"list", strings.Replace(at("production"), "counts", "none", 1)}, "bucket none: The specified bucket does not exist"},
		"no such snapshot":          {[]string{"show", at("production/a/00000000000000000099.snapshot")}, "file does not exist"},
		"no such snapshot, to read": {[]string{"verify", at("production/a/00000000000000000099.snapshot")}, "1 of 1 snapshot cannot be read"},
		"many in place of one":      {[]string{"show", at("production")}, "name one of the snapshots that `weir snapshot list"},
		"no secret":                 {[]string{"show", at("production/" + other)}, "(-shared names the file of the secrets)"},
		"a URL of something else":   {[]string{"list", "https://counts.s3.amazonaws.com/production"}, "write s3://BUCKET/PREFIX"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, errs := weirSnapshot(c.args...)
			require.Equal(t, bad, code)
			require.Contains(t, errs, "weir snapshot "+c.args[0]+": ")
			require.Contains(t, errs, c.says)
			require.NotContains(t, errs, s3Secret)
		})
	}
}

func TestErrorOfInvalidBucketURLShowsValidForm(t *testing.T) {
	for url, says := range map[string]string{
		"S3:/counts":                         "write s3://BUCKET/PREFIX",
		"s3://weir:" + s3Secret + "@counts/": "the URL has credentials: leave them out, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
		"s3://counts/p?key=" + s3Secret:      `unknown parameter "key": use endpoint, region or virtual_host`,
	} {
		_, err := parseServe([]string{"-snapshots", url})
		require.ErrorContains(t, err, "weir serve: -snapshots: ", url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), s3Secret)
		t.Setenv("WEIR_SNAPSHOTS", url)
		_, err = parseServe(nil)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), s3Secret)
		require.NoError(t, os.Unsetenv("WEIR_SNAPSHOTS"))
	}
	_, err := parseServe([]string{"-snapshots", "s3://counts/production?region=eu-west-1"})
	require.NoError(t, err)
	_, err = parseServe([]string{"-snapshots", `C:\counts`})
	require.NoError(t, err, "a directory")
}
