package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/weir-go/weir"
	envoylimit "github.com/weir-go/weir/contrib/envoy"
)

// serveOptions are what flags and the environment say of weir serve.
type serveOptions struct {
	node        weir.Config
	shared      string // a file
	regionFiles map[string]string
	peers       files // certificates between nodes

	rules  string
	health string
	admin  endpoint
	checks endpoint
	web    files // certificates of admin and checks

	envoy       string
	envoyConfig string
	xds, xdsID  string // a management server in the place of envoyConfig, and the id of this service there
	envoyFiles  files
	limits      envoylimit.Options

	audit auditOptions

	leaveWithin time.Duration
	logLevel    slog.Level
	logFormat   string
	every       time.Duration // how often the Envoy files are looked at; as Watch has it if zero

	ready func(*served) // called when it serves, for tests; nil for nobody
}

// endpoint is where an API is served, and the file with the tokens of the clients that may ask.
type endpoint struct{ addr, tokens string }

// flagsOf are the flags of weir serve.
func flagsOf(o *serveOptions) *flag.FlagSet {
	f := flag.NewFlagSet("weir serve", flag.ContinueOnError)

	f.StringVar(&o.rules, "rules", "", "a file of rules, which is watched (docs/rules.md); none if empty")
	f.StringVar(&o.checks.addr, "checks", "127.0.0.1:8080", "where services ask for checks over HTTP; off if empty")
	f.StringVar(&o.checks.tokens, "checks_tokens", "", "a file with the tokens of those services, one a line; needed unless -checks is a loopback's address, a unix:/path, or behind certificates")
	f.StringVar(&o.admin.addr, "admin", "127.0.0.1:8081", "where the status and admin API and its page are; off without -admin_tokens and certificates")
	f.StringVar(&o.admin.tokens, "admin_tokens", "", "a file with the tokens of operators, one a line")
	f.StringVar(&o.web.cert, "http_cert", "", "a file with the certificate of -checks and -admin")
	f.StringVar(&o.web.key, "http_key", "", "a file with its key")
	f.StringVar(&o.web.ca, "http_ca", "", "a file with the certificates that sign those of clients, who all need one then")
	f.StringVar(&o.health, "health", defaultHealth, "where /ready, /live and /metrics are; off if empty")

	f.StringVar(&o.envoy, "envoy", "", "where Envoy asks over gRPC, like :8083; off if empty")
	f.StringVar(&o.envoyConfig, "envoy_config", "", "the configuration of envoyproxy/ratelimit: a file, or a directory of files with a domain each, unless there is -envoy_merge_domains; it is watched")
	f.StringVar(&o.xds, "envoy_xds", "", "host:port of a management server that has the configuration, in the place of -envoy_config")
	f.StringVar(&o.xdsID, "envoy_xds_node", "", "the id that the management server knows this service by")
	f.StringVar(&o.envoyFiles.cert, "envoy_cert", "", "a file with the certificate to serve Envoy with, and to show the management server; with -envoy_key and -envoy_ca")
	f.StringVar(&o.envoyFiles.key, "envoy_key", "", "a file with its key")
	f.StringVar(&o.envoyFiles.ca, "envoy_ca", "", "a file with the certificates that sign Envoy's and the management server's")
	f.BoolVar(&o.limits.Sliding, "envoy_sliding", false, "count Envoy's descriptors by sliding windows")
	f.BoolVar(&o.limits.ShadowMode, "envoy_shadow", false, "decide on Envoy's requests, and let everything pass")
	f.BoolVar(&o.limits.DebitMany, "envoy_debit_many", false, "more than one hit is a cost that may be known afterwards, and spent where anything is left")
	f.BoolVar(&o.limits.MergeDomains, "envoy_merge_domains", false, "several files of -envoy_config, or resources of -envoy_xds, may have one domain")
	f.BoolVar(&o.limits.Metadata, "envoy_metadata", false, "answer Envoy with dynamic metadata: what matched, which quotas are used up, and the metadata of the configuration")
	f.TextVar(&o.limits.Partition, "envoy_partition", weir.MajorityShare, "what holds of Envoy's limits while members are missing: majority_share, fair_share, fail_open or fail_closed")
	f.BoolFunc("envoy_headers", "tell Envoy's clients of their limits, in x-ratelimit-limit, -remaining and -reset", func(text string) error {
		on, err := strconv.ParseBool(text)
		if o.limits.Headers = (envoylimit.Headers{}); on {
			o.limits.Headers = envoylimit.Headers{Limit: "x-ratelimit-limit", Remaining: "x-ratelimit-remaining", Reset: "x-ratelimit-reset"}
		}
		return err
	})

	f.StringVar(&o.node.Name, "name", "", "a label of this node; the host's name if empty")
	f.StringVar(&o.node.Bind, "bind", "", "host:port for the other nodes, TCP and UDP; with -shared, unless it is a loopback's. A cluster of one if empty")
	f.StringVar(&o.node.Advertise, "advertise", "", "host:port that the others dial, if it is not -bind's; IPv6 needs no brackets if the port is -bind's")
	f.Func("join", "addresses or DNS names of other nodes, separated by commas; DNS names are looked up again", func(text string) error { o.node.Join = split(text); return nil })
	f.DurationVar(&o.node.JoinTimeout, "join_timeout", 0, "how long /ready waits for the first other node of -join; 10s if 0")
	f.IntVar(&o.node.Expect, "expect", 0, "how many nodes the cluster normally has: below it, a node spends its share of them. No floor if 0")
	f.StringVar(&o.shared, "shared", "", "a file with the secrets and the seed of all nodes, as weir secret prints them")
	f.BoolVar(&o.node.Insecure, "insecure", false, "take a -bind that other machines reach though there are no secrets")
	f.StringVar(&o.peers.cert, "peer_cert", "", "a file with the certificate of this node, for TLS between nodes; with -peer_key and -peer_ca")
	f.StringVar(&o.peers.key, "peer_key", "", "a file with its key")
	f.StringVar(&o.peers.ca, "peer_ca", "", "a file with the certificates that sign those of the nodes")
	f.Func("certificate_names", "REGION=NAME,NAME: by which names certificates say that they are of that region; may be repeated, or separated by semicolons", func(text string) error {
		return each(text, func(region, names string) { put(&o.node.CertificateNames, region, split(names)) })
	})
	f.StringVar(&o.node.Region, "region", "", "the region of this node")
	f.Func("regions", "REGION=ADDRESS,ADDRESS of nodes of another region; may be repeated, or separated by semicolons", func(text string) error {
		return each(text, func(region, addrs string) { put(&o.node.Regions, region, split(addrs)) })
	})
	f.Func("region_shares", "REGION=N: with how much of each global limit each region begins, in relation to the others; may be repeated, or separated by semicolons", func(text string) (err error) {
		return errors.Join(each(text, func(region, share string) {
			n, wrong := strconv.ParseInt(share, 10, 64)
			put(&o.node.RegionShares, region, n)
			err = errors.Join(err, wrong)
		}), err)
	})
	f.Func("region_secrets", "REGION=FILE: a file with the secrets that this region shares with that one alone; may be repeated, or separated by semicolons", func(text string) error {
		return each(text, func(region, file string) { put(&o.regionFiles, region, file) })
	})
	f.DurationVar(&o.node.Timeout, "timeout", 0, "the most that a check waits for other nodes; 100ms if 0")
	f.DurationVar(&o.node.Forget, "forget", 0, "how long the dead stay in the roster; 5m if 0")
	f.IntVar(&o.node.Replicas, "replicas", 0, "how many other nodes have each count; 1 if 0, none if -1")
	f.IntVar(&o.node.MaxKeys, "max_keys", 0, "counts held at once; 5000000 if 0, some 350 MB")
	f.IntVar(&o.node.TopKeys, "top_keys", 0, "how many of the keys asked for and denied most this node remembers with their text; 256 if 0, none if -1")

	f.StringVar(&o.audit.file, "audit", "", "a file that a line of JSON is appended to for each denial of a check that this node was asked for (docs/audit.md); - for standard output. SIGHUP opens it again. None if empty")
	f.Float64Var(&o.audit.sample, "audit_sample", 0, "of this part of the keys, 0 to 1, each decision is recorded, not denials alone")
	f.BoolVar(&o.audit.keys, "audit_keys", false, "record the text of keys too, not their ids alone")

	f.DurationVar(&o.leaveWithin, "leave_within", 15*time.Second, "how long an orderly end may take: counts go to the other nodes, and what is asked is answered")
	f.TextVar(&o.logLevel, "log_level", slog.LevelInfo, "debug, info, warn or error")
	f.StringVar(&o.logFormat, "log_format", "text", "text or json")
	return f
}

func split(text string) (list []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// each reads "name=value;name=value".
func each(text string, do func(name, value string)) error {
	for item := range strings.SplitSeq(text, ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok || name == "" || value == "" {
			return fmt.Errorf("%q is not REGION=VALUE", item)
		}
		do(name, value)
	}
	return nil
}

func put[V any](m *map[string]V, name string, v V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[name] = v
}

// flagOf returns the flag that sets a field of weir.Config, empty if none does.
func flagOf(field string) string {
	switch field {
	case "Seed", "Secrets":
		return "shared"
	case "TLS":
		return "peer_cert"
	case "Logger":
		return "log_level"
	case "Observer":
		return "audit"
	case "Tracer", // spans end in an exporter, which a service chooses in its code
		"Cluster",     // a cluster of the caller's own, such as one in memory for tests: code, as no text names one
		"Now", "Rand": // a clock and randomness of the caller's, by which tests repeat: a process has the machine's
		return ""
	}
	var name strings.Builder
	for i, c := range field {
		if i > 0 && unicode.IsUpper(c) {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(c))
	}
	return name.String()
}

// inFlags says what Validate or Start found wrong with a weir.Config in the words of the
// command line.
func inFlags(err error) error {
	var fields []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[weir.Config]()) {
		if flagOf(field.Name) != "" {
			fields = append(fields, field.Name)
		}
	}
	// What is quoted is a value, which may be a field's name by chance.
	named := regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\b(?:` + strings.Join(fields, "|") + `)\b`)
	var lines []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{weir.ErrInvalid.Error() + " Config: ", "weir: ", "cluster: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		first := ""
		line = named.ReplaceAllStringFunc(line, func(field string) string {
			if field[0] == '"' {
				return field
			}
			name := flagOf(field)
			if first == "" {
				first = name
			}
			return "-" + name
		})
		if first != "" {
			line += " (-" + first + " is " + variable(first) + " in the environment)"
		}
		lines = append(lines, "weir serve: "+line)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// variable is the environment's name for a flag.
func variable(flag string) string { return "WEIR_" + strings.ToUpper(flag) }

// parseServe reads a command line, and of what it leaves out the environment. It writes
// what is wrong.
func parseServe(args []string, env func(string) (string, bool), complaints io.Writer) (o serveOptions, err error) {
	f := flagsOf(&o)
	f.SetOutput(complaints)
	f.Usage = func() {
		fmt.Fprintln(complaints, "weir serve runs a node, and answers Envoy and services in any language. Each flag can be given\nin the environment as well: -log_level as WEIR_LOG_LEVEL.")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	given := make(map[string]bool)
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var errs []error
	f.VisitAll(func(of *flag.Flag) {
		if value, ok := env(variable(of.Name)); ok && !given[of.Name] {
			if err := f.Set(of.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("weir serve: %s is %q: %w", variable(of.Name), value, err))
			}
		}
	})
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("weir serve: %q is no flag", f.Arg(0)))
	}
	errs = append(errs, o.problems()...)
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(complaints, err)
		return o, err
	}
	return o, nil
}

// problems are what is wrong with what was said together.
func (o *serveOptions) problems() (errs []error) {
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("weir serve: "+format, args...)) }
	if o.envoy != "" && (o.envoyConfig == "") == (o.xds == "") {
		wrong("-envoy needs -envoy_config or -envoy_xds, and one of them")
	}
	if o.envoy == "" && (o.envoyConfig != "" || o.xds != "") {
		wrong("-envoy is missing: say where Envoy asks, like :8083")
	}
	for _, c := range []struct {
		prefix string
		files
		all bool
	}{{"-envoy", o.envoyFiles, true}, {"-peer", o.peers, true}, {"-http", o.web, false}} {
		if (c.cert == "") != (c.key == "") || c.all && (c.cert == "") != (c.ca == "") || c.cert == "" && c.ca != "" {
			wrong("%[1]s_cert, %[1]s_key and %[1]s_ca go together", c.prefix)
		}
	}
	if o.checks.addr != "" && o.checks.tokens == "" && o.web.ca == "" && !private(o.checks.addr) {
		wrong("-checks is %s, which other machines reach: give -checks_tokens a file with tokens, or -http_ca the certificates that sign those of clients", o.checks.addr)
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		wrong("-log_format is %q: use text or json", o.logFormat)
	}
	if o.audit.file == "" && (o.audit.sample != 0 || o.audit.keys) {
		wrong("-audit is missing: say which file records are appended to")
	}
	if o.leaveWithin <= 0 {
		wrong("-leave_within is %v: use a duration above 0", o.leaveWithin)
	}
	return errs
}

// private reports whether no other machine reaches an address.
func private(addr string) bool {
	if strings.HasPrefix(addr, unixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// config is what the node is started with, once the files are read.
func (o *serveOptions) config() (cfg weir.Config, err error) {
	cfg = o.node
	if err := readShared(o.shared, &cfg); err != nil {
		return cfg, err
	}
	for region, file := range o.regionFiles {
		var of weir.Config
		if err := readShared(file, &of); err != nil {
			return cfg, err
		}
		put(&cfg.RegionSecrets, region, of.Secrets)
	}
	if o.peers.cert != "" {
		if cfg.TLS, err = o.peers.both(); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// readTokens reads a file with tokens, one a line.
func readTokens(name string) (tokens [][]byte, err error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			tokens = append(tokens, []byte(line))
		}
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("weir serve: %s has no token: write one a line, of 16 bytes or more, at random", name)
	}
	return tokens, nil
}

// webTLS is what the HTTP APIs are served with, nil without certificates.
func (o *serveOptions) webTLS() (*tls.Config, error) {
	if o.web.cert == "" {
		return nil, nil
	}
	return o.web.server()
}
