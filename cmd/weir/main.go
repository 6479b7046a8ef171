// Command weir runs a node that services in any language ask, asks nodes that run, checks
// rules files, and makes what nodes share:
//
//	weir serve -rules rules.yaml -bind :7946 -join weir.internal -shared weir.secret
//	weir status
//	weir check api/hourly 'user 123'
//	weir rules check rules.yaml
//	weir secret > weir.secret
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// The exit codes.
const (
	ok     = 0
	bad    = 1 // what is asked about is not well, or cannot be asked
	usage  = 2 // the command is wrong
	denied = 3 // the check is denied, or would be
)

const help = `Usage:
  weir serve [flags]              runs a node, and answers Envoy and services in any
                                  language; weir serve -h lists its flags
  weir live                       asks the node of this machine whether it is alive, at
                                  -health ADDRESS, WEIR_HEALTH or 127.0.0.1:8082
  weir status                     says of a node that runs what is wrong, who its members
                                  are and what they own, and how it decides
  weir check LIMIT KEY            asks it for a unit; -units N for more, -tier TIER
  weir peek LIMIT KEY             looks what is left, and spends nothing; -tier TIER
  weir reset LIMIT KEY            forgets a count on every member
  weir rules check FILE [flags]   says what is wrong with a rules file
  weir envoy check PATH           says what is wrong with a configuration of
                                  envoyproxy/ratelimit; -merge_domains, if several
                                  files have one domain
  weir rules schema               prints the JSON Schema of rules files
  weir secret                     prints a new secret and a new seed for weir.Config,
                                  in hex: Secrets are rotated, Seed never is

Flags of status, check, peek and reset:
  -admin URL              the admin API of a node, or unix:/path; http://127.0.0.1:8081,
                          or WEIR_CLIENT_ADMIN
  -token_file FILE        a file with its token; or WEIR_CLIENT_TOKEN_FILE
  -ca FILE                the certificates that sign the node's
  -cert FILE, -key FILE   the certificate to show it
  -json                   print what it answers

Flags of rules check, which explain what a request meets:
  -request 'METHOD URL'   the request, like 'GET https://api.example.com/v1/items'
  -header 'Name: value'   a field of its header; may be repeated
  -ip ADDRESS             who asks
  -user NAME
  -api_key KEY
  -tier TIER
  -length BYTES           of its content

Exit codes: 0 if all is well, 1 if it is not, 2 if the command is wrong, 3 if a check is
denied, or would be.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// command is what run calls for the words that a command line begins with.
type command struct {
	words string
	args  bool // more may follow
	call  func(args []string, stdout, stderr io.Writer) int
}

func run(args []string, stdout, stderr io.Writer) int {
	commands := []command{
		{"rules check", true, check},
		{"rules schema", false, schema},
		{"secret", false, secret},
		{"envoy check", true, checkEnvoy},
		{"serve", true, serve},
		{"live", true, live},
		{"status", true, status},
		{"check", true, takeUnits},
		{"peek", true, peek},
		{"reset", true, resetCount},
		{"help", false, printHelp},
		{"-h", false, printHelp},
		{"-help", false, printHelp},
		{"--help", false, printHelp},
	}
	for _, c := range commands {
		words := strings.Fields(c.words)
		if n := len(words); len(args) >= n && slices.Equal(args[:n], words) && (c.args || len(args) == n) {
			return c.call(args[n:], stdout, stderr)
		}
	}
	fmt.Fprint(stderr, help)
	return usage
}

func printHelp(_ []string, stdout, _ io.Writer) int {
	fmt.Fprint(stdout, help)
	return ok
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
