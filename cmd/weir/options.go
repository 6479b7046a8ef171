package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
	envoylimit "github.com/weir-go/weir/contrib/envoy"
)

// serveOptions contains the flags and environment variables of weir serve. The flag of a
// field is its name in lower case, with underscores, unless a tag has a different name.
type serveOptions struct {
	servingFlags `group:"What it serves"`
	envoyFlags   `group:"Envoy"`
	nodeFlags    `group:"The node"`
	auditFlags   `group:"Audit"`

	every time.Duration // interval for checking the Envoy files; the default of Watch if zero
	ready func(*served) // called when the node serves, for tests; may be nil
}

type servingFlags struct {
	rulesFlags
	Checks       string     `default:"127.0.0.1:8080" help:"address of the check API for services; off if empty"`
	ChecksTokens string     `placeholder:"FILE" help:"file with the tokens of services, one per line; optional with -checks on loopback or unix:/path, or with a CA in -http_tls"`
	Admin        string     `default:"127.0.0.1:8081" help:"address of the admin API and the page; off unless -admin_tokens or a CA in -http_tls is set"`
	AdminTokens  string     `placeholder:"FILE" help:"file with the tokens of operators, one per line"`
	HTTPTLS      fileList   `name:"http_tls" placeholder:"CERT,KEY,CA" help:"CERT,KEY or CERT,KEY,CA: files for -checks and -admin; with CA, clients need certificates"`
	Usage        *usageFlag `placeholder:"FIELD=HEADER,..." help:"user, api_key, tier, client and hops, with the header fields in which a proxy describes the caller of GET /v1/usage at -checks (docs/proxies.md), such as user=X-User,hops=2; off if missing"`
	Health       string     `default:"127.0.0.1:8082" help:"address of /ready, /live and /metrics; off if empty"`
}

type envoyFlags struct {
	Envoy          string               `placeholder:"HOST:PORT" help:"address of the gRPC service for Envoy, such as :8083; off if empty"`
	EnvoyConfig    string               `placeholder:"PATH" help:"configuration of envoyproxy/ratelimit, which is reloaded when it changes: a file, a directory with one file per domain, or xds://ID@HOST:PORT for a management server that knows this service by ID"`
	EnvoyTLS       fileList             `name:"envoy_tls" placeholder:"CERT,KEY,CA" help:"CERT,KEY,CA: files for connections with Envoy and the management server, which need certificates"`
	EnvoyOptions   list                 `placeholder:"OPTION,..." help:"sliding (sliding windows), debit_many (a request of several hits passes if a unit is left), merge_domains (several files of the same domain), metadata (in responses)"`
	EnvoyPartition weir.PartitionPolicy `default:"majority_share" help:"policy while members are missing: majority_share, fair_share, fail_open or fail_closed"`
}

type nodeFlags struct {
	Name             string              `help:"label of this node; the host name if empty"`
	Bind             string              `placeholder:"HOST:PORT" help:"TCP and UDP address for other nodes; an address beyond loopback needs -shared. If empty, the node is a cluster of its own"`
	Advertise        string              `placeholder:"HOST:PORT" help:"address to which other nodes connect, if it is not -bind; an IPv6 address without a port needs no brackets, and has the port of -bind"`
	Join             list                `placeholder:"ADDRESS,..." help:"addresses or DNS names of other nodes, separated by commas; the node looks up DNS names repeatedly"`
	JoinTimeout      time.Duration       `help:"maximum time for which /ready waits for a first other node; 10s if 0"`
	Expect           int                 `help:"normal number of nodes; fewer nodes spend only their share of each limit. No minimum if 0"`
	Shared           string              `placeholder:"FILE" help:"file with the secrets and the seed of all nodes, the output of weir secret"`
	PeerTLS          fileList            `name:"peer_tls" placeholder:"CERT,KEY,CA" help:"CERT,KEY,CA: files for TLS between nodes"`
	CertificateNames perRegion[[]string] `placeholder:"REGION=NAME,..." help:"REGION=NAME,NAME: names in the certificates of that region"`
	Region           string              `help:"region of this node"`
	Regions          perRegion[[]string] `placeholder:"REGION=ADDRESS,..." help:"REGION=ADDRESS,ADDRESS: nodes of another region"`
	RegionShares     perRegion[int64]    `placeholder:"REGION=N" help:"REGION=N: initial share of global limits, relative to the other regions"`
	RegionSecrets    perRegion[string]   `placeholder:"REGION=FILE" help:"REGION=FILE: secrets shared with that region only"`
	Timeout          time.Duration       `help:"maximum time for which a check waits for other nodes; 100ms if 0"`
	Forget           time.Duration       `help:"time for which dead members stay in the roster; 5m if 0"`
	ForgetRefused    bool                `help:"spend the whole limit after all missing members have ended and their hosts refuse connections"`
	Replicas         int                 `help:"number of other nodes with a replica of each count; 1 if 0, none if -1"`
	MaxKeys          int                 `help:"maximum number of counts in memory; 5000000 if 0, about 480 MB"`
	TopKeys          int                 `help:"number of top keys whose text is kept; 256 if 0, none if -1"`
	Snapshots        string              `placeholder:"DIR" help:"directory of this process, or s3://BUCKET/PREFIX, for snapshots of counts, which survive a stop of all nodes (docs/snapshots.md); none if empty"`
	SnapshotEvery    time.Duration       `help:"time between two snapshots; 1m if 0"`
	LeaveWithin      time.Duration       `default:"15s" help:"maximum time of an orderly end of the process"`
	LogLevel         slog.Level          `default:"INFO" help:"debug, info, warn or error"`
	LogFormat        string              `default:"text" help:"text or json"`
}

type auditFlags struct {
	Audit        string  `placeholder:"FILE" help:"file for denials, as lines of JSON (audit/README.md); the process reopens it on SIGHUP. - is standard output"`
	AuditSample  float64 `placeholder:"PART" help:"fraction of the keys, 0 to 1, of which all decisions are recorded"`
	AuditKeys    bool    `help:"record the texts of keys, not only their IDs"`
	AuditClients bool    `help:"record whole addresses and user agents of clients, not only networks and products"`
}

// Help returns the text of weir serve -h before the flags.
func (*serveOptions) Help() string {
	return "An environment variable can also set a flag: -log_level as WEIR_LOG_LEVEL. A flag has precedence over its variable. A flag with REGION= may be repeated, or have several values separated by semicolons."
}

// list is a flag with texts that are separated by commas.
type list []string

func (l *list) UnmarshalText(text []byte) error {
	*l = nil
	for item := range strings.SplitSeq(string(text), ",") {
		if item = strings.TrimSpace(item); item != "" {
			*l = append(*l, item)
		}
	}
	return nil
}

// usageFlag is the flag -usage.
type usageFlag admin.UsageFields

func (u *usageFlag) UnmarshalText(text []byte) (err error) {
	*u = usageFlag{}
	fields := map[string]*string{"client": &u.Client, "user": &u.User, "api_key": &u.APIKey, "tier": &u.Tier}
	for item := range strings.SplitSeq(string(text), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		switch to := fields[name]; {
		case value == "" || to == nil && name != "hops":
			return fmt.Errorf("%q is not FIELD=HEADER: use user, api_key, tier or client with a header field, or hops with a number", item)
		case name == "hops":
			u.Hops, err = strconv.Atoi(value)
		default:
			*to = value
		}
	}
	return err
}

// perRegion is a flag with a text, a list or a number for each region. Each use of the
// flag adds the values of "region=value;region=value".
type perRegion[V string | []string | int64] map[string]V

func (m *perRegion[V]) UnmarshalText(text []byte) (err error) {
	if *m == nil {
		*m = make(perRegion[V])
	}
	for item := range strings.SplitSeq(string(text), ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok || name == "" || value == "" {
			return fmt.Errorf("%q is not REGION=VALUE", item)
		}
		var of V
		switch of := any(&of).(type) {
		case *string:
			*of = value
		case *[]string:
			err = (*list)(of).UnmarshalText([]byte(value))
		case *int64:
			*of, err = strconv.ParseInt(value, 10, 64)
		}
		if err != nil {
			return err
		}
		(*m)[name] = of
	}
	return nil
}

// flagOf returns the flag that sets a field of weir.Config, or "" if there is no such
// flag.
func flagOf(field string) string {
	switch field {
	case "Seed", "Secrets":
		return "shared"
	case "TLS":
		return "peer_tls"
	case "Logger":
		return "log_level"
	case "Observer":
		return "audit"
	case "Tracer", // spans end in an exporter, which a service chooses in its code
		"Cluster",     // only code can supply a Cluster, such as a cluster in memory for tests
		"Now", "Rand": // only code can supply these, for tests that repeat; a process uses the clock and the randomness of the machine
		return ""
	}
	return snake(field)
}

// inFlags translates an error of Validate or Start about a weir.Config into the terms of
// the command line.
func inFlags(err error) error {
	var fields []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[weir.Config]()) {
		if flagOf(field.Name) != "" {
			fields = append(fields, field.Name)
		}
	}
	// A quoted text is a value, which may accidentally equal the name of a field.
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

// inFlag adds the flag whose file caused an error.
func inFlag(name string, err error) error {
	return fmt.Errorf("weir serve: -%s: %w", name, err)
}

// Validate returns the errors in combinations of flags.
func (o *serveOptions) Validate() error {
	var errs []error
	refuse := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Envoy != "" && o.EnvoyConfig == "", "-envoy_config is missing: name the file, directory or management server that has the limits")
	refuse(o.Envoy == "" && o.EnvoyConfig != "", "-envoy is missing: give the address that Envoy asks, like :8083")
	_, _, err := o.managementServer()
	refuse(err != nil, "%w", err)
	for _, option := range o.EnvoyOptions {
		refuse(!slices.Contains(envoyOptions, option), "-envoy_options has %q: use %s", option, strings.Join(envoyOptions, ", "))
	}
	for name, f := range map[string]fileList{"envoy_tls": o.EnvoyTLS, "peer_tls": o.PeerTLS} {
		refuse(f.Cert != "" && f.CA == "", "-%s has no CA: use CERT,KEY,CA, because both sides show certificates", name)
	}
	guarded := o.ChecksTokens != "" || o.HTTPTLS.CA != "" || private(o.Checks)
	refuse(o.Checks != "" && !guarded, "-checks is %s, which other machines reach: give -checks_tokens a file with tokens, or -http_tls the certificates that sign those of clients", o.Checks)
	refuse(o.Usage != nil && (o.Checks == "" || o.Rules == ""), "-usage needs -checks, which has the address, and -rules, which has the limits: set both, or leave -usage out")
	refuse(o.Rules == "" && (o.RulesCache != "" || o.RulesPoll != 0 || o.RulesToken != ""), "-rules is missing: name the file, the directory or the URL that has the rules")
	refuse(o.LogFormat != "text" && o.LogFormat != "json", "-log_format is %q: use text or json", o.LogFormat)
	refuse(o.Audit == "" && (o.AuditSample != 0 || o.AuditKeys || o.AuditClients), "-audit is missing: name the file that records are appended to")
	refuse(o.Snapshots == "" && o.SnapshotEvery != 0, "-snapshots is missing: name the directory or the bucket that counts are kept in")
	err = checkSnapshots(o.Snapshots)
	refuse(err != nil, "-snapshots: %w", err)
	refuse(o.LeaveWithin <= 0, "-leave_within is %v: use a duration above 0", o.LeaveWithin)
	return errors.Join(errs...)
}

// private reports whether an address cannot be reached from other machines.
func private(addr string) bool {
	if strings.HasPrefix(addr, unixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// config returns the configuration of the node, including the content of files.
func (o *serveOptions) config() (cfg weir.Config, err error) {
	cfg = o.node()
	if o.Shared != "" {
		if cfg.Secrets, cfg.Seed, err = readShared(o.Shared); err != nil {
			return cfg, inFlag("shared", err)
		}
	}
	if len(o.RegionSecrets) > 0 {
		cfg.RegionSecrets = make(map[string][][]byte)
	}
	for region, file := range o.RegionSecrets {
		if cfg.RegionSecrets[region], _, err = readShared(file); err != nil {
			return cfg, inFlag("region_secrets", err)
		}
	}
	if o.PeerTLS.Cert != "" {
		if cfg.TLS, err = o.PeerTLS.mutualConfig(); err != nil {
			return cfg, inFlag("peer_tls", err)
		}
	}
	return cfg, nil
}

// secretFiles returns the files of secrets, tokens and private keys that the flags name. Names
// may be empty.
func (o *serveOptions) secretFiles() []string {
	files := []string{o.Shared, o.ChecksTokens, o.AdminTokens, o.PeerTLS.Key, o.HTTPTLS.Key, o.EnvoyTLS.Key, o.RulesToken}
	return append(files, slices.Sorted(maps.Values(o.RegionSecrets))...)
}

// node returns the part of the configuration that only depends on flags.
func (o *nodeFlags) node() weir.Config {
	return weir.Config{
		Name: o.Name, Bind: o.Bind, Advertise: o.Advertise, Join: o.Join, JoinTimeout: o.JoinTimeout,
		Expect: o.Expect, CertificateNames: o.CertificateNames,
		Region: o.Region, Regions: o.Regions, RegionShares: o.RegionShares,
		Timeout: o.Timeout, Forget: o.Forget, ForgetRefused: o.ForgetRefused, Replicas: o.Replicas, MaxKeys: o.MaxKeys, TopKeys: o.TopKeys,
		SnapshotEvery: o.SnapshotEvery,
	}
}

// envoyOptions lists the values of -envoy_options.
var envoyOptions = []string{"sliding", "debit_many", "merge_domains", "metadata"}

// limits returns the options of the Envoy service.
func (o *envoyFlags) limits(log *slog.Logger) envoylimit.Options {
	has := func(option string) bool { return slices.Contains(o.EnvoyOptions, option) }
	return envoylimit.Options{
		Sliding: has("sliding"), DebitMany: has("debit_many"), MergeDomains: has("merge_domains"), Metadata: has("metadata"),
		Partition: o.EnvoyPartition, Logger: log,
	}
}

// managementServer returns the address that -envoy_config names and the ID of this service
// there. Both are empty if -envoy_config is a path.
func (o *envoyFlags) managementServer() (addr, id string, err error) {
	rest, is := strings.CutPrefix(o.EnvoyConfig, "xds://")
	if !is {
		return "", "", nil
	}
	id, addr, _ = strings.Cut(rest, "@")
	if _, _, err := net.SplitHostPort(addr); err != nil || id == "" {
		return "", "", fmt.Errorf("-envoy_config is %q: use xds://ID@HOST:PORT, like xds://envoy-ratelimit@envoy-gateway:18001", o.EnvoyConfig)
	}
	return addr, id, nil
}

// readShared reads a file with at least one secret.
func readShared(name string) (secrets [][]byte, seed []byte, err error) {
	secrets, seed, err = weir.ReadSecrets(name)
	if err == nil && secrets == nil {
		return nil, nil, fmt.Errorf("weir: %s has no line that begins with \"secret:\": add such a line from the output of `weir secret`", name)
	}
	return secrets, seed, err
}

// readTokens reads a file with one token per line.
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
		return nil, fmt.Errorf("%s has no token: write one token per line, each random and at least 16 bytes long", name)
	}
	return tokens, nil
}
