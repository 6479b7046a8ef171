package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func completed(words ...string) string {
	var out strings.Builder
	run(append([]string{"complete", "--"}, words...), &out, &out)
	return strings.Join(strings.Fields(out.String()), " ")
}

func TestCommandsAndFlagsAreCompleted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		words []string
		want  string
	}{
		{nil, "serve live status check reserve settle hold peek reset override user block switch ban raise audit top rules envoy snapshot secret version completion"},
		{[]string{""}, "serve live status check reserve settle hold peek reset override user block switch ban raise audit top rules envoy snapshot secret version completion"},
		{[]string{"s"}, "serve status settle switch snapshot secret"},
		{[]string{"rules", ""}, "check put schema"},
		{[]string{"snapshot", ""}, "list show verify"},
		{[]string{"serve", "-che"}, "-checks -checks_tokens"},
		{[]string{"serve", "--che"}, "--checks --checks_tokens"},
		{[]string{"serve", "-rules", "status", "--audit"}, "--audit --audit_sample --audit_keys --audit_clients"},
		{[]string{"serve", "-rules", ""}, ""}, // a file name
		{[]string{"serve", "-forget_refused", "-leave"}, "-leave_within"},
		{[]string{"-h", "st"}, "status"},
		{[]string{"completion", ""}, "bash zsh fish"},
		{[]string{"check", "api/hourly", "u"}, ""},
	} {
		require.Equal(t, c.want, completed(c.words...), "%q", c.words)
	}
}

// Each shell reads its script, and completes as with the Tab key.
func TestShellsCompleteCommandLines(t *testing.T) {
	t.Parallel()
	for shell, ask := range map[string]string{
		"bash": `source script; COMP_WORDS=(weir serve --chec); COMP_CWORD=2; _weir; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh":  `compdef() { :; }; compadd() { shift; print -l -- $@; }; source ./script; words=(weir serve --chec); CURRENT=3; _weir`,
		"fish": `source script; complete -C 'weir serve --chec' | string replace -r "\t.*" ""; true`,
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip(err)
			}
			dir := t.TempDir()
			self, err := os.Executable()
			require.NoError(t, err)
			require.NoError(t, os.Symlink(self, filepath.Join(dir, "weir"))) // TestMain runs it as the command
			require.NoError(t, os.WriteFile(filepath.Join(dir, "script"), []byte(scripts[shell]), 0o600))
			c := exec.Command(shell, "-c", ask)
			c.Dir = dir
			c.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+dir, asWeir+"=1")
			out, err := c.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, "--checks --checks_tokens", strings.Join(strings.Fields(string(out)), " "))
		})
	}
}
