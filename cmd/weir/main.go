// Command weir checks rules files, explains them, and makes what nodes share:
//
//	weir rules check rules.yaml
//	weir rules check rules.yaml -request 'POST https://api.example.com/v1/login' -ip 192.0.2.1
//	weir rules schema > weir-rules.schema.json
//	weir secret > weir.secret
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

// The exit codes.
const (
	ok    = 0
	bad   = 1 // the file is wrong, or cannot be read
	usage = 2 // the command is
)

const help = `Usage:
  weir rules check FILE [flags]   says what is wrong with a rules file
  weir rules schema               prints the JSON Schema of rules files
  weir secret                     prints a new secret and a new seed for weir.Config,
                                  in hex: Secrets are rotated, Seed never is

Flags of check, which explain what a request meets:
  -request 'METHOD URL'   the request, like 'GET https://api.example.com/v1/items'
  -header 'Name: value'   a field of its header; may be repeated
  -ip ADDRESS             who asks
  -user NAME
  -api_key KEY
  -tier TIER
  -length BYTES           of its content

Exit codes: 0 if the file is good, 1 if it is not, 2 if the command is wrong.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	switch {
	case len(args) >= 2 && args[0] == "rules" && args[1] == "check":
		return check(args[2:], stdout, stderr)
	case len(args) == 2 && args[0] == "rules" && args[1] == "schema":
		return schema(stdout, stderr)
	case len(args) == 1 && args[0] == "secret":
		return secret(stdout, stderr)
	case len(args) == 1 && (args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help"):
		fmt.Fprint(stdout, help)
		return ok
	}
	fmt.Fprint(stderr, help)
	return usage
}

// wrongly says what is wrong with the command.
func wrongly(stderr io.Writer, format string, args ...any) int {
	fmt.Fprintf(stderr, "weir rules check: "+format+"\n", args...)
	return usage
}

// interleaved parses flags before and after the other arguments, which it
// returns.
func interleaved(flags *flag.FlagSet, args []string) (others []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return others, nil
		}
		others, args = append(others, flags.Arg(0)), flags.Args()[1:]
	}
}
