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
	ErrBroken       = fmt.Errorf("%w: the connection broke", ErrTimeout)        // the same, and the member is disconnected
	ErrBusy         = errors.New("cluster: the queue to the member is full")    // nothing was sent
	ErrTooLarge     = errors.New("cluster: the message exceeds the size limit") // nothing was sent
	ErrClosed       = errors.New("cluster: closed")

	errStartedTwice = errors.New("cluster: Start was called before: use a new Cluster for each start")
	errNotStarted   = errors.New("cluster: Start has not been called")
)

// MaxMessage bounds the bytes of one request or answer.
const MaxMessage = 64 << 10

// Cluster is all that a node sees of the others: the roster, a way to ask each member,
// and what they ask. It carries bytes and knows nothing of limits.
//
// Its methods are safe for concurrent use.
type Cluster interface {
	// Start listens and joins. It calls h as soon as it listens, before it
	// returns: others may ask from then on, and joining takes its time. ctx
	// bounds Start only. It is no error that no member to join was found: the
	// cluster goes on trying.
	Start(ctx context.Context, h Handler) error
	// View returns the roster and connectivity as this node knows them. It is
	// never nil once Start has returned or Handler is called, never changes,
	// and costs one atomic load.
	View() *View
	// Region returns a way to ask any node of another region: one of those that its
	// addresses reach. It is nil for a region that Config does not name, and for this
	// node's own. Nodes of other regions are not in View, and Handler is told of them
	// by Serve alone.
	Region(name string) Peer
	// Announce sets the state that this node announces: Joining, as it starts,
	// Serving or Leaving. View shows it when Announce returns, and Changed is
	// called. The members that this node is connected to know it about a packet's way
	// later, the others by gossip. It may be called from the first call of
	// Changed on, also from within Changed. It is an error to announce another
	// state, and after Leave.
	//
	// A node that was taken off the roster while it lived (it was forgotten, or
	// falsely buried) comes back by itself, and is Joining again, because other members
	// may hold now what it held. Member.Epoch counts that.
	Announce(s State) error
	// Forget removes a dead member from the roster, here and on every node
	// that is reached. It is an error if name is not in the roster or not dead.
	Forget(name string) error
	// Leave has the others take this node off the roster. The node still asks and
	// answers until Close.
	Leave(ctx context.Context) error
	// Close stops everything at once, without a goodbye, and waits for what was
	// started. Peer.Ask returns ErrClosed from then on.
	Close() error
	// Stats returns a snapshot of the counters.
	Stats() Stats
}

// Handler is what a Cluster calls: the node above it.
type Handler interface {
	// Changed reports that View differs from what it was. Calls come one at a
	// time, and must not block. They may come while Start still runs: it
	// tries every address to join, and members are connected meanwhile.
	Changed()
	// Serve answers requests that arrived together from one member, or from one
	// node of another region, as Batch.Region says. It is
	// called from several goroutines, one for each connection, and must not
	// block: what cannot be answered at once is taken with Batch.Later.
	Serve(b *Batch)
	// Answered reports that a member has just answered, within a second and, if it was
	// asked, within the ask's wait, by this node's own clock: an answer that lay
	// in a socket while this process stood still does not count. If the
	// member has this node's tombstone, it has sent it before it answered,
	// and View shows it. Calls come from several goroutines, once at most for all
	// that was read from a connection together, and must not block. A cluster of
	// one never calls it.
	Answered()
	// Late hands over an answer that came after its asker had given up. It
	// must not block, nor keep request or answer.
	Late(from Peer, request, answer []byte)
}

// Peer asks one member, or any node of one other region.
//
// A region is asked over one connection, to a node that was chosen at random. It
// is opened as soon as the cluster starts, and another one takes its place, within
// seconds, when it ends or its node stops answering. Where what follows speaks of
// a member, for a region
//   - ErrDisconnected reports that there is no connection now; one is being opened;
//   - there is no ErrStalled, and asks that are under way when the connection ends
//     return ErrBroken;
//   - an answer that comes after its asker gave up is dropped, and not handed to
//     Handler.Late;
//   - answers do not count for Handler.Answered.
type Peer interface {
	// Ask sends request and appends the answer to answer[:0], which it
	// returns. It returns ErrTimeout when wait has passed. Time in which this process did
	// not run does not count: a process that stood still had no chance to send the request
	// or to read the answer. A member is never disconnected because it is late, but only because the
	// connection to it breaks or both connections with it are silent for 800 ms.
	// When ctx is done first, ctx.Err is returned, and counts for nothing.
	//
	// In a cluster of more than 9 members there may be no connection to the member yet, or it may
	// have rested. Ask opens it within wait.
	//
	// A member that is disconnected is not waited for: ErrDisconnected at once. Nor is one
	// that has stalled: it has left an ask unanswered, and has said nothing since then
	// for 200 ms, or for longer where its round trips are long (their mean and four
	// deviations, RFC 6298). It is ErrStalled at once then, until anything comes from
	// the member.
	//
	// An answer that arrives after Ask has returned is handed to Handler.Late.
	Ask(ctx context.Context, request, answer []byte, wait time.Duration) ([]byte, error)
	// Tell sends request and wants no answer. It never blocks; it drops the
	// request if there is no connection to the member or the queue to it is
	// full. A member that is only disconnected is told: what gives back units that
	// it granted too late is for just that member.
	Tell(request []byte)
	// Delay returns the scheduling delay that the member reported last, and zero for a
	// region: for how long its process was ready to run, and did not. Pongs carry it. A
	// member may have started with the connection and have measured little, so until the
	// first pong that comes a second after its beginning Delay is at least a second. A member
	// that reports a delay and then freezes keeps it.
	Delay() time.Duration
	// Protocol returns what the connection that Ask and Tell use speaks, and the zero
	// Protocol if there is none, as for a member that was not asked for long. For a member it never changes between connections. For a
	// region the next node may speak an older version: a request in a form that this node
	// does not know is answered as unknown, and sent again in the older form.
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
	Addr   string // "host:port" that others dial
	Region string
	Born   time.Time // when it started, by its own clock
	State  State
	// Announced is the state that it announced last, as far as is known here: Joining,
	// Serving or Leaving. It is kept when State becomes Missing or Dead.
	Announced State
	// Epoch counts how often it was taken off the roster while it lived, and has
	// come back, Joining.
	Epoch uint64
	Peer  Peer // how to ask it; nil for the node itself
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
	// Stalled[j] reports whether this node is connected to Members[j] and asks it nothing now, as
	// ErrStalled has it. No other node is told so. It is nil where no member has stalled.
	Stalled []bool
	// Ended[j] reports whether the process of Members[j] has ended, as all members of this side
	// find: its kernel closed all connections with them, and refuses new ones. It is nil unless
	// Config.ForgetRefused is set.
	Ended []bool
}

// Stalls reports whether this node asks Members[i] nothing now, though it is connected to it.
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

// Stats counts what happened at the peer port and in the membership.
type Stats struct {
	// Refused is what was turned away, by reason. Connections that were closed: "garbage",
	// "version", "oversized", "authentication", "record", "tls", "seed", "region", "identity", "timeout", "crowded".
	// Packets of gossip that were dropped: "packet", of another cluster or what no member
	// sends, and "flood", above 8,192 messages, or 512 pings, in a second. Members that were
	// not taken in: "members", above 4,096, or 512 new ones at once and 32 in each second.
	Refused  map[string]uint64
	Timeouts uint64 // asks that waited their whole wait
	Late     uint64 // answers that came after their asker gave up, also those of other regions
	Dropped  uint64 // asks and tells refused because a queue was full
	// RoundTrips is how long members take to answer this node: the smoothed mean of their
	// round trips, as the failure detector has it (RFC 6298), by name. Those that this
	// node has no connection to, or no answer of, are not in it.
	RoundTrips      map[string]time.Duration
	SchedulingDelay time.Duration // how late the timers of this process fire, at most a second; its failure detector allows for this delay
	JoinError       string        // why the last attempt to join failed, empty when it did not
	JoinedCount     int           // the number of members that the last attempt to join has reached
	// Unanswered is the entries of Config.Join that stand for other nodes and have
	// not led to a member since Start, each with what the last attempt said: a name
	// that does not resolve, an address that does not answer. An entry that stands
	// for this node alone is not among them. Empty if there are none.
	Unanswered map[string]string
}

// Batch is requests that arrived together from one node. The handler answers every
// request exactly once, by Reply or through Later, in any order.
type Batch struct {
	From     string   // the node's name
	Region   string   // its region: this node's own if it is a member
	Requests [][]byte // valid until Serve returns
	// Read is when the requests were read, zero if that is not known. A request that has
	// waited longer than its asker waits need not be answered.
	Read time.Time
	// Protocol is what the connection speaks. Answers are written in its form.
	Protocol Protocol

	replier Replier
}

// NewBatch is for implementations of Cluster, which set Region, Requests, Read and Protocol.
func NewBatch(from string, r Replier) *Batch { return &Batch{From: from, replier: r} }

// Replier carries a batch's answers back. It is for implementations of Cluster.
type Replier interface {
	// Reply answers request i of the batch being served; it copies body.
	Reply(i int, body []byte)
	// Later returns what answers request i after Serve has returned.
	Later(i int) Later
}

// Later answers one request, once, from any goroutine. It copies body.
type Later func(body []byte)

// Reply answers request i. body is copied. Call it only within Serve.
func (b *Batch) Reply(i int, body []byte) { b.replier.Reply(i, body) }

// Later puts off the answer to request i. Call it only within Serve; what it
// returns may be called from any goroutine, once. An answer that never comes
// costs the asker its wait.
func (b *Batch) Later(i int) Later { return b.replier.Later(i) }
