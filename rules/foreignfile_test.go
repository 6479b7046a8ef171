package rules

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const secret = "hunter2"

// others are files that are not rules files, to which a link may lead. Their errors must not
// contain the secret.
var others = map[string]string{
	"shadow":              "root:" + secret + ":19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n",
	"the last line alone": "a b c\n" + secret + ":\n",
	"a field":             "password: " + secret + "\n",
	"its name":            secret + ": x\n",
	"twice":               secret + ": x\n" + secret + ": y\n",
	"JSON":                `{"type": "service_account", "` + secret + `": "` + secret + `"}`,
	"a complex key":       "? " + secret + "\n: x\n",
	"a list as a key":     "? [" + secret + "]\n: x\n",
	"a text":              secret,
	"a list":              "- " + secret + "\n",
	"an environment":      "SECRET=" + secret + "\n",
	"an INI file":         "[default]\naws_secret = " + secret + "\n",
	"a key":               "-----BEGIN " + secret + " KEY-----\n" + secret + "\n-----END KEY-----\n",
	"a tag":               "!" + secret + " x",
	"a tag of a field":    "a: !" + secret + " x",
	"a long tag":          "a: !<" + secret + "> x",
	"a tag's directive":   "%TAG !e! " + secret + "\n---\n!e!x y",
	"a directive":         "%" + secret + "\n---\nx",
	"an anchor":           "&" + secret + " x",
	"an alias":            "a: *" + secret,
	"an alias of it":      "a: &" + secret + " b\nc: *" + secret,
	"a known field":       "version: " + secret + "\n",
	"known fields":        "version: " + secret + "\nenabled: " + secret + "\ntiers: " + secret + "\n",
	"no YAML":             secret + ": {\n  a: [" + secret,
	"a quote":             "'" + secret,
	"an escape":           `"\` + secret + `"`,
	"documents":           "---\n" + secret + "\n---\n" + secret + "\n",
	"a deep one":          strings.Repeat("["+secret+",", 40) + strings.Repeat("]", 40),
	"a tab":               secret + ":\n\t" + secret,
	"bytes":               secret + "\x00\x01\xff",
}

func TestFileWithoutRulesIsRefusedWithoutContent(t *testing.T) {
	for about, text := range others {
		_, err := Parse("rules.yaml", []byte(text))
		require.Error(t, err, about)
		require.NotContains(t, err.Error(), secret, about)
		require.NotContains(t, err.Error(), "hunter", about)
		require.True(t, strings.HasPrefix(err.Error(), "rules.yaml:"), err)
	}
	for text, want := range map[string]string{
		"password: x\nuser: y": "rules.yaml:1:1: rules is missing, and 2 of the fields are unknown: is it a rules file? Its content is not shown",
		"rulse: []":            "rules.yaml:1:1: unknown field \"rulse\": did you mean \"rules\"?\nrules.yaml:1:1: rules is missing",
		"rules: []\nother: x":  `rules.yaml:2:1: unknown field "other": known are`,
		"rules: !x []":         `rules.yaml:1:8: !x is a tag`,
		"rules: [*a]":          `unknown anchor 'a' referenced`,
		"{\"rules\": &b []}":   `&b is an anchor`,
	} {
		_, err := Parse("rules.yaml", []byte(text))
		require.ErrorContains(t, err, want)
	}
}

// If a foreign file replaces the rules file, neither the log nor Stats, which the admin API
// reports, reveal its content.
func TestLinkToOtherFileRevealsNoContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	write(t, path, "rules: [{name: all, key: global, limit: {rate: 1, per: 1s}}]")
	log := new(bytes.Buffer)
	b, err := Open(t.Context(), startNode(t), path, BookOptions{Logger: slog.New(slog.NewTextHandler(log, nil)), Poll: time.Hour})
	require.NoError(t, err)
	require.NoError(t, b.Close()) // the test calls reload
	for about, text := range others {
		other := filepath.Join(dir, "other")
		write(t, other, text)
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Symlink(other, path))
		reload(t, b, path)
		require.Error(t, b.Stats().LastError, about)
		require.NotContains(t, b.Stats().LastError.Error(), secret, about)
		require.NotContains(t, log.String(), secret, about)
		require.Len(t, b.Current().Rules(), 1, "the last good version is in force")
	}
}
