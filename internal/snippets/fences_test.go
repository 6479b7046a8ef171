package snippets_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-go/weir/internal/snippets"
	"github.com/weir-go/weir/rules"
)

// held are the languages that tests hold to what they are. Package httplimit runs nginx and
// Caddy with theirs.
var held = map[string]bool{"go": true, "yaml": true, "json": true, "sh": true, "console": true, "promql": true, "nginx": true, "caddyfile": true}

// plain are those that nothing can hold.
var plain = map[string]bool{"text": true, "http": true}

// of returns the snippets of one language, some at least.
func of(t *testing.T, language string) (found []snippets.Snippet) {
	all, err := snippets.All()
	require.NoError(t, err)
	for _, s := range all {
		if s.Language == language {
			found = append(found, s)
		}
	}
	require.NotEmpty(t, found)
	return found
}

func TestEverySnippetSaysWhatItIs(t *testing.T) {
	all, err := snippets.All()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, s := range all {
		if !held[s.Language] && !plain[s.Language] {
			t.Errorf("%s: the language of the fence is %q: use one that tests hold, or text", s.At(), s.Language)
		}
	}
}

// alerts is a file of alerts as Prometheus reads it. Package weirprom holds what its
// expressions name.
type alerts struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

func TestEverySnippetOfYAMLIsRead(t *testing.T) {
	for _, s := range of(t, "yaml") {
		switch s.Key() {
		case "about": // a scenario, which package simulations reads
		case "domain": // descriptors, which package envoylimit reads
		case "http_filters", "rate_limits": // Envoy's, which package envoylimit reads
		case "http": // Traefik's
			if err := yaml.Unmarshal([]byte(s.Text), new(any)); err != nil {
				t.Errorf("%s: %v", s.At(), err)
			}
		case "groups":
			d := yaml.NewDecoder(strings.NewReader(s.Text))
			d.KnownFields(true)
			if err := d.Decode(new(alerts)); err != nil {
				t.Errorf("%s: %v", s.At(), err)
			}
		default:
			if _, err := rules.Parse(s.At(), []byte(s.Text)); err != nil {
				t.Errorf("%s, as a rules file: %v", s.At(), err)
			}
		}
	}
}

func TestEverySnippetOfJSONIsRead(t *testing.T) {
	for _, s := range of(t, "json") {
		if !json.Valid([]byte(s.Text)) {
			t.Errorf("%s: not JSON: %s", s.At(), s.Text)
		}
	}
}

func TestEverySnippetOfTheShellIsOne(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh on this machine; Commands has read the snippets all the same")
	}
	for _, s := range of(t, "sh") {
		c := exec.Command(sh, "-n")
		c.Stdin = strings.NewReader(s.Text)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", s.At(), err, out)
		}
	}
}
