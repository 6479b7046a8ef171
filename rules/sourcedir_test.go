package rules

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeDir returns a directory with the given files.
func writeDir(t testing.TB, files map[string]string) (dir string) {
	dir = t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	return dir
}

// parseDir reads a directory as a Book does.
func parseDir(t testing.TB, dir string) (*Set, error) {
	source, err := NewSource(dir, SourceOptions{})
	require.NoError(t, err)
	text, err := source.Next(t.Context(), "")
	if err != nil {
		return nil, err
	}
	require.Equal(t, dir, text.Name)
	return Parse(text.Name, text.Bytes)
}

func TestDirectoryIsOneRulesFile(t *testing.T) {
	set, err := parseDir(t, writeDir(t, map[string]string{
		"20-api.yaml":   "$schema: s\nrules:\n- {name: api, key: user, limit: {rate: 10, per: 1h, tiers: {paid: {rate: 20, per: 1h}}}}",
		"10-base.yaml":  "---\n$schema: s\nversion: 7\ntiers: {free: {}, paid: {}}\ndeny: {ip: 192.0.2.1}\n",
		"30-login.yaml": `{"deny": [{"user": "eve"}], "rules": [{"name": "login", "key": "ip", "limit": {"rate": 5, "per": "1m"}}]}`,
		".hidden.yaml":  "rules: 5",
		"README.md":     "not read",
		"old.yaml.bak":  "rules: 5",
	}))
	require.NoError(t, err)
	require.EqualValues(t, 7, set.Version())
	require.Len(t, set.Rules(), 2)
	require.Equal(t, []string{"api", "login"}, []string{set.Rules()[0].Name, set.Rules()[1].Name})
	require.Equal(t, []string{"free", "paid"}, set.Tiers())
	require.NotNil(t, set.Block(&Request{User: "eve"}))
	require.Equal(t, 2, set.countBlocks())
}

func TestFragmentErrorsContainFileNames(t *testing.T) {
	const rule = "{name: %s, key: user, limit: {rate: 1, per: 1s}}"
	named := func(name string) string { return fmt.Sprintf("rules:\n- "+rule, name) }
	for about, c := range map[string]struct{ a, b, want string }{
		"rules of one name":     {named("r"), "# b\n" + named("r"), `DIR/b.yaml:3:10: rule "r" is used twice: give each rule its own name (the first is on line 2 of DIR/a.yaml)`},
		"a field of both":       {"version: 1\n" + named("r"), named("s") + "\nversion: 2", `DIR/b.yaml:3:1: field "version" is set twice: remove one (the first is on line 1 of DIR/a.yaml)`},
		"a field twice in one":  {named("r") + "\n" + named("s"), named("t"), `DIR/a.yaml:3:1: field "rules" is set twice: remove one (the first is on line 1)`},
		"two schemas":           {"$schema: a\n" + named("r"), "$schema: b\n" + named("s"), `DIR/a.yaml:1:10: $schema is a list: use a single value`},
		"errors of both":        {"rules: [{name: r}]", "rules: [{name: s}]", "DIR/a.yaml:1:9: key is missing\nDIR/a.yaml:1:9: limit is missing\nDIR/b.yaml:1:9: key is missing\nDIR/b.yaml:1:9: limit is missing"},
		"rules in conflict":     {"rules:\n- {name: r, match: {path: '/{x}/b'}, key: ip, limit: {rate: 1, per: 1s}}", "rules:\n- {name: s, match: {path: '/a/{y}'}, key: ip, limit: {rate: 1, per: 1s}}", `of rule "r" on line 2 of DIR/a.yaml`},
		"no rules":              {"version: 1", "deny: {user: eve}", "DIR/a.yaml:1:1: rules is missing"},
		"not a map":             {named("r"), "- 1", "DIR/b.yaml:1:1: the file is a list: use a map"},
		"a second document":     {named("r"), named("s") + "\n---\nrules: []", "DIR/b.yaml:4:1: the file has a second document: write one document in each file"},
		"an empty file":         {named("r"), "# nothing", "DIR/b.yaml: the file is empty"},
		"not YAML":              {named("r"), "rules: [", "DIR/b.yaml:"},
		"the content of others": {named("r"), "password: secret", "DIR/b.yaml:1:1: rules is missing, and 1 of the fields are unknown: is it a rules file? Its content is not shown"},
		"a secret that is text": {named("r"), "secret", "DIR/b.yaml:1:1: the file is a text: use a map"},
	} {
		dir := writeDir(t, map[string]string{"a.yaml": c.a, "b.yaml": c.b})
		_, err := parseDir(t, dir)
		require.Error(t, err, about)
		text := strings.ReplaceAll(err.Error(), dir, "DIR")
		require.Contains(t, text, c.want, about)
		require.NotContains(t, text, "secret", about)
	}
}

func TestVersionsOfFragmentsAreCompared(t *testing.T) {
	dir := writeDir(t, map[string]string{"a.yaml": "rules:\n- {name: r, key: user, limit: {rate: 10, per: 1h}}", "b.yaml": "\nversion: 5"})
	b := openDir(t, dir)
	replace(t, filepath.Join(dir, "b.yaml"), "\nversion: 4")
	eventually(t, "refused", func() bool { return b.Stats().Refused == 1 })
	require.ErrorContains(t, b.Stats().LastError, filepath.Join(dir, "b.yaml")+":2:10: version is 4, below 5")
	replace(t, filepath.Join(dir, "b.yaml"), "\nversion: 5")
	replace(t, filepath.Join(dir, "a.yaml"), "\n\nrules:\n- {name: r, key: user, limit: {algorithm: sliding_log, rate: 10, per: 1h}}")
	eventually(t, "refused", func() bool { return b.Stats().Refused == 2 })
	require.ErrorContains(t, b.Stats().LastError, filepath.Join(dir, "a.yaml")+`:4:43: limit "r" was a sliding_window`)
}

// openDir returns a Book of a directory that depends on events.
func openDir(t testing.TB, dir string) *Book {
	source, err := NewSource(dir, SourceOptions{Poll: never})
	require.NoError(t, err)
	b, err := OpenSource(t.Context(), startNode(t), source, BookOptions{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

func TestChangedFragmentsTakeEffect(t *testing.T) {
	dir := writeDir(t, map[string]string{"a.yaml": ratedFile(1, 10)})
	b := openDir(t, dir)
	write(t, filepath.Join(dir, "b.yaml"), "rules:\n- {name: s, key: user, limit: {rate: 1, per: 1h}}")
	eventually(t, "added", func() bool { return b.Stats().Rules == 2 })
	replace(t, filepath.Join(dir, "a.yaml"), ratedFile(2, 20))
	eventually(t, "changed", func() bool { return rateOf(b) == 20 })
	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	eventually(t, "removed", func() bool { return b.Stats().Rules == 1 })
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	eventually(t, "empty", func() bool { return b.Stats().Missing })
	require.EqualValues(t, 20, rateOf(b))
	require.ErrorContains(t, b.Stats().LastError, "has no file *.yaml")
	write(t, filepath.Join(dir, "c.yaml"), ratedFile(3, 30))
	eventually(t, "back", func() bool { return rateOf(b) == 30 && b.Stats().LastError == nil })
}

// A reader never sees files of two versions of a ConfigMap, although the files are links.
func TestDirectoryOfConfigMapChangesAtOnce(t *testing.T) {
	dir := t.TempDir()
	put := func(version int) {
		name := fmt.Sprintf("..2026_11_%02d", version)
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		for rule := range 3 {
			text := fmt.Sprintf("rules:\n- {name: r%d, key: user, limit: {rate: %d, per: 1h}}", rule, 10*version)
			if rule == 0 {
				text += fmt.Sprintf("\nversion: %d", version)
			}
			write(t, filepath.Join(dir, name, fmt.Sprintf("%d.yaml", rule)), text)
		}
		require.NoError(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	put(1)
	for rule := range 3 {
		require.NoError(t, os.Symlink(filepath.Join("..data", fmt.Sprintf("%d.yaml", rule)), filepath.Join(dir, fmt.Sprintf("%d.yaml", rule))))
	}
	b := openDir(t, dir)
	for version := 2; version < 5; version++ {
		put(version)
		require.NoError(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_11_%02d", version-1))))
		eventually(t, "swapped", func() bool { return b.Stats().Version == uint64(version) })
		for _, r := range b.Current().Rules() {
			require.EqualValues(t, 10*version, b.Current().Limiter(&r.Limits[0], "", "k").Limit().Rate)
		}
	}
	require.Zero(t, b.Stats().Refused)
}

func TestSizeOfDirectoryIsBounded(t *testing.T) {
	files := make(map[string]string)
	for i := range maxFragments + 1 {
		files[fmt.Sprintf("%d.yaml", i)] = "#"
	}
	_, err := parseDir(t, writeDir(t, files))
	require.ErrorContains(t, err, "has more than 1000 files *.yaml: join some of them")
	long := strings.Repeat("#", 600_000)
	_, err = parseDir(t, writeDir(t, map[string]string{"a.yaml": long, "b.yaml": long}))
	require.ErrorContains(t, err, "at most 1048576 are read")
	_, err = parseDir(t, writeDir(t, map[string]string{"a\n--- # fragment b.yaml": ratedFile(1, 1)}))
	require.ErrorContains(t, err, "use names without control characters")
}

func TestJoinedFragmentsAreSplitUnchanged(t *testing.T) {
	all := []fragment{{"a.yaml", []byte("x: 1\n")}, {"b.yaml", []byte("\n")}, {"c.yaml", []byte("y: 2\n---\n")}}
	require.Equal(t, all, splitFragments(joinFragments(all)))
	require.Nil(t, splitFragments([]byte("--- # my rules\nrules: []")))
}

// A text from a URL or from an operator may contain forged lines with names of fragments.
func TestForgedFragmentsHaveShortErrors(t *testing.T) {
	for about, text := range map[string]string{
		"a long name":          fragmentMark + strings.Repeat("n", 500_000) + "\nrules: [" + strings.Repeat("1,", 100) + "]",
		"an escape":            fragmentMark + "\x1b[2J\u009b\nrules: 5",
		"many fragments":       strings.Repeat(fragmentMark+"a\n[\n", 20_000),
		"many broken files":    strings.Repeat(fragmentMark+"a\n[\n", maxFragments),
		"many unknown fields":  strings.Repeat(fragmentMark+"a\nx: 1\n", maxFragments),
		"a name in each error": fragmentMark + strings.Repeat("n", maxFragmentName) + "\nrules: [" + strings.Repeat("1,", 1000) + "]",
	} {
		_, err := Parse("rules", []byte(text))
		require.Error(t, err, about)
		require.Less(t, len(err.Error()), 30_000, about)
		require.NotContains(t, err.Error(), "\x1b", about)
		require.NotContains(t, err.Error(), "\u009b", about)
	}
}
