package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// scripts contains the completion scripts of shells. Each script runs weir complete to get the list
// of candidates. If there are none, bash and zsh complete a file name. fish always offers file
// names too.
var scripts = map[string]string{
	"bash": `_weir() {
  local IFS=$'\n'
  COMPREPLY=($(weir complete -- "${COMP_WORDS[@]:1:COMP_CWORD}"))
}
complete -o default -F _weir weir
`,
	"zsh": `#compdef weir
_weir() {
  local -a found
  found=(${(f)"$(weir complete -- "${(@)words[2,CURRENT]}")"})
  if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _weir weir
`,
	"fish": `complete -c weir -a '(weir complete -- (commandline -opc)[2..] "$(commandline -ct)")'
`,
}

// completionCommand prints the completion script of a shell.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish"`
}

// Help describes the use of the script.
func (*completionCommand) Help() string {
	return "Load the script when the shell starts:\n\n  source <(weir completion bash)   # in .bashrc, or zsh in .zshrc\n\n  weir completion fish | source    # in config.fish"
}

func (c *completionCommand) run(stdout, _ io.Writer) (int, error) {
	_, err := fmt.Fprint(stdout, scripts[c.Shell])
	return ok, err
}

// completeCommand prints the candidates for the last word, one per line.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

func (c *completeCommand) run(stdout, _ io.Writer) (int, error) {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	node, last := parser(io.Discard).Model.Node, len(words)-1
	for i := 0; i < last; i++ {
		if name, isFlag := strings.CutPrefix(words[i], "-"); isFlag {
			if flag := flagNamed(node, strings.TrimPrefix(name, "-")); flag != nil && !flag.IsBool() {
				if i++; i == last {
					return ok, nil // the value of a flag has no candidates
				}
			}
			continue
		}
		for _, child := range node.Children {
			if child.Name == words[i] {
				node = child
				break
			}
		}
	}
	name := strings.TrimLeft(words[last], "-")
	if dashes := words[last][:len(words[last])-len(name)]; dashes != "" {
		for _, flags := range node.AllFlags(true) {
			for _, flag := range flags {
				if strings.HasPrefix(flag.Name, name) {
					fmt.Fprintln(stdout, dashes+flag.Name)
				}
			}
		}
		return ok, nil
	}
	for _, child := range node.Children {
		if !child.Hidden && strings.HasPrefix(child.Name, name) {
			fmt.Fprintln(stdout, child.Name)
		}
	}
	for _, arg := range node.Positional {
		for _, value := range arg.EnumSlice() {
			if value != "" && strings.HasPrefix(value, name) {
				fmt.Fprintln(stdout, value)
			}
		}
	}
	return ok, nil
}

// flagNamed returns the flag of a command with the given name, or nil.
func flagNamed(node *kong.Node, name string) *kong.Flag {
	for _, flags := range node.AllFlags(false) {
		for _, flag := range flags {
			if flag.Name == name {
				return flag
			}
		}
	}
	return nil
}
