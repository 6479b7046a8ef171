package envoylimit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// messaging uses all fields of the format, except metadata.
const messaging = `
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        detailed_metric: true
        rate_limit: {unit: day, requests_per_unit: 5}
      - key: to_number
        value: "2061234567"
        rate_limit: {unlimited: true}
  - key: to_number
    value_to_metric: true
    rate_limit: {unit: MONTH, requests_per_unit: 100, name: per number}
  - key: path
    value: files/*
    share_threshold: true
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: path
    value: files/a*
    rate_limit: {unit: year, requests_per_unit: 7}
  - key: path
    value: files/a
    quota_mode: true
    rate_limit: {unit: week, requests_per_unit: 4294967295}
  - key: 0x1F
    value: 2026-01-02
    rate_limit: {unlimited: true}
  - key: tokens
    debit: true
    rate_limit: {unit: hour, requests_per_unit: 1000, replaces: [{name: per number}]}
`

// descriptorOf returns a descriptor with alternating keys and values.
func descriptorOf(pairs ...string) *ratelimit.RateLimitDescriptor {
	d := new(ratelimit.RateLimitDescriptor)
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// findDescriptors returns the descriptors that match alternating keys and values.
func findDescriptors(t *testing.T, d *domain, pairs ...string) []*descriptor {
	t.Helper()
	way, err := d.find(&work{ctx: t.Context()}, descriptorOf(pairs...).GetEntries(), nil)
	require.NoError(t, err)
	return way
}

func TestMostSpecificLimitOfSameDepthApplies(t *testing.T) {
	cfg, err := Parse("messaging.yaml", []byte(messaging))
	require.NoError(t, err)
	require.Equal(t, []string{"messaging"}, cfg.Domains())
	d := cfg.domains["messaging"]
	for _, c := range []struct {
		about, path string
		entries     []string
	}{
		{"a key without a value matches any", "messaging.to_number", []string{"to_number", "1"}},
		{"an empty value, too", "messaging.to_number", []string{"to_number", ""}},
		{"nested", "messaging.message_type_marketing.to_number", []string{"message_type", "marketing", "to_number", "1"}},
		{"nested, with its value", "messaging.message_type_marketing.to_number_2061234567", []string{"message_type", "marketing", "to_number", "2061234567"}},
		{"another value above", "", []string{"message_type", "news", "to_number", "1"}},
		{"fewer entries than the limit is deep", "", []string{"message_type", "marketing"}},
		{"more entries than the limit is deep", "", []string{"to_number", "1", "to_number", "1"}},
		{"an unknown key", "", []string{"from_number", "1"}},
		{"no entries", "", nil},
		{"a pattern", "messaging.path_files/*", []string{"path", "files/b"}},
		{"the pattern's beginning alone", "messaging.path_files/*", []string{"path", "files/"}},
		{"of two patterns the first in the file", "messaging.path_files/*", []string{"path", "files/ab"}},
		{"a value before patterns", "messaging.path_files/a", []string{"path", "files/a"}},
		{"no pattern fits", "", []string{"path", "file"}},
		{"scalars of YAML as they are written", "messaging.0x1F_2026-01-02", []string{"0x1F", "2026-01-02"}},
	} {
		way := findDescriptors(t, d, c.entries...)
		got := ""
		if len(way) == len(c.entries)/2 && len(way) > 0 {
			if l := way[len(way)-1].limit; l != nil {
				got = l.path
			}
		}
		require.Equal(t, c.path, got, c.about)
	}
}

func TestErrorHasPositionAndSuggestion(t *testing.T) {
	const head = "domain: d\ndescriptors:\n"
	for _, c := range []struct{ about, text, want string }{
		{"no domain", "descriptors: []", "f.yaml:1:1: domain is missing"},
		{"an empty domain", "domain: ''", `f.yaml:1:9: "domain" is empty: use the name that Envoy sends`},
		{"an unknown field", "domain: d\ndescriptor: []", `f.yaml:2:1: unknown field "descriptor": did you mean "descriptors"?`},
		{"an unknown field of a descriptor", head + "- key: a\n  ratelimit: {}", `f.yaml:4:3: unknown field "ratelimit": did you mean "rate_limit"?`},
		{"an unknown field of a limit", head + "- key: a\n  rate_limit: {unit: day, requests: 5, requests_per_unit: 5}", `f.yaml:4:27: unknown field "requests": known are unit, requests_per_unit, unlimited, name, replaces`},
		{"no key", head + "- value: a", "f.yaml:3:3: key is missing"},
		{"an empty key", head + "- key: ''", `f.yaml:3:8: "key" is empty: use the key of the entries that the descriptor is for`},
		{"a key that is a pattern", head + "- key: a*", `f.yaml:3:8: "key" is "a*", and only a value can be a pattern: use a descriptor for each key`},
		{"a value that is no text", head + "- {key: a, value: [404]}", "f.yaml:3:19: value is a list: use a single value"},
		{"a descriptor that is no map", head + "- a", "f.yaml:3:3: descriptors is a text: use a map"},
		{"a descriptor twice", head + "- {key: a, value: b}\n- {key: a}\n- {key: a, value: b}", "f.yaml:5:3: a descriptor repeats this key and value: remove one (the first is on line 3)"},
		{"a pattern twice", head + "- {key: a, value: b*}\n- {key: a, value: b*}", "f.yaml:4:3: a descriptor repeats this key and value: remove one (the first is on line 3)"},
		{"sharing without a pattern", head + "- {key: a, value: b, share_threshold: true}", "f.yaml:3:39: share_threshold is for a value that has a *: remove it, or make the value a pattern"},
		{"no unit", head + "- {key: a, rate_limit: {requests_per_unit: 5}}", "f.yaml:3:24: unit is missing"},
		{"an unknown unit", head + "- {key: a, rate_limit: {unit: minutes, requests_per_unit: 5}}", `f.yaml:3:31: unknown unit "minutes": did you mean "minute"?`},
		{"no number", head + "- {key: a, rate_limit: {unit: day}}", "f.yaml:3:24: requests_per_unit is missing"},
		{"too many", head + "- {key: a, rate_limit: {unit: day, requests_per_unit: 4294967296}}", "f.yaml:3:55: requests_per_unit is 4294967296: use 0 to 4294967295"},
		{"unlimited and limited", head + "- {key: a, rate_limit: {unlimited: true, unit: day}}", "f.yaml:3:48: the rate_limit is unlimited: remove unit and requests_per_unit, or unlimited"},
		{"a mode without a limit", head + "- {key: a, shadow_mode: true}", "f.yaml:3:25: shadow_mode is for a rate_limit, and this descriptor has none: descriptors below do not inherit it, so write it beside the rate_limit"},
		{"two modes", head + "- {key: a, shadow_mode: true, quota_mode: true, rate_limit: {unlimited: true}}", "f.yaml:3:43: quota_mode has no effect beside shadow_mode: remove one of them"},
		{"what is replaced is not there", head + "- {key: a, rate_limit: {unlimited: true, name: frist}}\n- {key: b, rate_limit: {unlimited: true, replaces: [{name: first}]}}", `f.yaml:4:60: no rate_limit of this domain has the name "first": did you mean "frist"?`},
		{"what replaces itself", head + "- {key: a, rate_limit: {unlimited: true, name: a, replaces: [{name: a}]}}", `f.yaml:3:69: "name" is "a", and this rate_limit itself has that name: use the name of another`},
		{"two mistakes", "domain: d\ndescriptors:\n- {kye: a}", "f.yaml:3:3: key is missing\nf.yaml:3:4: unknown field \"kye\": did you mean \"key\"?"},
		{"no YAML", "domain: [", "f.yaml:2: not YAML: did not find expected node content"},
	} {
		cfg, err := Parse("f.yaml", []byte(c.text))
		require.EqualError(t, err, c.want, c.about)
		require.Nil(t, cfg, c.about)
	}
}

func TestDescriptorsHaveSeparateKeys(t *testing.T) {
	d, middle := descriptor{key: "path", shared: true}, descriptor{key: "path", shared: true}
	d.setValue("a*")
	middle.setValue("*a|*")
	seen := make(map[string]string)
	for _, c := range []struct {
		key     string
		entries []string
		way     []*descriptor
	}{
		{"a=b", []string{"a", "b"}, nil},
		{"a=b|c=d", []string{"a", "b", "c", "d"}, nil},
		{`a=b\|c\=d`, []string{"a", "b|c=d"}, nil},
		{`a\=b=`, []string{"a=b", ""}, nil},
		{`a=b\\`, []string{"a", `b\`}, nil},
		{`path=a\*`, []string{"path", "ab"}, []*descriptor{&d}},
		{`path=a\\*`, []string{"path", `a\*`}, nil},
		{"", []string{"a", strings.Repeat("b", 1100)}, nil},
		{"", []string{"a", strings.Repeat("b", 1101)}, nil},
		{`path=\*a\|\*`, []string{"path", "ba|b"}, []*descriptor{&middle}},
		{`path=*a\|*`, []string{"path", "*a|*"}, nil},
		{`path=a\*|b=c`, []string{"path", "ab", "b", "c"}, []*descriptor{&d}},
	} {
		key := string(appendKey(nil, descriptorOf(c.entries...).GetEntries(), c.way))
		if c.key != "" {
			require.Equal(t, c.key, key)
		}
		require.LessOrEqual(t, len(key), maxKeyBytes)
		require.Empty(t, seen[key])
		seen[key] = strings.Join(c.entries, ",")
	}
}

func TestLongPathHasUniqueShortName(t *testing.T) {
	long := "d." + strings.Repeat("é", 200)
	name, other := limitName(long+"a", "day", false), limitName(long+"b", "day", false)
	require.LessOrEqual(t, len(name), maxNameBytes)
	require.NotEqual(t, name, other)
	require.NotEqual(t, name, limitName(long+"a", "day", true))
	require.Equal(t, "d.a/day", limitName("d.a", "day", false))
}

func TestDirectoryHasOneDomainPerFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	_, err := Load(filepath.Join(dir, "none.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Load(dir)
	require.ErrorIs(t, err, os.ErrNotExist, "it has no configuration")

	write("a.yaml", "domain: a")
	write("b.yml", "domain: b")
	write("notes.txt", "none")
	write(".c.yaml", "none")
	cfg, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, cfg.Domains())

	write("c.yaml", "\ndomain: a")
	_, err = Load(dir)
	require.EqualError(t, err, filepath.Join(dir, "c.yaml")+`:2:9: domain "a" is in `+filepath.Join(dir, "a.yaml")+", too: write each domain into one file, or use LoadMerged, Options.MergeDomains or -envoy_options=merge_domains")

	write("c.yaml", "domain: c\nx: 1")
	write("b.yml", "domain: b\nx: 1")
	_, err = Load(dir)
	require.ErrorContains(t, err, "b.yml:2:1")
	require.ErrorContains(t, err, "c.yaml:2:1", "all files are told of at once")

	require.NoError(t, os.Mkdir(filepath.Join(dir, "d.yaml"), 0o700))
	write("c.yaml", "domain: c")
	write("b.yml", "domain: b")
	_, err = Load(dir)
	require.NoError(t, err, "what is in directories below is not read")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(messaging))
	f.Add([]byte("domain: d\ndescriptors: [{key: a, value: '*', descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := Parse("f.yaml", text)
		if err != nil {
			require.Nil(t, cfg)
			return
		}
		for _, d := range cfg.domains {
			for _, l := range d.limits {
				if l.current == nil {
					continue
				}
				per, name := period(l.current)
				require.Positive(t, per)
				require.LessOrEqual(t, len(limitName(l.path, name, true)), maxNameBytes)
			}
			requireFound(t, d.top, nil)
		}
	})
}

// requireFound requires that an entry with the key and the value of a descriptor matches this
// descriptor, for each descriptor of a level and of the levels below, except for patterns.
func requireFound(t *testing.T, l *level, above []string) {
	var all []*descriptor
	for _, d := range l.exact {
		all = append(all, d)
	}
	for _, d := range l.any {
		// A pattern that fits every value hides the descriptor without a value.
		if !slices.ContainsFunc(l.patterns[d.key], func(p *descriptor) bool { return strings.Trim(p.value, "*") == "" }) {
			all = append(all, d)
		}
	}
	for _, d := range all {
		got, err := l.match(&work{ctx: t.Context()}, &ratelimit.RateLimitDescriptor_Entry{Key: d.key, Value: d.value})
		require.NoError(t, err)
		require.Same(t, d, got, "%v", above)
		if d.below != nil {
			requireFound(t, d.below, append(above, d.label()))
		}
	}
}
