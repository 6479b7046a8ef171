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
	envoylimit "github.com/weir-go/weir/contrib/envoy"
)

// serveOptions are what flags and the environment say of weir serve. The flag of a field is
// its name in lower case, with underscores.
type serveOptions struct {
	servingFlags `group:"What it serves"`
	envoyFlags   `group:"Envoy"`
	nodeFlags    `group:"The node"`
	auditFlags   `group:"Audit"`

	every time.Duration // how often the Envoy files are looked at; as Watch has it if zero
	ready func(*served) // called when it serves, for tests; nil for nobody
}

type servingFlags struct {
	Rules        string `placeholder:"FILE" help:"rules file, watched (docs/rules.md); none if empty"`
	Checks       string `default:"127.0.0.1:8080" help:"check API for services; off if empty"`
	ChecksTokens string `placeholder:"FILE" help:"file with services' tokens, one a line; optional at loopback, unix:/path or with -http_ca"`
	Admin        string `default:"127.0.0.1:8081" help:"admin API and page; off without -admin_tokens and -http_ca"`
	AdminTokens  string `placeholder:"FILE" help:"file with operators' tokens, one a line"`
	Web          files  `kong:"embed,prefix='http_',set='cert=certificate file of -checks and -admin',set='ca=CA file; clients of both then need certificates'"`
	Health       string `default:"127.0.0.1:8082" help:"/ready, /live and /metrics; off if empty"`
}

type envoyFlags struct {
	Envoy             string               `placeholder:"HOST:PORT" help:"gRPC port for Envoy, like :8083; off if empty"`
	EnvoyConfig       string               `placeholder:"PATH" help:"configuration of envoyproxy/ratelimit, watched: a file, or a directory with one file a domain"`
	XDS               string               `name:"envoy_xds" placeholder:"HOST:PORT" help:"management server that sends the configuration, instead of -envoy_config"`
	XDSNode           string               `name:"envoy_xds_node" placeholder:"ID" help:"ID of this service at the management server"`
	EnvoyFiles        files                `kong:"embed,prefix='envoy_',set='cert=certificate file for Envoy and the management server; with -envoy_key and -envoy_ca',set='ca=CA file for Envoy and the management server'"`
	EnvoySliding      bool                 `help:"count by sliding windows"`
	EnvoyShadow       bool                 `help:"decide, but let every request pass"`
	EnvoyDebitMany    bool                 `help:"debit requests of several hits: they pass if a unit is left"`
	EnvoyMergeDomains bool                 `help:"allow several files or resources for a domain"`
	EnvoyMetadata     bool                 `help:"send dynamic metadata: matches, exhausted quotas, the configuration's metadata"`
	EnvoyPartition    weir.PartitionPolicy `default:"majority_share" help:"policy while members are missing: majority_share, fair_share, fail_open or fail_closed"`
	EnvoyHeaders      bool                 `help:"send clients x-ratelimit-limit, -remaining and -reset"`
}

type nodeFlags struct {
	Name             string              `help:"label of this node; host name if empty"`
	Bind             string              `placeholder:"HOST:PORT" help:"address for other nodes, TCP and UDP; beyond loopback with -shared. A cluster of one if empty"`
	Advertise        string              `placeholder:"HOST:PORT" help:"address that other nodes dial, if not -bind; IPv6 with -bind's port needs no brackets"`
	Join             list                `placeholder:"ADDRESS,..." help:"addresses or DNS names of other nodes, separated by commas; looked up repeatedly"`
	JoinTimeout      time.Duration       `help:"how long /ready waits for a first other node; 10s if 0"`
	Expect           int                 `help:"normal number of nodes: fewer spend only their share. No floor if 0"`
	Shared           string              `placeholder:"FILE" help:"file with all nodes' secrets and seed, from weir secret"`
	Insecure         bool                `help:"allow a -bind beyond loopback without secrets"`
	Peer             files               `kong:"embed,prefix='peer_',set='cert=certificate file for TLS between nodes; with -peer_key and -peer_ca',set='ca=CA file for nodes'"`
	CertificateNames perRegion[[]string] `placeholder:"REGION=NAME,..." help:"REGION=NAME,NAME: names in the certificates of that region"`
	Region           string              `help:"region of this node"`
	Regions          perRegion[[]string] `placeholder:"REGION=ADDRESS,..." help:"REGION=ADDRESS,ADDRESS: nodes of another region"`
	RegionShares     perRegion[int64]    `placeholder:"REGION=N" help:"REGION=N: initial share of global limits, relative to the others"`
	RegionSecrets    perRegion[string]   `placeholder:"REGION=FILE" help:"REGION=FILE: secrets shared with that region only"`
	Timeout          time.Duration       `help:"maximum wait for other nodes; 100ms if 0"`
	Forget           time.Duration       `help:"how long dead members stay in the roster; 5m if 0"`
	ForgetRefused    bool                `help:"spend the whole limit once all missing members have ended and their hosts refuse connections"`
	Replicas         int                 `help:"other nodes with a copy of each count; 1 if 0, none if -1"`
	MaxKeys          int                 `help:"counts held at once; 5000000 if 0, about 480 MB"`
	TopKeys          int                 `help:"top keys kept with their text; 256 if 0, none if -1"`
	ShowSecretKeys   bool                `help:"keep credentials among top keys in full, not just their last four characters"`
	Snapshots        string              `placeholder:"DIR" help:"directory of this process, or s3://BUCKET/PREFIX, for counts that outlive a stop of all nodes (docs/snapshots.md); none if empty"`
	SnapshotEvery    time.Duration       `help:"how often they are written; 1m if 0"`
	PlainSnapshots   bool                `help:"do not encrypt them under the secrets of -shared"`
	LeaveWithin      time.Duration       `default:"15s" help:"the most that an orderly end takes"`
	LogLevel         slog.Level          `default:"INFO" help:"debug, info, warn or error"`
	LogFormat        string              `default:"text" help:"text or json"`
}

type auditFlags struct {
	Audit       string  `placeholder:"FILE" help:"file for denials, in lines of JSON (audit/README.md), reopened on SIGHUP; - is standard output"`
	AuditSample float64 `placeholder:"PART" help:"part of the keys, 0 to 1, of which all decisions are recorded"`
	AuditKeys   bool    `help:"record key text too, not only IDs"`
}

// Help is what weir serve -h says before its flags.
func (*serveOptions) Help() string {
	return "Each flag can be given in the environment as well: -log_level as WEIR_LOG_LEVEL. A flag comes first. A flag with REGION= may be repeated, or have several values separated by semicolons."
}

// list is a flag of texts that commas separate.
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

// perRegion is a flag with a text, a list or a number for each region. Each time that it is
// given adds to it what "region=value;region=value" says.
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
	return snake(field)
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

// inFlag names the flag whose file caused an error.
func inFlag(name string, err error) error {
	return fmt.Errorf("weir serve: -%s: %w", name, err)
}

// Validate returns what is wrong with flags that do not go together.
func (o *serveOptions) Validate() error {
	var errs []error
	refuse := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Envoy != "" && (o.EnvoyConfig == "") == (o.XDS == ""), "-envoy needs exactly one of -envoy_config and -envoy_xds")
	refuse(o.Envoy == "" && (o.EnvoyConfig != "" || o.XDS != ""), "-envoy is missing: give the address that Envoy asks, like :8083")
	for _, c := range []struct {
		prefix string
		files
		mutual bool // it has no meaning without a CA
	}{{"-envoy", o.EnvoyFiles, true}, {"-peer", o.Peer, true}, {"-http", o.Web, false}} {
		refuse(!c.together(c.mutual), "%[1]s_cert, %[1]s_key and %[1]s_ca go together", c.prefix)
	}
	guarded := o.ChecksTokens != "" || o.Web.CA != "" || private(o.Checks)
	refuse(o.Checks != "" && !guarded, "-checks is %s, which other machines reach: give -checks_tokens a file with tokens, or -http_ca the certificates that sign those of clients", o.Checks)
	refuse(o.LogFormat != "text" && o.LogFormat != "json", "-log_format is %q: use text or json", o.LogFormat)
	refuse(o.Audit == "" && (o.AuditSample != 0 || o.AuditKeys), "-audit is missing: name the file that records are appended to")
	refuse(o.Snapshots == "" && (o.SnapshotEvery != 0 || o.PlainSnapshots), "-snapshots is missing: name the directory or the bucket that counts are kept in")
	err := checkSnapshots(o.Snapshots)
	refuse(err != nil, "-snapshots: %w", err)
	refuse(o.LeaveWithin <= 0, "-leave_within is %v: use a duration above 0", o.LeaveWithin)
	return errors.Join(errs...)
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
	if o.Peer.Cert != "" {
		if cfg.TLS, err = o.Peer.both(); err != nil {
			return cfg, inFlag("peer_cert", err)
		}
	}
	return cfg, nil
}

// secretFiles returns the files of secrets, tokens and private keys that the flags name. Names
// may be empty.
func (o *serveOptions) secretFiles() []string {
	files := []string{o.Shared, o.ChecksTokens, o.AdminTokens, o.Peer.Key, o.Web.Key, o.EnvoyFiles.Key}
	return append(files, slices.Sorted(maps.Values(o.RegionSecrets))...)
}

// node is what the flags alone say of the node.
func (o *nodeFlags) node() weir.Config {
	return weir.Config{
		Name: o.Name, Bind: o.Bind, Advertise: o.Advertise, Join: o.Join, JoinTimeout: o.JoinTimeout,
		Expect: o.Expect, Insecure: o.Insecure, CertificateNames: o.CertificateNames,
		Region: o.Region, Regions: o.Regions, RegionShares: o.RegionShares,
		Timeout: o.Timeout, Forget: o.Forget, ForgetRefused: o.ForgetRefused, Replicas: o.Replicas, MaxKeys: o.MaxKeys, TopKeys: o.TopKeys, ShowSecretKeys: o.ShowSecretKeys,
		SnapshotEvery: o.SnapshotEvery, PlainSnapshots: o.PlainSnapshots,
	}
}

// limits are how Envoy's limits are decided and told.
func (o *envoyFlags) limits(log *slog.Logger) envoylimit.Options {
	limits := envoylimit.Options{
		Sliding: o.EnvoySliding, ShadowMode: o.EnvoyShadow, DebitMany: o.EnvoyDebitMany, MergeDomains: o.EnvoyMergeDomains,
		Metadata: o.EnvoyMetadata, Partition: o.EnvoyPartition, Logger: log,
	}
	if o.EnvoyHeaders {
		limits.Headers = envoylimit.Headers{Limit: "x-ratelimit-limit", Remaining: "x-ratelimit-remaining", Reset: "x-ratelimit-reset"}
	}
	return limits
}

// readShared reads a file that has a secret at least.
func readShared(name string) (secrets [][]byte, seed []byte, err error) {
	secrets, seed, err = weir.ReadSecrets(name)
	if err == nil && secrets == nil {
		return nil, nil, fmt.Errorf("weir: %s has no line that begins with secret: write one that weir secret prints", name)
	}
	return secrets, seed, err
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
		return nil, fmt.Errorf("%s has no token: write one per line, random and of at least 16 bytes", name)
	}
	return tokens, nil
}
