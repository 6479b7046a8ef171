// Package gossip connects a roster to memberlist, and protects memberlist. memberlist allocates
// memory for the claims of a message before the message has arrived. So this package inspects all
// packets and streams before memberlist receives them, and drops the packets and streams that no
// member sends.
//
// Only this package imports memberlist.
package gossip

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weir-go/weir/cluster/detect"
)

// Config configures the gossip of a node.
type Config struct {
	Name, Region string
	Seed         [16]byte
	Keys         [][]byte       // the first key encrypts gossip, and each key decrypts it; if empty, gossip is not encrypted
	Addr         netip.AddrPort // the address of gossip for other members
	// Step applies an event to the roster of this node. It must not block, and no two events
	// may run at once.
	Step func(event func(*detect.Roster) detect.Change)
	// Refused is called for a packet that is dropped, and for a member without room in the roster. It
	// must not block.
	Refused func(reason string, from net.Addr, err error)
	Size    func() int             // number of members that a broadcast must reach
	OnSide  func(name string) bool // reports whether a member is on the side of this node; must not block
	Log     *slog.Logger           // receives the log lines of memberlist
}

// Port is the access of gossip to the port of the node.
type Port struct {
	Context context.Context // done once the port is closed
	UDP     net.PacketConn
	Streams <-chan net.Conn // opened by other members
	// Dial opens a stream to a member.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Close closes all streams, and no longer accepts any.
	Close func() error
}

// Gossip is the gossip of a node.
type Gossip struct {
	cfg        Config
	ctx        context.Context // done once the node closes
	inspector  *inspector
	memberlist *memberlist.Config
	list       *memberlist.Memberlist // nil before Start
	broadcasts *memberlist.TransmitLimitedQueue
}

// New returns the gossip of a node, which opens no port before Start, and stops logging when ctx is
// done. The roster that c.Step changes must exist.
func New(ctx context.Context, c Config) (*Gossip, error) {
	g := &Gossip{cfg: c, ctx: ctx}
	if meta := (delegate{g}).NodeMeta(memberlist.MetaMaxSize); meta == nil {
		return nil, fmt.Errorf("cluster: Region %q and Advertise %q are too long for gossip's %d bytes of metadata: shorten them", c.Region, g.self().Addr, memberlist.MetaMaxSize)
	}
	var err error
	if g.memberlist, err = g.config(); err == nil {
		g.inspector, err = newInspector(g.memberlist.Label, c.Keys)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster: Secrets: %w", err)
	}
	g.broadcasts = &memberlist.TransmitLimitedQueue{RetransmitMult: g.memberlist.RetransmitMult, NumNodes: c.Size}
	return g, nil
}

// config returns the configuration of memberlist.
func (g *Gossip) config() (*memberlist.Config, error) {
	c := memberlist.DefaultLANConfig()
	if g.cfg.Addr.Addr().IsLoopback() {
		c = memberlist.DefaultLocalConfig() // a member has 200 ms to answer a probe, instead of 500 ms
	}
	c.GossipInterval, c.GossipNodes, c.RetransmitMult = gossipEvery, gossipNodes, gossipMult
	c.ProbeInterval = probeEvery
	c.PushPullInterval = exchangeEvery
	c.TCPTimeout = min(c.TCPTimeout, streamTimeout)
	c.EnableCompression = false // compression would allocate 70 KB for each packet, and most packets hold under 100 bytes
	c.Name = g.cfg.Name
	c.Label = label(g.cfg.Seed, g.cfg.Region)
	c.BindPort = int(g.cfg.Addr.Port())
	c.AdvertisePort = c.BindPort
	c.DelegateProtocolVersion, c.DelegateProtocolMin, c.DelegateProtocolMax = version, version, version
	d := delegate{g}
	c.Delegate, c.Events, c.Alive, c.Merge = d, d, d, d
	c.Logger = log.New(&logWriter{log: g.cfg.Log, ctx: g.ctx}, "", 0)
	if len(g.cfg.Keys) > 0 {
		keyring, err := memberlist.NewKeyring(g.cfg.Keys, g.cfg.Keys[0])
		if err != nil {
			return nil, err
		}
		c.Keyring = keyring
	}
	return c, nil
}

// The paces of memberlist are slow, because each of its timers also fires in an idle node. Package cluster
// finds a failure on its own connections within a second, and sends announcements over them. Gossip only
// has to reach the members without such a connection, and to decide which members can be forgotten.
const (
	// After each gossipEvery, news are sent to gossipNodes members. This makes 16 packets a second; by
	// default, memberlist sends 15, to 3 members each 200 ms. Few long rounds wake an idle node less often,
	// and reach as many members. Rounds of a second would wake the node once less, but news would take twice as
	// long to reach all members.
	gossipEvery = 500 * time.Millisecond
	gossipNodes = 8
	// A member sends each news gossipMult times for each digit of the number of members. By default,
	// memberlist sends news four times, and twice on loopback. With four times, the news of 1,000 members that
	// started at once delayed other news for two minutes. Connections and exchanges bring the news that gossip
	// loses.
	gossipMult = 3
	// newsNodes is the number of members to which SendNews sends.
	newsNodes = 4
	// After each probeEvery, each member probes another member. If many members see a crash, gossip detects
	// the crash in about 12 s in a cluster of up to 10 members, and in 20 s in a cluster of 100. That is soon
	// enough, because no member is forgotten before Config.Forget.
	probeEvery = 2 * time.Second
	// After each exchangeEvery, each member exchanges its roster with another member; in a cluster of more
	// than 32 members, less often. The exchange brings news that got lost.
	exchangeEvery = 30 * time.Second
)

// streamTimeout bounds the opening of a stream, and then the exchange on it: an attempt to join
// that reaches no member takes at most twice this.
const streamTimeout = 3 * time.Second

// label marks all gossip of a cluster. Addresses are reused: without the label, a message for a
// member that has moved away could reach, and join, another cluster.
func label(seed [16]byte, region string) string {
	sum := sha256.Sum256(append(seed[:], region...))
	return "weir" + base64.RawURLEncoding.EncodeToString(sum[:9])
}

// Start starts memberlist on the port. After an error, the port is closed.
func (g *Gossip) Start(p Port) (err error) {
	t := newTransport(p, g.cfg.Addr, g.inspector, g.cfg.Refused)
	g.memberlist.Transport = t
	if g.list, err = memberlist.Create(g.memberlist); err != nil {
		_ = t.Shutdown()
		return fmt.Errorf("cluster: gossip does not start: %w", err)
	}
	return nil
}

// self returns the record of this node.
func (g *Gossip) self() (self detect.Record) {
	g.read(func(r *detect.Roster) { self = r.Self() })
	return self
}

// read calls f with the roster of this node.
func (g *Gossip) read(f func(r *detect.Roster)) {
	g.cfg.Step(func(r *detect.Roster) (unchanged detect.Change) {
		f(r)
		return unchanged
	})
}

// Join exchanges rosters with the member at "ip:port".
func (g *Gossip) Join(addr string) error {
	_, err := g.list.Join([]string{addr})
	return err
}

// Spread sends a record to all members by gossip.
func (g *Gossip) Spread(r detect.Record) {
	message := EncodeRecords([]detect.Record{r}, time.Now())
	g.broadcasts.QueueBroadcast(&broadcast{name: r.Name, message: message})
}

// Update sends the record of this node to all members.
func (g *Gossip) Update() {
	// UpdateNode queues the record at once. It reports a timeout if the record is not sent within a
	// millisecond, which does no harm.
	_ = g.list.UpdateNode(time.Millisecond)
}

// SendNews sends records to a few random members at once, and pings them: memberlist adds news that wait for
// the next round of gossip to each ping. It does not wait for the answers. A ping ends within half a second,
// as a probe does, also after Stop.
func (g *Gossip) SendNews(records ...detect.Record) {
	members := slices.DeleteFunc(g.list.Members(), func(n *memberlist.Node) bool { return n.Name == g.cfg.Name })
	rand.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
	message := EncodeRecords(records, time.Now())
	for _, n := range members[:min(newsNodes, len(members))] {
		_ = g.list.SendBestEffort(n, message)
		go func() { _, _ = g.list.Ping(n.Name, &net.UDPAddr{IP: n.Addr, Port: int(n.Port)}) }()
	}
}

// Leave notifies all members that this node leaves, so that they do not probe the node. The caller
// must not call Leave after Stop, because memberlist panics then.
func (g *Gossip) Leave() { _ = g.list.Leave(time.Millisecond) }

// Report reports again that members are alive, if memberlist has them.
func (g *Gossip) Report(names map[string]bool) {
	for _, n := range g.list.Members() {
		if names[n.Name] {
			delegate{g}.recordAlive(n)
		}
	}
}

// Stop stops memberlist, and closes the port. A probe may run for some seconds more, but
// does not send any packets.
func (g *Gossip) Stop() error {
	if g.list == nil {
		return nil
	}
	return g.list.Shutdown()
}

// ReadMessage reads the message of a stream within bounds, and returns it unchanged.
// isIncoming reports whether another member has opened the stream.
func (g *Gossip) ReadMessage(r io.Reader, isIncoming bool) ([]byte, error) {
	return g.inspector.stream(r, isIncoming)
}
