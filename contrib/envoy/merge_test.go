package envoylimit

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

// files creates a directory with the given files, and returns the path.
func files(t *testing.T, texts map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range texts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestFilesOfOneDomainAreMerged(t *testing.T) {
	dir := files(t, map[string]string{
		"a.yaml": "domain: d\ndescriptors:\n- {key: path, value: /a*, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: all}]}}",
		"b.yaml": "domain: d\ndescriptors:\n- {key: path, value: '*', rate_limit: {unit: day, requests_per_unit: 2}}\n- {key: all, rate_limit: {name: all, unit: day, requests_per_unit: 3}}",
		"c.yaml": "domain: e\ndescriptors: [{key: path, rate_limit: {unit: day, requests_per_unit: 4}}]",
		"d.yaml": "domain: d",
	})
	_, err := Load(dir)
	require.ErrorContains(t, err, `a.yaml:3:91: no rate_limit of this domain has the name "all"`, "each file is a domain")

	cfg, err := LoadMerged(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"d", "e"}, cfg.Domains())
	require.Equal(t, 4, cfg.count())
	for value, want := range map[string]string{"/a1": "d.path_/a*", "/b": "d.path_*"} {
		require.Equal(t, want, findDescriptors(t, cfg.domains["d"], "path", value)[0].limit.path, "patterns come in the order of the files' names")
	}
	s, err := New(testnode.Start(t, weir.Config{}), cfg, Options{})
	require.NoError(t, err)
	r := clientOf(t, s).ask(descriptorOf("path", "/a"), descriptorOf("all", ""))
	require.Nil(t, r.Statuses[1].CurrentLimit, "a limit of another file is replaced")
}

func TestDescriptorInTwoFilesIsRefused(t *testing.T) {
	const twice = "a descriptor with this key and value is in A, too: write it once"
	for _, c := range []struct{ about, a, b, want string }{
		{"a value", "- {key: k, value: v}", "- {key: j}\n- {key: k, value: v}", "B:4:3: " + twice},
		{"any value", "- {key: k}", "- {key: k, descriptors: [{key: l}]}", "B:3:3: " + twice},
		{"a pattern", "- {key: k, value: a*}", "- {key: k, value: a*}", "B:3:3: " + twice},
		{"a misspelt name", "- {key: k, rate_limit: {unlimited: true, name: frist}}", "- {key: l, rate_limit: {unlimited: true, replaces: [{name: first}]}}", `B:3:60: no rate_limit of this domain has the name "first": did you mean "frist"?`},
		{"a fault of one", "- {key: k}", "- {key: l, rate_limit: {unlimited: true, unlimted: true}}", `B:3:42: unknown field "unlimted": did you mean "unlimited"?`},
	} {
		dir := files(t, map[string]string{"a.yaml": "domain: d\ndescriptors:\n" + c.a, "b.yaml": "domain: d\ndescriptors:\n" + c.b})
		_, err := LoadMerged(dir)
		require.EqualError(t, err, strings.NewReplacer("A", filepath.Join(dir, "a.yaml"), "B", filepath.Join(dir, "b.yaml")).Replace(c.want), c.about)
	}
}

func TestResourcesOfOneDomainAreMergedByOption(t *testing.T) {
	other := &rlsconf.RateLimitConfig{Name: "other", Domain: "d", Descriptors: []*rlsconf.RateLimitDescriptor{
		{Key: "new", RateLimit: &rlsconf.RateLimitPolicy{RequestsPerUnit: 1, Unit: rlsconf.RateLimitUnit_HOUR}},
	}}
	_, err := configOf(version(t, "1", allOf(1), other), false)
	require.EqualError(t, err, `domain "d" is sent twice: send it in one resource, or use Options.MergeDomains or -envoy_options=merge_domains`)
	cfg, err := configOf(version(t, "1", allOf(1), other), true)
	require.NoError(t, err)
	require.Len(t, findDescriptors(t, cfg.domains["d"], "all", ""), 1)
	require.Len(t, findDescriptors(t, cfg.domains["d"], "new", ""), 1)
	_, err = configOf(version(t, "1", allOf(1), other, other), true)
	require.EqualError(t, err, `resource "other": a descriptor with this key and value is in resource "other", too: write it once`)
}

func TestWatchMergesByOption(t *testing.T) {
	dir := files(t, map[string]string{"a.yaml": "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]", "b.yaml": "domain: d\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]"})
	for _, merges := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, err := New(testnode.Start(t, weir.Config{}), new(Config), Options{MergeDomains: merges, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go s.Watch(ctx, dir, time.Second)
			time.Sleep(3 * time.Second)
			require.Equal(t, merges, clientOf(t, s).ask(hits(0, "b", "")).Statuses[0].CurrentLimit != nil)
		})
	}
}
