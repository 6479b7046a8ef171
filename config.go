package weir

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/conns"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/sealed"
	"github.com/weir-go/weir/internal/view"
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
	// have authenticates peers and, without TLS, puts connections under TLS 1.3. ReadSecrets
	// reads those that `weir secret` prints. Nil: everything is open, and Bind has to be a
	// loopback address.
	Secrets [][]byte

	// TLS puts connections between nodes under mutual TLS. It needs a certificate for both
	// ends and RootCAs. Its functions are called for each connection. Nil: Secrets alone. UDP
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

// withDefaults is a copy with every zero field filled in.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = identity.HostLabel(maxLabelBytes)
	}
	c.JoinTimeout = cmp.Or(c.JoinTimeout, defaultJoinTimeout)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Forget = cmp.Or(c.Forget, defaultForget)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.MaxKeys = cmp.Or(c.MaxKeys, defaultMaxKeys)
	c.TopKeys = cmp.Or(c.TopKeys, defaultTopKeys)
	c.SnapshotEvery = cmp.Or(c.SnapshotEvery, defaultSnapshotEvery)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	return c
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

// box returns the Box that seals the texts that clients send from one node to another.
func (c *Config) box() *sealed.Box {
	if len(c.Secrets) == 0 && len(c.Seed) > 0 {
		return sealed.New([][]byte{c.Seed})
	}
	return sealed.New(c.Secrets)
}
