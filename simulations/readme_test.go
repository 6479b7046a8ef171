package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
)

func TestEveryScenarioInTheDocumentsIsRead(t *testing.T) {
	all, err := snippets.All()
	require.NoError(t, err)
	read := 0
	for _, s := range all {
		if s.Language != "yaml" || s.Key() != "about" {
			continue
		}
		read++
		_, err := parse("snippet.yaml", []byte(s.Text))
		require.NoError(t, err, "%s", s.At())
	}
	require.NotZero(t, read)
}

// completed is a scenario in which a field that stands alone in a line has its
// place.
func completed(key, field string) string {
	limit, load, faults, settings := "per: 5s", "rate: 5/s", "", ""
	switch key {
	case "adversary", "burst", "rate":
		load = field
	case "keeps":
		limit, load = "algorithm: in_flight", load+", "+field
	case "begins", "ends", "from", "settles":
		load += ", " + field
	case "caps", "hot", "region_shares":
		settings = field
	case "every":
		faults = "{at: 5s, slow: [a], pauses: 60ms, " + field + "}"
	case "pauses":
		faults = "{at: 5s, slow: [a], " + field + "}"
	case "breaks":
		faults = "{at: 5s, split: [[a, b], [c]], " + field + "}"
	case "for":
		faults = "{at: 5s, freeze: [a], " + field + "}"
	case "repeat":
		faults = "{at: 5s, freeze: [a], for: 2s, " + field + "}"
	case "lose", "revert":
		settings, faults = "snapshots: 5s", "{at: 5s, "+field+"}"
	case "start":
		faults = "{at: 4s, kill: [a]}, {at: 5s, " + field + "}"
	case "thaw":
		faults = "{at: 4s, freeze: [a]}, {at: 5s, " + field + "}"
	default:
		faults = "{at: 5s, " + field + "}"
	}
	return fmt.Sprintf(`about: A field.
lasts: 2m
nodes: {east: [a, b], west: [c]}
settings: {%s}
limits: [{name: api, rate: 1000, %s}]
load: [{limit: api, %s}]
faults: [%s]
`, settings, limit, load, faults)
}

func TestEveryFieldInTheReadmeIsRead(t *testing.T) {
	fields, err := snippets.Fields()
	require.NoError(t, err)
	read := 0
	for _, s := range fields {
		if s.File != "simulations/README.md" && s.Key() != "adversary" {
			continue
		}
		read++
		_, err := parse("snippet.yaml", []byte(completed(s.Key(), s.Text)))
		require.NoError(t, err, "%s: %s", s.At(), s.Text)
	}
	require.NotZero(t, read)
}

func TestTheReadmeListsWhatARunIsHeldTo(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, i := range invariants {
		require.Contains(t, string(text), fmt.Sprintf("| %s | %s |\n", i.name, i.means))
	}
}

func TestEveryRunInTheDocumentsIsUnderstood(t *testing.T) {
	calls, err := snippets.CallsOf("go", "run", "./simulations")
	require.NoError(t, err)
	require.NotEmpty(t, calls)
	root, err := snippets.Root()
	require.NoError(t, err)
	for _, c := range calls {
		o, err := parseArgs(c.Words, io.Discard)
		require.NoError(t, err, "%s: %q", c.At(), c.Words)
		if o.what == "" || o.what == strings.ToUpper(o.what) { // a NAME or FILE of the reader's
			continue
		}
		if strings.HasSuffix(o.what, ".yaml") {
			o.what = filepath.Join(root, filepath.FromSlash(o.what))
		}
		_, err = find(o.what)
		require.NoError(t, err, "%s: %q", c.At(), c.Words)
	}
}
