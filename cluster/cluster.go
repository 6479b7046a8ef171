package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

// Errors that Peer.Ask and a Cluster's methods return. They are compared with
// errors.Is.
var (
	ErrDisconnected = errors.New("cluster: the member is not connected")        // nothing was sent
	ErrStalled      = errors.New("cluster: the member has stalled")             // nothing was sent
	ErrTimeout      = errors.New("cluster: the member did not answer in time")  // the request may have been served
	ErrBroken       = fmt.Errorf("%w: the connection broke", ErrTimeout)        // the same, because the connection ended or was replaced
	ErrBusy         = errors.New("cluster: the queue to the member is full")    // nothing was sent
	ErrTooLarge     = errors.New("cluster: the message exceeds the size limit") // nothing was sent
	ErrClosed       = errors.New("cluster: closed")

	errStartedTwice = errors.New("cluster: Start was called before: use a new Cluster for each start")
	errNotStarted   = errors.New("cluster: Start has not been called")
)

// MaxMessage is the maximum size of one request or answer in bytes.
const MaxMessage = 64 << 10

// Cluster connects a node to the other members: it keeps the roster, sends requests to
// members and receives their requests. It carries bytes and does not interpret limits.
//
// Its methods are safe for concurrent use.
type Cluster interface {
	// Start listens and joins. It calls h as soon as it listens, before it
	// returns, because other members may send requests while Start joins. ctx
	// bounds Start only. If Start finds no member to join, it returns no error,
	// and the cluster continues to try.
	Start(ctx context.Context, h Handler) error
	// View returns the roster and connectivity as this node knows them. It is
	// never nil once Start has returned or Handler is called, never changes,
	// and costs one atomic load.
	View() *View
	// Region returns a Peer that asks any node of another region that its addresses
	// reach. It returns nil for a region that Config does not name, and for the region
	// of this node. View does not contain nodes of other regions, and of the methods of
	// Handler only Serve is called for them.
	Region(name string) Peer
	// Announce sets the state that this node announces: Joining, as it starts,
	// Serving or Leaving. View shows it when Announce returns, and Changed is
	// called. The members that this node is connected to learn the state about one
	// network latency later, and other members learn it by gossip. In a cluster of more
	// than 9 members, each member passes the state on within 50 ms, and its view shows the
	// state within 100 µs for each member. Announce may be
	// called from the first call of Changed on, also from within Changed. It returns an
	// error for another state, and after Leave.
	//
	// A node that was removed from the roster while it lived (it was forgotten, or
	// falsely buried) returns by itself, and is Joining again, because other members
	// may now hold the counts that it held. Member.Epoch counts these returns.
	Announce(s State) error
	// Forget removes a dead member from the roster of this node and of every node
	// that is reached. It returns an error if name is not in the roster or not dead.
	Forget(name string) error
	// Leave removes this node from the rosters of the other members. The node still
	// sends and answers requests until Close.
	Leave(ctx context.Context) error
	// Close stops the cluster at once, without a goodbye, and waits for the goroutines
	// that it started. Peer.Ask then returns ErrClosed.
	Close() error
	// Stats returns a snapshot of the counters.
	Stats() Stats
}

// Handler is the node above a Cluster. The Cluster calls its methods.
type Handler interface {
	// Changed reports that View has changed. Calls come one at a time, and must not
	// block. They may come while Start still runs: Start tries every address to join,
	// and members are connected meanwhile.
	Changed()
	// Serve answers requests that arrived together from one member, or from one
	// node of another region (see Batch.Region). It is called from several goroutines,
	// one for each connection, and must not block. A request that cannot be answered at
	// once is answered with Batch.Later.
	Serve(b *Batch)
	// Answered reports that a member has just answered a ping within a second, or a
	// request within a second and the wait of the request, by the clock of this node. An
	// answer that stayed in a socket while this process did not run does not count. A
	// member that has the tombstone of this node sends it before it answers, and View
	// shows it. Calls come from several goroutines, at most once for all frames that
	// were read from a connection together, and must not block. A cluster of one never
	// calls Answered.
	Answered()
	// Late handles an answer that arrived after its asker had given up. It must not
	// block, and must not keep request or answer.
	Late(from Peer, request, answer []byte)
}

// Peer asks one member, or any node of one other region.
//
// A region is asked over one connection to a node that is chosen at random. The
// connection is opened as soon as the cluster starts. If it ends, or its node stops
// answering, another connection replaces it within seconds. The methods document
// members. For a region
//   - ErrDisconnected reports that there is no connection now, and that the region
//     tries to open one;
//   - ErrStalled is not returned, and asks that are under way when the connection ends
//     return ErrBroken;
//   - an answer that arrives after its asker has given up is dropped, and not passed to
//     Handler.Late;
//   - answers do not count for Handler.Answered.
type Peer interface {
	// Ask sends request and appends the answer to answer[:0], which it
	// returns. It returns ErrTimeout when wait has passed. Time in which this process did
	// not run does not count, because a suspended process can neither send the request nor
	// read the answer. A late answer does not disconnect the member: only a broken
	// connection does, or the silence of both connections with it for 800 ms. If ctx is
	// done first, Ask returns ctx.Err, and no timeout is counted.
	//
	// In a cluster of more than 9 members the connection to the member may not exist yet, or may
	// rest. Ask then opens or wakes it within wait.
	//
	// If the member is disconnected, Ask returns ErrDisconnected at once. If the member has
	// stalled, Ask returns ErrStalled at once, until a frame arrives from the member. A member
	// has stalled if it has left an ask unanswered, and has sent nothing since then for 200 ms,
	// or for the mean of its round trips and four deviations (RFC 6298) if that is longer.
	//
	// An answer that arrives after Ask has returned is passed to Handler.Late.
	Ask(ctx context.Context, request, answer []byte, wait time.Duration) ([]byte, error)
	// Tell sends request and expects no answer. It never blocks. It drops the request if
	// the queue to the member is full, or if there is no connection to a member that is
	// disconnected. Over a connection, Tell also sends to a disconnected member: a request
	// that returns units which this member granted too late is for this member alone.
	Tell(request []byte)
	// Delay returns the scheduling delay that the member reported last: how long its process
	// was ready to run, and did not. It returns zero for a region. Pongs carry the delay. A
	// member may have started with the connection and have measured little. So Delay is at
	// least a second until the first pong that arrives a second after the connection began. A
	// member that reports a delay and then freezes keeps this delay.
	Delay() time.Duration
	// Protocol returns the protocol of the connection that Ask and Tell use, and the zero
	// Protocol if there is no connection, as for a member that has not been asked for long. All
	// connections to a member have the same protocol. The next node of a region may speak an
	// older version: a node answers a request in an unknown form as unknown, and the caller
	// sends it again in the older form.
	Protocol() Protocol
}

// State is the state of a member, as this node knows it.
type State = detect.State

const (
	Joining = detect.Joining // does not own keys yet, and forwards checks to other members
	Serving = detect.Serving // in the roster and reachable, directly or through others
	Missing = detect.Missing // in the roster, but no member of this side is connected to it
	Dead    = detect.Dead    // died without saying goodbye, and is not yet forgotten
	Leaving = detect.Leaving // does not own keys any more, and transfers its authority
)

// Member is one process in the roster.
type Member struct {
	Name   string // label-incarnation, unique for each start
	Addr   string // "host:port" that other nodes dial
	Region string
	Born   time.Time // the start of the member, by its own clock
	State  State
	// Announced is the last announced state of the member, as far as this node knows: Joining,
	// Serving or Leaving. It is kept when State becomes Missing or Dead.
	Announced State
	// Epoch counts how often the member was removed from the roster while it lived, and
	// returned as Joining.
	Epoch uint64
	Peer  Peer // sends requests to the member; nil for the node itself
}

// memberOf returns the member of a record as it announces itself, without its Peer.
func memberOf(r detect.Record) Member {
	return Member{
		Name: r.Name, Addr: r.Addr, Region: r.Region, Born: time.Unix(0, r.Born),
		State: r.Announced, Announced: r.Announced, Epoch: r.Epoch,
	}
}

// View is the roster and connectivity, as one node knows them at one moment. It is
// immutable: a node's checks, views of authority and goroutines share it without a lock.
type View struct {
	Members []Member // the roster, sorted by name; without this node once it has left
	Self    int      // index of this node in Members, -1 once it has left
	// Connected[i] are the indexes of the members that Members[i] watches and is connected to, sorted
	// and without i. In a cluster of at most 9 living members every member watches all others. The row of a member that is not connected may be out of date.
	Connected [][]int
	// Direct[j] reports whether this node is connected to Members[j], or presumes so: the side of
	// this node reaches the member, and no request to it has failed. It is true for the node itself,
	// and a node that has left still has it.
	Direct []bool
	// Stalled[j] reports whether this node is connected to Members[j], but sends it no requests
	// because it has stalled (see ErrStalled). Other nodes do not know this. Stalled is nil if no
	// member has stalled.
	Stalled []bool
	// Ended[j] reports whether the process of Members[j] has ended, as all members of this side
	// find: its kernel closed all connections with them, and refuses new ones. It is nil unless
	// Config.ForgetRefused is set.
	Ended []bool
}

// Stalls reports whether this node is connected to Members[i], but sends it no requests because it
// has stalled.
func (v *View) Stalls(i int) bool { return v.Stalled != nil && v.Stalled[i] }

// Side reports which of Members are on the side of this node: the members to which this node is
// connected, directly or through others, and this node itself unless it has left. A member that is
// connected to another member can ask it on behalf of a member that is not connected to it.
func (v *View) Side() []bool { return detect.Side(v.Direct, v.Connected) }

// IsConnected reports whether Members[i] watches Members[j] and is connected to it. Every member is
// connected to itself.
func (v *View) IsConnected(i, j int) bool {
	if i == j {
		return true
	}
	_, connected := slices.BinarySearch(v.Connected[i], j)
	return connected
}

// OnSide reports whether a member is on the side of this node and not dead.
func (v *View) OnSide(name string) bool {
	i, ok := slices.BinarySearchFunc(v.Members, name, func(m Member, name string) int { return cmp.Compare(m.Name, name) })
	return ok && v.Members[i].State != Missing && v.Members[i].State != Dead
}

// NewView returns the view of the node self at the time now. connections returns the connections among
// the named members, and peer returns the Peer of another member. It is for implementations of Cluster,
// which clear Ended unless Config.ForgetRefused is set.
func NewView(self string, now time.Time, roster []detect.Entry, connections func(names []string) detect.Connections, peer func(name string) Peer) *View {
	v := &View{Members: make([]Member, len(roster)), Self: -1}
	names := make([]string, len(roster))
	for i, e := range roster {
		if v.Members[i], names[i] = memberOf(e.Record), e.Name; e.Name == self {
			v.Self = i
		}
	}
	c := connections(names)
	v.Connected, v.Direct, v.Stalled, v.Ended = c.Connected, c.Direct, c.Stalled, c.Ended
	side := v.Side()
	for i := range v.Members {
		if i == v.Self {
			continue
		}
		m := &v.Members[i]
		m.Peer = peer(m.Name)
		switch {
		case roster[i].IsDead(now):
			m.State = Dead
		case !side[i]:
			m.State = Missing
		}
	}
	return v
}

// Equal reports whether v and o are equal.
func (v *View) Equal(o *View) bool {
	return v.Self == o.Self && slices.Equal(v.Members, o.Members) &&
		slices.Equal(v.Direct, o.Direct) && slices.Equal(v.Stalled, o.Stalled) && slices.Equal(v.Ended, o.Ended) &&
		slices.EqualFunc(v.Connected, o.Connected, slices.Equal[[]int])
}

// Stats has the counters of the peer port and of the membership.
type Stats struct {
	// Refused counts refused connections, packets and members by reason. Closed connections:
	// "garbage", "version", "oversized", "authentication", "record", "tls", "seed", "region",
	// "identity", "timeout", "crowded". Dropped packets of gossip: "packet" for a packet of
	// another cluster, or one that members do not send, and "flood" above 8,192 messages, or
	// 512 pings, in a second. Members that were not added: "members", above 4,096, or above
	// 512 new members at once and 32 in each second.
	Refused  map[string]uint64
	Timeouts uint64 // requests without an answer within their wait
	Late     uint64 // answers that arrived after their asker had given up, also from other regions
	Dropped  uint64 // requests and answers dropped because a queue was full or they were too long
	// RoundTrips maps the names of members to the smoothed mean of their round trips to this
	// node, as the failure detector computes it (RFC 6298). It does not contain a member without
	// a connection from this node, or without an answer over that connection.
	RoundTrips      map[string]time.Duration
	SchedulingDelay time.Duration // how late the timers of this process fire, at most a second; its failure detector allows for this delay
	JoinError       string        // why the last attempt to join failed, empty when it did not
	JoinedCount     int           // the number of members that the last attempt to join has reached
	// Unanswered maps each entry of Config.Join that stands for other nodes, and has
	// not led to a member since Start, to the problem of the last attempt: a name
	// that does not resolve, or an address that does not answer. It does not contain an
	// entry that stands for this node alone.
	Unanswered map[string]string
}

// Batch contains the requests that arrived together from one node. The handler answers every
// request exactly once, by Reply or through Later, in any order.
type Batch struct {
	From     string   // name of the node
	Region   string   // region of the node; a member has the region of this node
	Requests [][]byte // valid until Serve returns
	// Read is the time at which the requests were read, or zero if it is not known. A request
	// that has waited longer than its asker waits need not be answered.
	Read time.Time
	// Protocol is the protocol of the connection. Answers are written in its form.
	Protocol Protocol

	replier Replier
}

// NewBatch is for implementations of Cluster, which set Region, Requests, Read and Protocol.
func NewBatch(from string, r Replier) *Batch { return &Batch{From: from, replier: r} }

// Replier sends the answers to a batch. It is for implementations of Cluster.
type Replier interface {
	// Reply answers request i of the batch being served; it copies body.
	Reply(i int, body []byte)
	// Later returns a function that answers request i after Serve has returned.
	Later(i int) Later
}

// Later answers one request, once, from any goroutine. It copies body.
type Later func(body []byte)

// Reply answers request i. body is copied. Call it only within Serve.
func (b *Batch) Reply(i int, body []byte) { b.replier.Reply(i, body) }

// Later postpones the answer to request i. Call it only within Serve. The returned
// function may be called once, from any goroutine. If it is never called, the asker
// waits until its wait has passed.
func (b *Batch) Later(i int) Later { return b.replier.Later(i) }
