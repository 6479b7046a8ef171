// Command weir runs a node for services in any language, sends requests to running nodes,
// checks rules files and snapshots, and creates the secrets that nodes share:
//
//	weir serve -rules rules.yaml -bind :7946 -join weir.internal -shared weir.secret
//	weir status
//	weir check api/hourly 'user 123'
//	weir rules check rules.yaml
//	weir audit replay -rules new.yaml denials.jsonl
//	weir snapshot verify /var/lib/weir -shared weir.secret
//	weir secret -o weir.secret
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"

	"github.com/weir-go/weir/internal/identity"
)

// The exit codes.
const (
	ok     = 0
	bad    = 1 // the result is negative, or the command failed
	usage  = 2 // the command line is invalid
	denied = 3 // the check is denied, or would be
)

// commands is the set of all commands of weir.
type commands struct {
	Help helpFlag `short:"h" help:"show the help of a command and its flags"`

	Serve    serveCommand    `cmd:"" help:"run a node, which answers Envoy and services in any language"`
	Live     liveCommand     `cmd:"" help:"check that the node on this machine is alive"`
	Status   statusCommand   `cmd:"" help:"show the problems of a running node, its members and their shares of the keys, and its decisions"`
	Check    checkCommand    `cmd:"" help:"take units for a key from a node"`
	Reserve  reserveCommand  `cmd:"" help:"spend an estimated cost, and print the reservation for weir settle"`
	Settle   settleCommand   `cmd:"" help:"replace the estimate of a reservation by the actual cost"`
	Hold     holdCommand     `cmd:"" help:"hold units of an in_flight limit while a command runs"`
	Peek     peekCommand     `cmd:"" help:"show the units that a key has left, without spending any"`
	Reset    resetCommand    `cmd:"" help:"delete the count of a key on every member"`
	Override overrideCommand `cmd:"" help:"set other numbers of a limit for one key, or remove them"`
	User     userCommand     `cmd:"" help:"show, reset, override or block all limits of a user, an address or an API key"`
	Block    blockCommand    `cmd:"" help:"refuse the requests of a client or a key, or list the blocks"`
	Switch   switchCommand   `cmd:"" help:"set rules to enforce, shadow or off, or list the switches"`
	Ban      struct {
		List    banListCommand    `cmd:"" help:"list the bans of all members"`
		Release banReleaseCommand `cmd:"" help:"release a key from its ban, and delete its count"`
	} `cmd:"" help:"list and release keys that a rule has banned"`
	Raise struct {
		List   raiseListCommand   `cmd:"" help:"list the suggestions to raise the limits of hot keys"`
		Accept raiseAcceptCommand `cmd:"" help:"set the override that is suggested for a key"`
	} `cmd:"" help:"list and accept suggestions to raise the limits of hot keys"`
	Audit struct {
		Replay replayCommand `cmd:"" help:"decide the requests in audit records again, by other rules"`
	} `cmd:"" help:"replay audit records"`
	Top   topCommand `cmd:"" help:"show the keys with the most checks, denials and held units"`
	Rules struct {
		Check  rulesCommand  `cmd:"" help:"check a rules file, or show the rules and limits that apply to a request"`
		Put    putCommand    `cmd:"" help:"publish a rules file to all members"`
		Schema schemaCommand `cmd:"" help:"print the JSON Schema of rules files"`
	} `cmd:"" help:"check and publish rules files"`
	EnvoyConfig struct {
		Check envoyCommand `cmd:"" help:"check a configuration of envoyproxy/ratelimit"`
	} `cmd:"" name:"envoy" help:"check configurations of envoyproxy/ratelimit"`
	Snapshot struct {
		List   snapshotListCommand   `cmd:"" help:"list the snapshots in a directory"`
		Show   snapshotShowCommand   `cmd:"" help:"show the contents of a snapshot"`
		Verify snapshotVerifyCommand `cmd:"" help:"read whole snapshots, and report damaged snapshots"`
	} `cmd:"" help:"list and check the snapshots of nodes"`
	Secret     secretCommand     `cmd:"" help:"print a new secret and a new seed; rotate secrets, but never change the seed"`
	Version    versionCommand    `cmd:"" help:"print the versions of weir and of the peer protocol"`
	Completion completionCommand `cmd:"" help:"print a script that completes commands and flags in a shell"`
	Complete   completeCommand   `cmd:"" hidden:""`
}

const about = `A rate limiter whose counts are shared by several nodes.

Exit codes: 0 after a success, 1 if the command fails or finds a problem, 2 if the command line is invalid, 3 if a check is denied or would be denied.`

// groups contains the groups of flags, each with an example.
var groups = []kong.Group{
	{Key: "What it serves", Title: "What it serves, as in --rules rules.yaml --checks :8080 --checks_tokens tokens:"},
	{Key: "Envoy", Title: "Envoy, as in --envoy :8083 --envoy_config limits.yaml:"},
	{Key: "The node", Title: "The node, as in --bind :7946 --join weir.internal --shared weir.secret:"},
	{Key: "Audit", Title: "Audit, as in --audit denials.jsonl --audit_sample 0.01:"},
	{Key: "request", Title: "The request whose rules and limits are shown, as in --request 'GET /v1/items' --user 123 --header 'X-Plan: gold':"},
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// command is a parsed command with its flags and arguments. If run returns an error and
// the code ok, the exit code is bad.
type command interface {
	run(stdout, stderr io.Writer) (code int, err error)
}

func run(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stdout)
	switch {
	case errors.Is(err, errHelped):
		return ok
	case err != nil:
		fmt.Fprintln(stderr, err)
		return usage
	}
	if client, is := c.(interface{ clientSecrets() []string }); is {
		identity.WarnOfReaders(slog.New(slog.NewTextHandler(stderr, nil)), client.clientSecrets()...)
	}
	code, err := c.run(stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return cmp.Or(code, bad)
	}
	return code
}

// parse returns the command for the given arguments. Its error contains the problem, the
// usage of the command, and how to list its flags. If the arguments request help, parse
// prints it and returns errHelped.
func parse(args []string, stdout io.Writer) (command, error) {
	k := parser(stdout)
	if len(args) > 0 && args[0] == "help" {
		args = append(append([]string(nil), args[1:]...), "--help")
	}
	ctx, err := k.Parse(twoDashes(k.Model.Node, args))
	if wrong, is := errors.AsType[*kong.ParseError](err); is && !errors.Is(err, errHelped) {
		return nil, explained(k, wrong)
	}
	if err != nil {
		return nil, err
	}
	selected := ctx.Selected()
	target := selected.Target.Addr().Interface()
	if of, is := target.(nodeCommand); is {
		return &asked{of, selected.FullPath()}, nil
	}
	return target.(command), nil
}

func parser(stdout io.Writer) *kong.Kong {
	return kong.Must(new(commands), kong.Name("weir"), kong.Description(about), kong.ExplicitGroups(groups),
		kong.Writers(stdout, stdout), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.NoDefaultHelp(), kong.KindMapper(reflect.Bool, onOff{}), kong.FlagNamer(snake), kong.WithHyphenPrefixedParameters(true),
		kong.PostBuild(func(k *kong.Kong) error {
			for _, node := range k.Model.Children {
				for _, flag := range node.Flags {
					if node.Name == "serve" {
						flag.Envs = []string{variable(flag.Name)}
						flag.Tag.Envs = flag.Envs
					}
				}
			}
			return nil
		}))
}

// explained returns a parse error as three lines, or more if there are several problems.
func explained(k *kong.Kong, err *kong.ParseError) error {
	node, name := err.Context.Selected(), "weir"
	if node == nil {
		node = k.Model.Node
	} else {
		name = node.FullPath()
	}
	what := strings.TrimPrefix(err.Error(), node.Path()+": ")
	if !node.Leaf() {
		what = strings.Replace(what, "unexpected argument", "unknown command", 1)
	}
	return fmt.Errorf("%s: %s\nusage: weir %s\n%s --help lists the flags", name, strings.ReplaceAll(what, "\n", "\n"+name+": "), strings.TrimSpace(node.Summary()), name)
}

// twoDashes changes flags with one dash to two dashes, as kong requires.
func twoDashes(root *kong.Node, args []string) []string {
	takes := make(map[string]bool) // whether the flag has a value after it
	_ = kong.Visit(root, func(v kong.Visitable, next kong.Next) error {
		if flag, is := v.(*kong.Flag); is {
			takes[flag.Name] = !flag.IsBool()
		}
		return next(nil)
	})
	args = append([]string(nil), args...)
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		name, _, valued := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if !isFlag || len(name) < 2 {
			continue
		}
		args[i] = "--" + strings.TrimLeft(args[i], "-")
		if takes[name] && !valued {
			i++
		}
	}
	return args
}

// errHelped is returned by parse after it has printed help.
var errHelped = errors.New("weir: printed help")

type helpFlag bool

// BeforeReset is called by kong if the flag is set.
func (helpFlag) BeforeReset(ctx *kong.Context) error {
	return errors.Join(errHelped, ctx.PrintUsage(false))
}

// onOff parses the optional value of a flag with strconv.ParseBool.
type onOff struct{}

// IsBool tells kong not to consume the next argument as the value.
func (onOff) IsBool() bool { return true }

// Decode implements kong.Mapper.
func (onOff) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	on := true
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		var err error
		if on, err = strconv.ParseBool(ctx.Scan.Pop().String()); err != nil {
			return err
		}
	}
	target.SetBool(on)
	return nil
}

// variable returns the environment variable of a flag.
func variable(flag string) string { return "WEIR_" + strings.ToUpper(flag) }

// snake converts LeaveWithin to leave_within.
func snake(field string) string {
	var name strings.Builder
	for i, c := range field {
		if i > 0 && unicode.IsUpper(c) {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(c))
	}
	return name.String()
}
