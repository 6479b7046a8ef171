package weir

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
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

// Config configures a node. The zero Config is valid: a cluster of a single node, without a network.
// docs/operate.md lists the fields to set in production, and docs/rotation.md describes how to
// change secrets and certificates.
type Config struct {
	// Name is a label of at most 64 bytes, without spaces and control characters. If empty, the name of
	// the host is used. Member.Name consists of this label and an incarnation, which is new at each start.
	Name string

	// Bind is "host:port": one port for gossip (UDP and TCP) and for checks (TCP). Port 0
	// selects a free port. If Bind is empty, the node is a cluster by itself, without a network.
	Bind string

	// Advertise is the "host:port" that other nodes dial, of the same address family as Bind. If
	// empty, Bind is used, with the source address of the default route if Bind has no host.
	Advertise string

	// Join lists "host:port" addresses or DNS names of any members. An entry without a port uses
	// the port of Bind. The node resolves the names again every 2 to 4 seconds, and every 8 to 16
	// seconds while all their addresses are members. It does so more often while it knows no other
	// member, or while a member of its side is dead.
	Join []string

	// JoinTimeout is the maximum time after Start in which Ready returns false because Join lists
	// other nodes and no other node has been met, or because the node reaches no serving member. 0
	// means 10 s. The range is 1ms to 24h.
	JoinTimeout time.Duration

	// Expect is the minimum size of the roster. While the roster is smaller, the absent nodes count
	// as missing members (PartitionPolicy). 0 means no minimum.
	Expect int

	// Region is the region of the node, at most 64 bytes. The nodes of a region share a ring.
	Region string

	// Regions lists, for each other region, addresses or DNS names of any of its nodes. It
	// requires Region.
	Regions map[string][]string

	// RegionShares is the part of each Global limit that each region has at the beginning,
	// relative to the other regions: 1 to 1,000,000. RegionShares must be equal on all nodes of all
	// regions. Nil means equal parts.
	RegionShares map[string]int64

	// Seed is the key of the hash that replaces keys. Seed has at least 16 bytes, must be equal on
	// all nodes of all regions, and must never change. ReadSecrets reads the output of `weir
	// secret`. If nil, the node uses a public key, so that anybody can compute IDs. In that case
	// Start logs a warning if other machines can reach the node.
	Seed []byte

	// Secrets are at most 16 secrets of 16, 24 or 32 bytes each. The first secret encrypts gossip. A secret
	// that both nodes have authenticates the connection between them and, without TLS, encrypts it with TLS
	// 1.3. ReadSecrets reads the output of `weir secret`. If nil, gossip is not protected, and Bind
	// must be a loopback address.
	Secrets [][]byte

	// TLS protects connections between nodes with mutual TLS. TLS requires a certificate for both ends,
	// and RootCAs or functions that verify in their place (cluster.Config). The functions of the
	// tls.Config are called for each connection. If nil, only Secrets protect the connections. UDP is
	// always protected by Secrets alone.
	TLS *tls.Config

	// RegionSecrets are, for each of Regions, the secrets that only this region and that region share: at
	// most 16 for a region, and together with Secrets at most 64. A node that authenticates with such a
	// secret can send requests only as a node of that region. If nil, all regions share Secrets, and every node with a
	// secret can claim any region (docs/regions.md).
	RegionSecrets map[string][][]byte

	// CertificateNames are, for Region and each of Regions, the URIs or DNS names in the certificates of
	// its nodes, such as "spiffe://example.org/eu/gateway/{name}" or "*.ap.gateways.internal". A whole
	// part, between slashes or dots, may be "*", or "{name}" for the Name of the node. A certificate with
	// names of two regions is refused. The certificate of a dialled node need not have the dialled host.
	// This field requires TLS. If nil, a trusted certificate is valid for any name and region.
	CertificateNames map[string][]string

	// Timeout is how long a check waits for other nodes: three quarters of it for the owner, and the rest
	// for a stand-in. A first attempt through a relay, or to a stand-in, may take half of it. 0 means 100
	// ms. The range is 100µs to 1m. The wait grows by the scheduling delay that the asked member
	// last reported (at least 1 s over a connection in its first second), but at most to twice the
	// Timeout. The time in which this process does not run is not counted. The deadline of a
	// context shortens the wait.
	Timeout time.Duration

	// Forget is how long dead members stay in the roster of a side that has at least as many members as it
	// misses. On a smaller side, they stay ten times as long. 0 means 5 min. The minimum is 1 s.
	Forget time.Duration

	// ForgetRefused allows a side to spend the whole limit if all its members report that the missing
	// members have ended. The nodes by which the side is smaller than Expect still count as missing. A
	// member has ended if its kernel has closed the connections and refuses new connections. FailClosed
	// still needs a majority. If a firewall resets connections between two sides, each side spends the
	// whole limit. ForgetRefused must be equal on all nodes. The field has no effect on Windows.
	ForgetRefused bool

	// Replicas is the number of other nodes with a replica of each count, at most 8. 0 means 1,
	// and -1 means none.
	Replicas int

	// MaxKeys is the maximum number of counts on the node. Beyond it, the least important counts
	// are evicted (docs/floods.md). 0 means 5,000,000, which take about 480 MB.
	MaxKeys int

	// TopKeys is the number of most requested and most denied keys that the node remembers, with their
	// text, at most 4,096. 0 means 256. With -1, no keys are remembered, and no key text is kept except of
	// banned keys (Node.Bans).
	TopKeys int

	// Snapshots stores the durable counts (Limit.Durable) and the published values, so that they
	// survive a stop of all nodes (docs/snapshots.md). If nil, they do not survive.
	Snapshots snapshot.Store
	// SnapshotEvery is the time between two snapshots. 0 means 1 min. The range is 1s to 5m.
	SnapshotEvery time.Duration

	Logger   *slog.Logger     // slog.Default if nil. The Logger never receives a key
	Observer Observer         // receives each decision and each hop, and must not block. To set several, use the function Observers
	Tracer   Tracer           // creates spans of checks that leave or reach this node. If nil, this node passes on the traces of other nodes unchanged
	Cluster  cluster.Cluster  // replaces gossip. Of the fields from Name to ForgetRefused, the node then uses only JoinTimeout, Expect, Region, the names in Regions, RegionShares, Seed and Timeout, Name for snapshots, and Secrets for snapshots and for the texts that clients carry
	Now      func() time.Time // the clock of checks, called from any goroutine. If nil, a clock that never steps
	Rand     io.Reader        // the source of incarnations, and of the salt that places counts in memory. crypto/rand.Reader if nil
}

const (
	defaultTimeout     = 100 * time.Millisecond
	defaultJoinTimeout = 10 * time.Second // long enough for three or four attempts to join
	maxJoinTimeout     = 24 * time.Hour
	defaultForget      = 5 * time.Minute
	defaultMaxKeys     = 5_000_000
	defaultTopKeys     = 256
	maxTopKeys         = 4096
	maxLabelBytes      = 64
	// defaultSnapshotEvery bounds the loss if all nodes crash: to the units that were spent in the last
	// minute and while a snapshot is written.
	defaultSnapshotEvery = time.Minute
	maxSnapshotEvery     = 5 * time.Minute // internal/snapshots requires that this is well below ten minutes
	maxReplicas          = 8
	maxRegionShare       = 1_000_000
)

// withDefaults returns a copy in which every zero field has its default.
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

// cluster returns Cluster, or the cluster that the other fields describe.
func (c Config) cluster(name string, seed [16]byte) cluster.Cluster {
	switch {
	case c.Cluster != nil:
		return c.Cluster
	case c.Bind == "":
		return cluster.NewSolo(name, c.Region)
	}
	gossip := c.gossip(name)
	gossip.Seed, gossip.Forget, gossip.ForgetRefused, gossip.Logger = seed, c.Forget, c.ForgetRefused, c.Logger
	return cluster.NewGossip(gossip)
}

// gossip returns the network fields of c for a member with the given name. Validate and cluster both call
// gossip, so that each field that is checked is used.
func (c *Config) gossip(name string) cluster.Config {
	return cluster.Config{
		Name: name, Bind: c.Bind, Advertise: c.Advertise, Join: c.Join, Region: c.Region, Regions: c.Regions,
		Secrets: c.Secrets, RegionSecrets: c.RegionSecrets, TLS: c.TLS, CertificateNames: c.CertificateNames,
	}
}

// warnOfPublicSeed logs a warning if there is no Seed, so that anybody can compute IDs, and other machines
// can reach the node. There is no warning with a Cluster of the caller, because its address is unknown.
func (c *Config) warnOfPublicSeed(v *view.View) {
	if len(c.Seed) == 0 && c.Cluster == nil && v.Self >= 0 && !conns.OnThisMachine(v.Members[v.Self].Addr) {
		c.Logger.Warn("no Seed is set, so anybody can compute the ids of keys; set one on all nodes")
	}
}

// box returns the Box that seals the texts that clients carry between nodes.
func (c *Config) box() *sealed.Box {
	if len(c.Secrets) == 0 && len(c.Seed) > 0 {
		return sealed.New([][]byte{c.Seed})
	}
	return sealed.New(c.Secrets)
}

// ParseSecrets reads Config.Secrets and Config.Seed from a text in the format of `weir secret`: "secret: "
// or "seed: " and hexadecimal digits, each on a line. A line may have several of them, separated by
// semicolons or commas, as in an environment variable. A node uses the first secret, and accepts all. The
// text must have a secret or a seed, and at most one seed. Without a secret in the text, secrets is nil;
// without a seed, seed is nil. Empty lines and lines that begin with # are skipped.
//
// The error is ErrInvalid for any other text, and does not repeat any part of it.
func ParseSecrets(text string) (secrets [][]byte, seed []byte, err error) {
	secrets, seed, err = identity.ParseSecrets(text)
	return secrets, seed, secretsError(err)
}

// ReadSecrets is like ParseSecrets, but reads a regular file of at most 1 MiB. Other files are
// ErrInvalid. An error of the file system is not ErrInvalid.
func ReadSecrets(file string) (secrets [][]byte, seed []byte, err error) {
	secrets, seed, err = identity.ReadSecrets(file)
	return secrets, seed, secretsError(err)
}

func secretsError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, identity.ErrInvalidSecrets):
		return fmt.Errorf("%w %w", ErrInvalid, err)
	}
	return fmt.Errorf("weir: %w", err)
}
