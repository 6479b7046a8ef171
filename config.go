package weir

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// Config says how a node runs. The zero Config is valid: a cluster of one, with
// no network.
type Config struct {
	Name        string        // a label, the host's name if empty; at most 64 bytes. Member.Name is label-incarnation, unique for each start
	Bind        string        // "host:port": one port for gossip (UDP and TCP) and checks (TCP); port 0 picks a free one. Empty: a cluster of one, no network
	Advertise   string        // "host:port" that others dial, of Bind's address family if Bind has an address. Bind if empty, with the source address of the machine's default route where Bind has no host. Start logs that address, and returns an error that names the candidates if there are several. IPv6 needs no brackets if the port is Bind's
	Join        []string      // "host:port" or DNS names (Bind's port if they have none) of any members; looked up again for as long as the node lives
	JoinTimeout time.Duration // how long, from Start on, Ready stays false while Join names other nodes and no other member has ever been met; then the node is ready, and its log and Stats say that it counts alone. Checks are answered meanwhile. 10 s if zero; 1ms to 24h
	Expect      int           // a floor for the roster's size: below it, a node counts itself as one of Expect and spends its share. None if zero
	Region      string        // nodes of one Region gossip and share one ring; a member of another is refused. At most 64 bytes

	Regions map[string][]string // for each other region, "host:port" addresses that reach any of its nodes; DNS names are looked up again for as long as the node lives. Needs Region

	RegionShares map[string]int64 // with how much of each Global limit each region begins, in relation to the others: a region of 70 % of the traffic may begin with 70. Equal on all nodes of all regions. Nil: all begin with as much

	// Seed keys the id hash: 16 bytes or more, equal on all nodes of all regions, and never
	// changed, as ids are what counts go by; so it comes from nothing that is rotated. A join
	// with another Seed is refused. `weir secret` prints one.
	//
	// None: a fixed public key. Anybody can then compute ids: find the key of one that is
	// logged, an address in minutes, and choose keys that one node owns. Start warns of it
	// where others than this machine reach the node.
	Seed []byte

	Secrets [][]byte    // 16, 24 or 32 bytes each: the first encrypts gossip; one that both sides have authenticates peers and, without TLS, seals what they say (rotation). `weir secret` prints one. None: all is open, and Bind has to be a loopback's
	TLS     *tls.Config // mutual TLS on the TCP side: needs a certificate for both ends and the roots that sign them, not the machine's. Its functions are called for each connection (docs/rotation.md). Nil: plain TCP. UDP has Secrets alone

	// RegionSecrets is, for each of Regions, the secrets that this region shares with that
	// one and with nobody else: 16, 24 or 32 bytes each. Connections between the two are
	// under them, so that who holds one can ask as a node of that region and as nothing
	// else: of Global limits alone, never as a node of a third region, and never as a
	// member. Secrets are then this region's own. So each node has its region's Secrets, and
	// one secret for each other region: three regions have three Secrets and three pairs.
	// To rotate one, give all nodes of both regions [old, new], then [new]. A secret that is
	// in two lists is refused, as it would say nothing of a region.
	//
	// Nil: Secrets are those of all regions, and who holds them can say that it is of any.
	RegionSecrets map[string][][]byte

	// CertificateNames is, for Region and each of Regions, the names by which certificates
	// say that they are of its nodes. They are subject alternative names: URIs, as SPIFFE
	// ids are ("spiffe://example.org/eu/gateway"), and DNS names ("*.eu.gateways.internal").
	// A part between slashes or dots may be "*", which is any, or "{name}", which is the
	// Config.Name of that node. A node whose certificate has no name of the region that it
	// says it is of, names of two, or another's "{name}", is refused, which counts as
	// "identity" in Stats().Cluster.Refused and is logged. A node that is dialled is then
	// verified by these names and not by its host, unless TLS has a ServerName,
	// InsecureSkipVerify or VerifyPeerCertificate. Needs TLS. UDP is under Secrets alone: RegionSecrets keep
	// another region from gossiping there.
	//
	// Nil: a certificate that TLS accepts stands for any name and any region.
	CertificateNames map[string][]string

	// Insecure has Start take a Bind that other machines reach though there are no Secrets.
	// Whoever reaches the port can then join, and spend and reset what he likes; what he can
	// have a node store is bounded, and no more than that. TLS does not help: gossip's UDP is
	// under Secrets alone. False: such a Bind is refused. It has no meaning with Secrets, nor
	// where Bind is 127.0.0.0/8, ::1 or localhost, whatever Advertise is.
	Insecure bool

	// Timeout is the most that a check waits for other nodes: three quarters of it for the
	// owner of the key, the rest for a stand-in; then this node answers, within its share.
	// 100 ms if zero; 100µs to 1m. A context's deadline shortens it.
	//
	// It has no part in finding out which members are missing. The default sits out the
	// pauses of a CPU quota, which stops a process for most of each 100 ms. Choose more
	// where processes stand still for longer, and less where a stand-in's answer is better
	// than a later one of the owner: below some 10 ms, busy machines send checks to stand-ins.
	Timeout time.Duration

	Forget   time.Duration // how long the dead stay in the roster. 5 min if zero
	Replicas int           // how many other nodes have each count, so that so many crashes in a row reset nothing. 1 if zero, none if -1, at most 8
	MaxKeys  int           // counts held at once; beyond it those that matter least are evicted (docs/floods.md), and Stats says so. 5,000,000 if zero (some 350 MB)

	// TopKeys is how many of the keys that are asked for most, and denied most, this node
	// remembers with their text, for Node.TopKeys. 256 if zero, at most 4,096. -1: none,
	// where keys are secrets; no key's text is kept then, nor told to another member.
	TopKeys int

	Logger   *slog.Logger     // slog.Default if nil. Never sees a key
	Observer Observer         // called for each decision and hop, must not block. None if nil; Observers makes one of several
	Tracer   Tracer           // makes spans of the checks that leave this node, and of those that come to it within a trace. None if nil: what other members trace is passed on as it is
	Cluster  cluster.Cluster  // how this node finds and asks others. Nil: gossip on Bind, or solo. Else the fields above from Name to Forget, but for JoinTimeout, Expect, the names in Regions, Seed and Timeout, are its own affair
	Now      func() time.Time // what checks read; must be safe for concurrent use. Nil: a clock that never steps
	Rand     io.Reader        // where incarnations come from, and by what this process' counts lie in memory. Nil: crypto/rand
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
	maxReplicas        = 8
)

// Validate reports everything that is wrong with the Config at once, nil if
// nothing is, and changes nothing. Each error is ErrInvalid.
func (c Config) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w Config: "+format, append([]any{ErrInvalid}, args...)...))
	}
	if len(c.Name) > maxLabelBytes {
		wrong("Name has %d bytes: use at most %d", len(c.Name), maxLabelBytes)
	}
	if strings.ContainsFunc(c.Name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		wrong("Name %q has spaces or control characters: use a host's or pod's name", c.Name)
	}
	gossip := cluster.Config{Name: "any", Bind: "localhost:0", Region: c.Region, Regions: c.Regions, Insecure: c.Insecure}
	if c.Cluster == nil && c.Bind != "" {
		gossip.Bind, gossip.Advertise, gossip.Join, gossip.Secrets, gossip.TLS = c.Bind, c.Advertise, c.Join, c.Secrets, c.TLS
		gossip.RegionSecrets, gossip.CertificateNames = c.RegionSecrets, c.CertificateNames
	}
	for _, err := range gossip.Problems() {
		wrong("%w", err)
	}
	if c.Cluster == nil && c.Bind == "" {
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
	c.checkShares(wrong)
	if n := len(c.Seed); n > 0 && n < minSeedBytes {
		wrong("Seed has %d bytes: use none, or %d and more; `weir secret` prints one", n, minSeedBytes)
	}
	if c.Expect < 0 {
		wrong("Expect is %d: use 0, or how many nodes the cluster normally has", c.Expect)
	}
	if c.JoinTimeout < 0 || c.JoinTimeout > 0 && c.JoinTimeout < time.Millisecond || c.JoinTimeout > maxJoinTimeout {
		wrong("JoinTimeout is %v: use 0 for %v, or 1ms to 24h", c.JoinTimeout, defaultJoinTimeout)
	}
	if c.Timeout < 0 || c.Timeout > 0 && c.Timeout < 100*time.Microsecond || c.Timeout > wire.MaxTimeout {
		wrong("Timeout is %v: use 0 for %v, or 100µs to 1m", c.Timeout, defaultTimeout)
	}
	if c.Forget < 0 || c.Forget > 0 && c.Forget < time.Second {
		wrong("Forget is %v: use 0 for %v, or 1s and more", c.Forget, defaultForget)
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
	return errors.Join(errs...)
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
			wrong("RegionShares names %q, which is neither Region nor one of Regions: take it off, or add the region", name)
		} else if share < 1 || share > maxRegionShare {
			wrong("RegionShares of %q is %d: use 1 to %d", name, share, maxRegionShare)
		}
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

// incarnation makes a label unique for this start.
func incarnation(label string, random io.Reader) (string, error) {
	var b [8]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("weir: reading Config.Rand: %w", err)
	}
	return fmt.Sprintf("%s-%x", label, b), nil
}

// drawSalt is what this process' counts lie by.
func drawSalt(random io.Reader) (salt bucket.Salt, err error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return salt, fmt.Errorf("weir: reading Config.Rand: %w", err)
	}
	return bucket.Salt{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}, nil
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
		Seed: seed, Secrets: c.Secrets, RegionSecrets: c.RegionSecrets, Insecure: c.Insecure,
		TLS: c.TLS, CertificateNames: c.CertificateNames, Forget: c.Forget, Logger: c.Logger,
	})
}
