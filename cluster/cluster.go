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
	ErrBroken       = fmt.Errorf("%w: the connection broke", ErrTimeout)        // the connection ended or was replaced, and the request may have been served
	ErrBusy         = errors.New("cluster: the queue to the member is full")    // nothing was sent; also if too many asks, or bytes of asks, are unanswered
	ErrTooLarge     = errors.New("cluster: the message exceeds the size limit") // nothing was sent
	ErrClosed       = errors.New("cluster: closed")                             // a request that was under way may have been served

	errStartedTwice = errors.New("cluster: Start was called before: use a new Cluster for each start")
	errNotStarted   = errors.New("cluster: Start has not been called")
)

// MaxMessage is the maximum size of one request or answer in bytes.
const MaxMessage = 64 << 10

// Cluster connects a node to the other members: it keeps the roster, sends requests to
// members and receives their requests. It carries bytes and does not interpret limits.
//
// The methods are safe for concurrent use.
type Cluster interface {
	// Start listens and joins. The Cluster calls h as soon as the node listens, because other members may
	// send requests while Start still joins. ctx bounds Start only. If no member can be joined before
	// the deadline of ctx, Start returns no error, and the cluster continues to try. But Start fails if
	// the only answer is that the configuration of this node does not match, such as its Secrets, Seed
	// or Region.
	Start(ctx context.Context, h Handler) error
	// View returns the roster and connectivity as this node knows them. The view is not nil once Start
	// has succeeded or Handler is called, and is never modified. A call costs an atomic load.
	View() *View
	// Region returns a Peer that asks any of the nodes that the addresses of a region reach. The Peer
	// is nil for a region that Config does not name, and for the region of this node. View does not
	// contain nodes of other regions, and of the methods of Handler only Serve is called for them.
	Region(name string) Peer
	// Announce sets the state that this node announces: Joining (the state when it starts), Serving or
	// Leaving. View shows the state when Announce returns, and Changed is called before that or soon
	// after. The members that this node is connected to learn the state about a network latency later,
	// and other members by gossip. In a cluster of more than 9 members, each member passes the state on
	// within some 50 ms, and shows the state in its view after some 100 µs for each member of the
	// cluster. Announce may be called from the first call of Changed on, also within Changed, and once
	// Start has returned. Announce returns an error for any other state, and before Start, after Leave
	// and after Close.
	//
	// A node that was removed from the roster while alive, because a side of a partition forgot it or
	// another member answered at its address, comes back without a call of Announce. It is Joining
	// again, because other members may now hold its counts. Member.Epoch counts these returns.
	Announce(s State) error
	// Forget removes a dead member from the roster of this node, and of every node to which gossip spreads
	// the tombstone. It returns an error if name is not in the roster or not dead, before Start and after
	// Close.
	Forget(name string) error
	// Leave removes this node from the rosters of the other members. Until Close, the node continues to
	// send requests, and to answer those of its region. Leave takes at most a second. It returns an error if
	// ctx is done before the goodbye is sent, before Start and after Close. Further calls do nothing.
	Leave(ctx context.Context) error
	// Close stops the cluster at once, without a goodbye, and waits for the goroutines of the cluster.
	// Peer.Ask then returns ErrClosed.
	Close() error
	// Stats returns a snapshot of the counters.
	Stats() Stats
}

// Handler is the node above a Cluster. The Cluster calls its methods.
type Handler interface {
	// Changed reports that View has changed. Changed must not block. Calls do not overlap. The first call
	// may come before Start returns: Start tries every address to join, and members are connected
	// meanwhile.
	Changed()
	// Serve answers requests that arrived together from a member, or from a node of a different region
	// (see Batch.Region). Each connection has a goroutine that calls Serve. Serve must not block. A
	// request that cannot be answered at once is answered with Batch.Defer.
	Serve(b *Batch)
	// Answered reports that a member has just answered a ping within a second, or a request within a
	// second and within the wait of the request. The time ends when this process reads the answer. So
	// an answer does not count if it stayed in a socket for too long because this process did not run.
	// Over a new connection, a member that has the tombstone of this node sends the tombstone before
	// its first pong, and View shows this node as Joining before Answered is called. Several goroutines
	// call Answered, each at most once for all frames that it has read together. Answered must not block.
	// A cluster of NewSolo never calls Answered.
	Answered()
	// HandleLate handles an answer that arrived after the caller of Ask had given up. It must not block,
	// and must not keep request or answer.
	HandleLate(from Peer, request, answer []byte)
}

// Peer sends requests to a member, or to any node of a different region.
//
// A region is asked over a single connection to a node that is chosen at random. The connection is
// opened as soon as the cluster starts. If the connection ends, or the node stops answering, this node
// tries within seconds to open a new connection. The comments of the methods describe members. For a
// region:
//   - ErrDisconnected reports that there is no connection now, and that this node tries to open a
//     connection;
//   - ErrStalled is not returned, and asks that are under way when the connection ends
//     return ErrBroken;
//   - an answer that arrives after Ask has returned is dropped, and not passed to Handler.HandleLate;
//   - answers do not count for Handler.Answered.
type Peer interface {
	// Ask sends request, appends the answer to answer[:0], and returns the result. When wait has
	// passed, the error is ErrTimeout. Time in which this process did not run does not count, because a
	// suspended process can neither send the request nor read the answer. A late answer does not
	// disconnect the member. The member is disconnected if a connection breaks or cannot be opened, or
	// if 800 ms pass without an answer on either of the two connections with the member. A member that is
	// not watched is also disconnected while the rows do not show it on the side of this node. If ctx is
	// done first, Ask returns ctx.Err, and no timeout is counted. Ask also returns ErrBroken, ErrBusy,
	// ErrTooLarge and ErrClosed.
	//
	// In a cluster of more than 9 members the connection to the member may not exist yet, or may rest.
	// The time to open or wake the connection is part of wait. A member has stalled if opening or waking
	// takes longer than 200 ms.
	//
	// If the member is disconnected, Ask returns ErrDisconnected at once. If the member has stalled,
	// Ask returns ErrStalled at once, until a frame arrives from the member. A member has stalled if it
	// leaves an ask unanswered, and sends no frame after the ask for 200 ms, or for the mean of the
	// round trips and four deviations (RFC 6298) if that is longer. Scheduling delays make the 200 ms
	// and the 800 ms longer: see the package documentation.
	//
	// An answer that arrives over the same connection, at most 10 s after Ask has returned, is passed to
	// Handler.HandleLate.
	Ask(ctx context.Context, request, answer []byte, wait time.Duration) ([]byte, error)
	// Send queues request, to which there is no answer, and does not block. The request is dropped if
	// it exceeds MaxMessage, if the queue to the member is full, if an attempt to connect to the member
	// fails, or if the member is disconnected and its connection does not exist or rests. Over an open
	// connection that does not rest, Send also sends to a disconnected member, because only the member
	// that granted units too late can take them back.
	Send(request []byte)
	// Delay returns the scheduling delay that the member reported last: how long the process of the
	// member was ready to run, and did not run. Pongs carry the delay. Delay returns zero for a region,
	// and before the first pong. The member may have started just before the connection began, and have
	// measured little. So after a pong in the first second of a connection, Delay returns at least a
	// second. After a member freezes, Delay still returns the last report.
	Delay() time.Duration
	// Protocol returns the protocol of the connection that Ask and Send use, and the zero
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
	Serving = detect.Serving // owns keys, and is reachable, directly or through others
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
	// Announced is the last announced state of the member, as far as this node knows: Joining, Serving
	// or Leaving. Announced does not change when State becomes Missing or Dead.
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

// View is the roster and connectivity, as one node knows them at one moment. A View is immutable: the
// checks, the views of authority and the goroutines of a node share the View without a lock.
type View struct {
	Members []Member // the roster, sorted by name; without this node once it has left
	Self    int      // index of this node in Members, -1 once it has left
	// Connected[i] are the indexes of the members that Members[i] watches and is connected to, sorted
	// and without i. In a cluster of at most 9 living members, and at most 36 members with the dead, every
	// member watches all others. The row of a member that is not connected may be out of date.
	Connected [][]int
	// Direct[j] reports whether this node is connected to Members[j], or presumes so: the member is on
	// the side of this node, and no request to it has failed. Direct is true for the node itself. The
	// view of a node that has left has Direct too.
	Direct []bool
	// Stalled[j] reports whether this node is connected to Members[j], which has stalled and so
	// receives no requests from this node (see ErrStalled). Other nodes do not know this. If Stalled is
	// nil, no member has stalled.
	Stalled []bool
	// Ended[j] reports that the process of Members[j] has ended, because all members that watch it from
	// this side agree: its kernel closed all connections with them, and refuses new connections.
	// Ended is nil unless Config.ForgetRefused is set.
	Ended []bool
}

// Stalls reports whether Members[i] is connected to this node and has stalled.
func (v *View) Stalls(i int) bool { return v.Stalled != nil && v.Stalled[i] }

// Side reports which of Members are on the side of this node: the members to which this node is
// connected, directly or through others, and this node itself unless it has left. A member that is
// connected to two other members can pass requests on between them.
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

// RosterMembers returns the members of a roster, sorted by name. State is Dead if the member counts as dead at the
// time now, and otherwise the state that the member has announced. Peer is nil.
func RosterMembers(roster []detect.Entry, now time.Time) []Member {
	members := make([]Member, len(roster))
	for i, e := range roster {
		if members[i] = memberOf(e.Record); e.IsDead(now) {
			members[i].State = Dead
		}
	}
	return members
}

// NewView returns the view of the node self. members is the result of RosterMembers with the Peers of the
// other members. NewView may keep the slice, so the caller must not modify it later. NewView calls connections
// with the names of the members. NewView is for implementations of Cluster. They must set the field Ended of the
// result to nil unless Config.ForgetRefused is set.
func NewView(self string, members []Member, connections func(names []string) detect.Connections) *View {
	v := &View{Members: members, Self: -1}
	names := make([]string, len(members))
	for i, m := range members {
		if names[i] = m.Name; m.Name == self {
			v.Self = i
		}
	}
	c := connections(names)
	v.Connected, v.Direct, v.Stalled, v.Ended = c.Connected, c.Direct, c.Stalled, c.Ended
	isCopy := false
	for i, m := range members {
		if i == v.Self || c.Side[i] || m.State == Dead {
			continue
		}
		if !isCopy {
			v.Members, isCopy = slices.Clone(members), true
		}
		v.Members[i].State = Missing
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
	// Refused maps each reason to the number of refused connections, packets or members. Closed
	// connections: "garbage", "version", "oversized", "authentication", "record", "tls", "seed",
	// "region", "identity", "timeout", "crowded". Dropped packets of gossip: "packet" for a packet of a
	// different cluster, or a packet that members do not send, and "flood" above 8,192 messages, or 512
	// pings, in a second. Members that were not added: "members", above 4,096, or above 1,024 new members
	// at once and 32 in each second.
	Refused  map[string]uint64
	Timeouts uint64 // requests without an answer within their wait
	Late     uint64 // answers that arrived after Ask had returned, including those of other regions
	// Dropped counts the calls of Ask that returned ErrBusy, and the requests of Send and the answers that
	// were too long or for which a queue had no room. If the answers to a batch have no room together, each
	// request of the batch counts.
	Dropped uint64
	// RoundTrips maps the names of members to the smoothed mean of their round trips to this node, as
	// the failure detector computes it (RFC 6298). A member without a connection from this node, or
	// without an answer over that connection, is not in the map.
	RoundTrips      map[string]time.Duration
	SchedulingDelay time.Duration // how late the timers of this process fire, at most a second; the failure detector allows for this delay
	JoinError       string        // why the last attempt to join found no member of Config.Join, or why a member refused this node
	JoinedCount     int           // the number of addresses that the last attempt has joined; attempts skip the addresses of members that gossip reports as alive and that are not missing
	// Unanswered contains the entries of Config.Join that have not led to a member since Start. The
	// value of an entry is the problem of the last attempt, such as a name that does not resolve, or an
	// address that does not answer. Before the first attempt, Unanswered contains every entry. After
	// the first attempt, Unanswered contains no entry that leads only to this node.
	Unanswered map[string]string
}

// Batch contains the requests that arrived together from a node. The handler answers every request
// exactly once, by Reply or through Defer, in any order.
type Batch struct {
	From     string   // name of the node
	Region   string   // region of the node; a member has the region of this node
	Requests [][]byte // valid until Serve returns
	// Read is the time at which the requests were read, or zero if that is not known. A request need
	// not be answered once the caller of Ask has given up.
	Read time.Time
	// Protocol is the protocol of the connection. Answers are written in the form of this protocol.
	Protocol Protocol

	replier Replier
}

// NewBatch is for implementations of Cluster, which set Region, Requests, Read and Protocol.
func NewBatch(from string, r Replier) *Batch { return &Batch{From: from, replier: r} }

// Replier sends the answers to a batch. Only implementations of Cluster need a Replier.
type Replier interface {
	// Reply answers request i of the batch that Serve handles. Reply copies body.
	Reply(i int, body []byte)
	// Defer returns a function that answers request i after Serve has returned.
	Defer(i int) Later
}

// Later answers a request. It may be called once, from any goroutine, and copies body.
type Later func(body []byte)

// Reply answers request i. body is copied. Call Reply only within Serve.
func (b *Batch) Reply(i int, body []byte) { b.replier.Reply(i, body) }

// Defer postpones the answer to request i. Call Defer only within Serve. The returned function may be
// called once, from any goroutine. Without a call, Ask returns when its wait has passed.
func (b *Batch) Defer(i int) Later { return b.replier.Defer(i) }
