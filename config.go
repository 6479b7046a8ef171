package weir

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/conns"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	"github.com/weir-go/weir/snapshot"
)

// Config configures a node. The zero Config is valid: a cluster of one, without a network.
// docs/operate.md says what to set in production, and docs/rotation.md how to change
// secrets and certificates.
type Config struct {
	// Name is a label of at most 64 bytes, the host's name if empty. Member.Name adds an
	// incarnation to it, new at each start.
	Name string

	// Bind is "host:port", one port for gossip (UDP and TCP) and checks (TCP). Port 0 picks
	// a free one. Empty: a cluster of one, without a network.
	Bind string

	// Advertise is the "host:port" that others dial, of Bind's address family. Empty: Bind,
	// with the source address of the default route if Bind has no host.
	Advertise string

	// Join has "host:port" addresses or DNS names of any members, with Bind's port if they
	// have none. They are looked up again for as long as the node lives.
	Join []string

	// JoinTimeout is how long Ready stays false while Join names other nodes and none has
	// been met. 10 s if zero; 1ms to 24h.
	JoinTimeout time.Duration

	// Expect is a floor for the roster's size: below it, a node spends its share of Expect.
	// None if zero.
	Expect int

	// Region is the node's region, at most 64 bytes. Nodes of one region share one ring.
	Region string

	// Regions has, for each other region, addresses or DNS names of any of its nodes.
	// It needs Region.
	Regions map[string][]string

	// RegionShares is the part of each Global limit that each region begins with, relative
	// to the others, 1 to 1,000,000. It is equal on all nodes of all regions. Nil: equal parts.
	RegionShares map[string]int64

	// Seed keys the hash that replaces keys: 16 bytes or more, equal on all nodes of all
	// regions, and never changed. ReadSecrets reads one that `weir secret` prints. Nil: a
	// public key, with which anybody can compute IDs; Start warns of it if other machines
	// reach the node.
	Seed []byte

	// Secrets are 16, 24 or 32 bytes each. The first encrypts gossip; one that both sides
	// have authenticates peers and, without TLS, seals connections. ReadSecrets
	// reads those that `weir secret` prints. Nil: everything is open, and Bind has to be a
	// loopback address.
	Secrets [][]byte

	// TLS puts connections between nodes under mutual TLS. It needs a certificate for both
	// ends and RootCAs. Its functions are called for each connection. Nil: plain TCP. UDP
	// is under Secrets alone.
	TLS *tls.Config

	// RegionSecrets are, for each of Regions, the secrets that this region shares with that
	// one and nobody else. A holder can ask as a node of that region and as nothing else.
	// Nil: all regions share Secrets, and a holder can claim any region (docs/regions.md).
	RegionSecrets map[string][][]byte

	// CertificateNames are, for Region and each of Regions, the URIs or DNS names of its
	// nodes' certificates. A part may be "*", or "{name}" for the Name of the node. It needs
	// TLS. Nil: a trusted certificate stands for any name and region (docs/regions.md).
	CertificateNames map[string][]string

	// Timeout is how long a check waits for other nodes: three quarters for the owner, the
	// rest for a stand-in. A first attempt through a relay, or to a stand-in, may take half.
	// 100 ms if zero; 100µs to 1m. It grows by the scheduling delay that the member which is
	// asked has reported last, to twice as long at most. Time in which this process does not
	// run does not count. A context's deadline shortens it.
	Timeout time.Duration

	// Forget is how long dead members stay in the roster. 5 min if zero; at least 1 s.
	Forget time.Duration

	// ForgetRefused allows a side to spend the whole limit if all its members report that the
	// missing members have ended. A member has ended if its kernel has closed the connections and
	// refuses new connections. FailClosed still needs a majority. If a firewall resets connections
	// between two sides, each side spends the whole limit. ForgetRefused must be equal on all
	// nodes. It has no effect on Windows.
	ForgetRefused bool

	// Replicas is how many other nodes have a copy of each count, at most 8. 1 if zero, none
	// if -1.
	Replicas int

	// MaxKeys is how many counts the node holds at once. Beyond it, the counts that matter
	// least are evicted (docs/floods.md). 5,000,000 if zero, about 480 MB.
	MaxKeys int

	// TopKeys is how many of the keys that are asked for and denied most the node remembers,
	// with their text, at most 4,096. 256 if zero. -1: none, and no key text is kept.
	TopKeys int

	// Snapshots keeps what the node writes of durable counts (Limit.Durable) and of published
	// values, so that these outlive a stop of all nodes (docs/snapshots.md). Nil: they do not.
	// Node.Leave writes for ten minutes at most, and for a minute in which the store takes nothing.
	Snapshots snapshot.Store
	// SnapshotEvery is how often the node writes. 1 min if zero; 1s to 5m.
	SnapshotEvery time.Duration

	Logger   *slog.Logger     // slog.Default if nil. It never gets a key
	Observer Observer         // is called for each decision and hop, and must not block. Observers combines several
	Tracer   Tracer           // makes spans of checks that leave or reach this node. Nil: traces of others are passed on
	Cluster  cluster.Cluster  // finds and asks other nodes, instead of gossip. The fields above from Name to ForgetRefused are then its own concern, but for JoinTimeout, Expect, the names in Regions, Seed and Timeout
	Now      func() time.Time // is what checks read, from any goroutine. Nil: a clock that never steps
	Rand     io.Reader        // is the source of incarnations, and of where counts lie in memory. crypto/rand if nil
}

const (
	defaultTimeout = 100 * time.Millisecond
	// defaultJoinTimeout has time for three or four attempts to join.
	defaultJoinTimeout = 10 * time.Second
	maxJoinTimeout     = 24 * time.Hour
	defaultForget      = 5 * time.Minute
	defaultMaxKeys     = 5_000_000
	defaultTopKeys     = 256
	maxTopKeys         = 4096
	maxLabelBytes      = 64
	// defaultSnapshotEvery is what counts that are used up at once may lose of a minute.
	defaultSnapshotEvery = time.Minute
	maxSnapshotEvery     = 5 * time.Minute // well below the ten minutes that internal/snapshots goes by
	maxReplicas          = 8
)

// Validate reports everything that is wrong with the Config at once, nil if
// nothing is, and changes nothing. Each error is ErrInvalid.
func (c Config) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w Config: "+format, append([]any{ErrInvalid}, args...)...))
	}
	c.checkCluster(wrong)
	c.checkShares(wrong)
	c.checkSecrets(wrong)
	c.checkWaits(wrong)
	c.checkSizes(wrong)
	c.checkSnapshots(wrong)
	return errors.Join(errs...)
}

// checkCluster is Validate of Name, and of what goes to package cluster.
func (c *Config) checkCluster(wrong func(format string, args ...any)) {
	if len(c.Name) > maxLabelBytes {
		wrong("Name has %d bytes: use at most %d", len(c.Name), maxLabelBytes)
	}
	if strings.ContainsFunc(c.Name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		wrong("Name %q has spaces or control characters: use a host's or pod's name", c.Name)
	}
	gossip := cluster.Config{Name: "any", Bind: "localhost:0", Region: c.Region, Regions: c.Regions}
	if c.Cluster == nil && c.Bind != "" {
		gossip.Bind, gossip.Advertise, gossip.Join, gossip.Secrets, gossip.TLS = c.Bind, c.Advertise, c.Join, c.Secrets, c.TLS
		gossip.RegionSecrets, gossip.CertificateNames = c.RegionSecrets, c.CertificateNames
	}
	for _, err := range gossip.Problems() {
		wrong("%w", err)
	}
	if c.Cluster != nil || c.Bind != "" {
		return
	}
	for _, field := range []struct {
		name string
		set  bool
	}{{"Advertise", c.Advertise != ""}, {"Join", len(c.Join) > 0}, {"Regions", len(c.Regions) > 0}, {"Secrets", len(c.Secrets) > 0}, {"TLS", c.TLS != nil},
		{"RegionSecrets", len(c.RegionSecrets) > 0}, {"CertificateNames", len(c.CertificateNames) > 0}} {
		if field.set {
			wrong("%s is set and Bind is empty: give Bind a host:port, a node without one is a cluster of one", field.name)
		}
	}
}

// checkWaits is Validate of JoinTimeout, Timeout, Forget and SnapshotEvery.
func (c *Config) checkWaits(wrong func(format string, args ...any)) {
	for _, field := range []struct {
		name        string
		is, zero    time.Duration
		least, most time.Duration
		allowed     string
	}{
		{"JoinTimeout", c.JoinTimeout, defaultJoinTimeout, time.Millisecond, maxJoinTimeout, "1ms to 24h"},
		{"Timeout", c.Timeout, defaultTimeout, 100 * time.Microsecond, wire.MaxTimeout, "100µs to 1m"},
		{"Forget", c.Forget, defaultForget, time.Second, math.MaxInt64, "1s and more"},
		{"SnapshotEvery", c.SnapshotEvery, defaultSnapshotEvery, time.Second, maxSnapshotEvery, "1s to 5m"},
	} {
		if field.is != 0 && (field.is < field.least || field.is > field.most) {
			wrong("%s is %v: use 0 for %v, or %s", field.name, field.is, field.zero, field.allowed)
		}
	}
}

// checkSizes is Validate of the fields that are numbers.
func (c *Config) checkSizes(wrong func(format string, args ...any)) {
	if n := len(c.Seed); n > 0 && n < identity.MinSeedBytes {
		wrong("Seed has %d bytes: use none, or %d and more; `weir secret` prints one", n, identity.MinSeedBytes)
	}
	if c.Expect < 0 {
		wrong("Expect is %d: use 0, or how many nodes the cluster normally has", c.Expect)
	}
	if c.Replicas < -1 || c.Replicas > maxReplicas {
		wrong("Replicas is %d: use 0 for 1, -1 for none, or 1 to %d", c.Replicas, maxReplicas)
	}
	if c.MaxKeys < 0 {
		wrong("MaxKeys is %d: use 0 for %d, or how many counts may be held", c.MaxKeys, defaultMaxKeys)
	}
	if c.TopKeys < -1 || c.TopKeys > maxTopKeys {
		wrong("TopKeys is %d: use 0 for %d, -1 for none, or 1 to %d", c.TopKeys, defaultTopKeys, maxTopKeys)
	}
}

// maxRegionShare bounds one of RegionShares.
const maxRegionShare = 1_000_000

// checkShares is Validate of RegionShares.
func (c *Config) checkShares(wrong func(format string, args ...any)) {
	if c.RegionShares == nil {
		return
	}
	names := append(slices.Collect(maps.Keys(c.Regions)), c.Region)
	for _, name := range slices.Sorted(slices.Values(names)) {
		if _, ok := c.RegionShares[name]; !ok {
			wrong("RegionShares has no share of %q: give one to Region and to each of Regions, or leave it nil", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.RegionShares)) {
		if share := c.RegionShares[name]; !slices.Contains(names, name) {
			wrong("RegionShares names %q, which is neither Region nor one of Regions: remove it, or add the region", name)
		} else if share < 1 || share > maxRegionShare {
			wrong("RegionShares of %q is %d: use 1 to %d", name, share, maxRegionShare)
		}
	}
}

// checkSnapshots is Validate of what belongs to Snapshots, but for the bounds of SnapshotEvery.
func (c *Config) checkSnapshots(wrong func(format string, args ...any)) {
	if c.Snapshots == nil && c.SnapshotEvery != 0 {
		wrong("SnapshotEvery is set and Snapshots is nil: set Snapshots, as by snapshot.OpenDir, or leave it zero")
	}
}

// withDefaults is a copy with every zero field filled in.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = hostLabel()
	}
	if c.JoinTimeout == 0 {
		c.JoinTimeout = defaultJoinTimeout
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Forget == 0 {
		c.Forget = defaultForget
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	if c.TopKeys == 0 {
		c.TopKeys = defaultTopKeys
	}
	if c.SnapshotEvery == 0 {
		c.SnapshotEvery = defaultSnapshotEvery
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	return c
}

func hostLabel() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "node"
	}
	return name[:min(len(name), maxLabelBytes)]
}

// cluster is the one that the Config asks for.
func (c Config) cluster(name string, seed [16]byte) cluster.Cluster {
	switch {
	case c.Cluster != nil:
		return c.Cluster
	case c.Bind == "":
		return cluster.NewSolo(name, c.Region)
	}
	return cluster.NewGossip(cluster.Config{
		Name: name, Bind: c.Bind, Advertise: c.Advertise, Join: c.Join, Region: c.Region, Regions: c.Regions,
		Seed: seed, Secrets: c.Secrets, RegionSecrets: c.RegionSecrets,
		TLS: c.TLS, CertificateNames: c.CertificateNames, Forget: c.Forget, ForgetRefused: c.ForgetRefused, Logger: c.Logger,
	})
}

// warnOfPublicSeed logs that ids are anybody's to compute, where others than this
// machine can reach the node. A Cluster of the caller's has no address that says.
func (c *Config) warnOfPublicSeed(v *view.View) {
	if len(c.Seed) == 0 && c.Cluster == nil && v.Self >= 0 && !conns.OnThisMachine(v.Members[v.Self].Addr) {
		c.Logger.Warn("no Seed is set, so anybody can compute the ids of keys; set one on all nodes")
	}
}
