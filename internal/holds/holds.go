// Package holds counts the holds of InFlight limits: units that return when they are released, and
// not with time.
//
// The member that answers for a count knows each of its holds, and grants no more than the limit.
// The holder of a process's hold is the node of that process. Only the holder knows for certain
// whether the hold has ended. Other members have entries of the hold:
//
//   - Once a second, a holder sends digests to each member that renews some of its holds: for each shard, the
//     digest of these holds. If the member has another digest of the shard, the holder sends the list of these
//     holds in the shard, so that the member adds missing entries.
//   - A member asks the holders of entries that were not renewed lately to confirm the entries. So
//     an entry ends even if the release of the hold was lost, or went to the member that answered
//     for the count before.
//   - A holder gives up a hold that no member has renewed for 9/10 of Term, and so before the entries
//     of the hold end on the members.
//
// A client's hold is a record, which does not depend on any node:
//
//   - The name of a record is the name in the client's text. It never changes, whichever node
//     renews the hold. When a node renamed the holds that it took over, one deploy lost 10 of 12 holds.
//   - Members merge replicas of a record. A release wins, then the later renewal (record.merge), by
//     a hybrid logical clock. With a plain count, a side that had renewed twice overruled the last
//     renewal of the other side.
//   - A record ends exactly at its expiry: each operation on a count first ends the records that
//     are due.
//   - Each member that has a record sends the record to its keepers until they have acknowledged
//     the record. The keeper is the member that answers for the count; the keepers of a record on
//     that member are the successors and the node that asked for the hold. So the record survives
//     as long as a reachable member has it.
//   - A member refuses a message about a record that was in transit for too long (isLate), because a message has
//     the time until the expiry, counted from its arrival. The sender repeats content that is still true.
//   - A call that grants, renews or releases a hold returns once a second member has the record, all
//     requests to other members have ended, or the time that the call may take has ended.
//   - A record that has ended stays, while there is room, until the latest expiry that it ever had, so that no
//     late replica revives the hold. A released record stays for LongestTerm if its member does not know all holds
//     of the count, or misses another member later (keepApart): another member may have renewed it.
//
// The following is true of both kinds of holds:
//
//   - Before a member that begins to answer for a count grants holds, it asks all members that it reaches for the
//     holds of the count. A node that decides itself, because no member has answered, does not ask.
//   - The name of a hold consists of the node that first asked for the hold, and a number. So a hold that two
//     members report, or that is granted twice, counts once.
//   - A grant that arrives too late is kept while the node that asked still asks for the hold.
//     After that, the node releases the late grant, unless it has the hold.
//   - The units of a hold never rise. Of two reports of a hold, the fewer units are right.
//   - No hold ends because the limit is exceeded. A hold that a member reports is never refused for that
//     reason. No new hold is granted until there is room.
package holds

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/sealed"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// Term is the time from the last renewal of a hold of a process to its end.
	Term = 10 * time.Second
	// giveUpAfter is the time from the last renewal of a hold of a process until its holder gives it up.
	giveUpAfter = Term * 9 / 10
	// renewEvery is the time between two digests to a member.
	renewEvery = time.Second
	// renewWait is the timeout of a message of wire.OpRenew.
	renewWait = time.Second / 2
	// staleAfter is the minimum time without a renewal after which the holder of an entry is asked
	// to confirm the entry. A live hold is renewed before.
	staleAfter = renewEvery + renewWait
	// endWait is the maximum time for which a node that ends waits until other members have
	// recorded the releases of its holds.
	endWait = time.Second / 4
	// callsAtOnce is the maximum number of members that are asked at a time.
	callsAtOnce = 64
	// denyFor is the RetryAfter of a denial: units can return at any time.
	denyFor = 10 * time.Millisecond
	// knownFor is the minimum time for which a node uses the answers that recordRequest has recorded.
	knownFor = 100 * time.Millisecond
)

// Config contains the dependencies of a Holds.
type Config struct {
	Env     *env.Env
	Checks  env.Checks
	Timeout time.Duration
	Cluster ClusterAge
	Most    int         // maximum number of holds in the table
	Box     *sealed.Box // seals the texts of clients' holds
}

// ClusterAge returns how long the cluster has run, as far as this node knows.
type ClusterAge interface {
	Age() time.Duration
	// Date returns Age, or 0 if another member may report a much higher age.
	Date() time.Duration
}

// Holds contains the holds of this node, and the holds of other nodes on the counts for which this node
// answers.
type Holds struct {
	cfg    Config
	table  *table
	number atomic.Uint64
	wake   chan struct{} // signals that the view has changed
	looked atomic.Int64  // monotonic time of the last round of Run, of the end of its rest, or of the last requests to all members (beginRound)
	busy   atomic.Bool   // set while messages about renewals are being sent
	ending atomic.Bool   // set by ReleaseAll
	lost   atomic.Uint64 // Stats.Lost
	known  known
	copies copies
}

// Stats contains numbers of holds.
type Stats struct {
	Held  int    // holds of this process, and clients' holds that this node asked for
	Known int    // holds of all nodes that this node knows, because it answers or recently answered for their counts, or has replicas
	Lost  uint64 // the total number of holds of this process that ended because no member renewed them
}

// New returns an empty Holds.
func New(c Config) *Holds {
	h := &Holds{cfg: c, table: newTable(c.Most, c.Cluster.Age), wake: make(chan struct{}, 1), copies: copies{turn: make(chan struct{}, 1)}}
	h.number.Store(rand.Uint64())
	return h
}

// Stats returns the current numbers of holds.
func (h *Holds) Stats() Stats {
	held, known := h.table.countHolds(h.self())
	return Stats{held, known, h.lost.Load()}
}

// Number returns the number of a new hold.
func (h *Holds) Number() uint64 { return h.number.Add(1) }

// Terms are the terms of a hold that a caller of this node requests.
type Terms struct {
	Number uint64        // number of the hold on this node, the same in all asks of a caller that waits
	Waits  bool          // the caller waits in the queue, and asks again or calls LeaveQueue
	TTL    time.Duration // ttl of a client's hold; 0 for a hold of this process
}

// Name sets the fields of the ask a that name a hold of this node.
func (h *Holds) Name(a *wire.Ask, t Terms) {
	a.Hold.Holder, a.Hold.Number, a.Hold.Waits = h.self(), t.Number, t.Waits
	if t.TTL > 0 {
		h.NameClient(a, ClientOf(a), t.TTL)
	}
}

// RecordGrant sets o to the hold that r granted to an ask of Name. This node sent the ask at the monotonic time
// sent. The caller must not change a.Limit afterwards. If a stand-in granted the hold, RecordGrant reports the
// hold to the owner. Without this report, the owner could grant the same units again until the next digest. After
// ReleaseAll, RecordGrant ends the hold at once.
func (h *Holds) RecordGrant(o *Hold, a *wire.Ask, r *wire.Result, sent int64) {
	o.ref, o.limit, o.partition, o.renewed = refOf(a), a.Limit, a.Partition, sent
	o.units.Store(a.Units)
	if r.Source == wire.Owner {
		h.table.recordGrant(o, o.holder)
	} else {
		v := h.cfg.Env.View()
		h.table.recordGrant(o, renewedAt(v, o))
		if r.StoodIn {
			h.reportHold(v, o)
		}
	}
	if !h.ending.Load() {
		return
	}
	if at, held := h.table.revoke(o); held { // ReleaseAll has missed the hold
		h.release(o, at)
	}
}

// Release ends the hold, which must belong to this node. It does not wait for other members: if the
// message is lost, the units return when the term of the hold ends. A second call has no effect.
func (h *Holds) Release(o *Hold) {
	if at, held := h.table.release(o); held {
		h.release(o, at)
	}
}

// ReleaseUnits gives back units of a hold of this node, and returns the number of units that the hold keeps. If
// the hold keeps none, it ends as by Release. Other members get the new number of units in a list of kindList,
// and never raise the units of an entry. If that message is lost, the next digest differs, and the list is sent.
func (h *Holds) ReleaseUnits(o *Hold, units int64) (left int64) {
	left, member := h.table.shrink(o, units)
	if left <= 0 {
		h.Release(o)
		return 0
	}
	v := h.cfg.Env.View()
	h.reportHold(v, o)
	if to, known := v.Named[member]; known && to != v.Self && to != v.RenewalRoute(o.id).To && v.Next[to] >= 0 {
		h.sendHold(v, o, to, v.Next[to])
	}
	return left
}

// release notifies other members of the end of a hold. These are the members that may have an entry
// of it: the member that answers for the count, and the given member, which has renewed the hold.
func (h *Holds) release(o *Hold, member uint64) {
	v := h.cfg.Env.View()
	if v.Settled && v.Holds(o.id) && member == v.Hashes[v.Self] {
		return // only this node has an entry
	}
	way := v.Route(o.id, h.cfg.Env.Monotonic())
	if way.To != v.Self && way.Way != view.NoWay {
		a := o.ask()
		h.cfg.Checks.Send(wire.OpRelease, &a)
	}
	if to, known := v.Named[member]; known && to != v.Self && to != way.To && v.Next[to] >= 0 {
		a := o.ask()
		b := wire.Header{Op: wire.OpRelease, Hops: wire.MaxHops, Asks: 1, To: member}.Append(nil)
		v.Members[v.Next[to]].Peer.Send(a.Append(b))
	}
}

// ask returns a new ask to release the hold.
func (o *Hold) ask() wire.Ask {
	return wire.Ask{
		ID: o.id, Limit: o.limit, Partition: o.partition, Units: o.units.Load(), Hold: wire.Hold{Holder: o.holder, Number: o.number},
	}
}

// ReleaseAll ends all holds of this process before the node ends. It sends the releases and the
// records of clients' holds that other members lack, and waits for at most endWait.
func (h *Holds) ReleaseAll() {
	h.ending.Store(true)
	ended := make(map[uint64][]*Hold) // holds by the member that renews them
	for shard := range shards {
		for _, o := range h.table.listOwn(nil, shard, func(*Hold) bool { return true }) {
			if at, held := h.table.revoke(o); held {
				ended[at] = append(ended[at], o)
			}
		}
	}
	v := h.cfg.Env.View()
	ctx, cancel := context.WithTimeout(h.cfg.Env.Context(), endWait)
	defer cancel()
	h.copyRecords(ctx)
	members := slices.Collect(maps.Keys(ended))
	env.Gather(len(members), callsAtOnce, func(i int) {
		h.sendList(ctx, v, members[i], kindEnded, ended[members[i]], func([]*Hold) {})
	})
}

// Do executes an operation on holds, within the units that this node may grant. The result is
// Unknown if this node does not have the information for op yet (KnowsHolds). Learn asks the other
// members for it.
func (h *Holds) Do(v *view.View, as view.Standing, op wire.Op, a *wire.Ask, now int64, r *wire.Result) {
	r.StoodIn = as != view.AsOwner
	most, denied := int64(-1), false
	if r.Source = wire.Owner; as != view.AsOwner || !v.Complete {
		var s view.Share
		s, r.Source = v.Share(as, a.ID, a.Partition)
		if denied = r.Source == wire.FailedClosed; !s.All {
			part := s.Limit(a.Limit)
			most = part.Rate
		}
	}
	switch {
	case op == wire.OpRelease && isClients(a):
		ttl := tombstoneTTL{known: cutFound, unknown: int64(a.Hold.TTL)}
		if as != view.AsOwner || !h.knowsAll(a.ID, now) {
			ttl.known = int64(a.Hold.TTL) // another member may have renewed the hold later
		}
		if a.Hold.Denied {
			ttl.unknown = 0 // the hold was not granted, unless this member knows of it
		}
		h.table.bury(refOf(a), ttl, now)
		r.Allowed = true
	case op == wire.OpRelease:
		h.table.end(refOf(a))
	case denied:
		refuse(r)
	case h.isLate(a.Hold.ClusterAge, h.cfg.Timeout): // the asking node no longer waits
		r.RetryAfter = denyFor
	case op == wire.OpPeek:
		h.table.peek(a, most, a.Peek.Latest, now, r)
		r.Unknown = !h.KnowsHolds(v, as, op, a, now)
	case !h.KnowsHolds(v, as, op, a, now):
		r.Unknown, r.RetryAfter = true, denyFor
	case op == wire.OpExtend:
		certain := as == view.AsOwner
		if _, lacks := h.lacksRecord(v, op, a); certain && lacks {
			_, certain = h.table.findRequest(refOf(a), now)
		} else if as == view.AsStandIn {
			_, certain = h.table.findRequest(ref{id: a.ID}, now)
		}
		h.table.extend(a, certain && v.HasMajority(), now, r)
	default:
		h.table.hold(a, most, a.Hold.Waits, now, r)
	}
	if op == wire.OpExtend && r.Allowed {
		return
	}
	r.ResetAfter = r.RetryAfter // no time is known at which all units are released
}

// refuse denies a request, because the limit is FailClosed and this node has no share of it.
func refuse(r *wire.Result) {
	r.Result, r.Source = bucket.Result{RetryAfter: view.OutageRetry, ResetAfter: view.OutageRetry}, wire.FailedClosed
}

// Run renews the holds of this node, and removes entries that other nodes have not renewed, until
// the life of the node ends. It rests until the table is first used.
func (h *Holds) Run() {
	tick := time.NewTimer(renewEvery + h.cfg.Env.View().Offset(renewEvery))
	defer tick.Stop()
	for rests := false; ; {
		select {
		case <-tick.C:
			tick.Reset(renewEvery)
		case <-h.wake: // another member may have to renew holds
		case <-h.table.begins:
		case <-h.cfg.Env.Done():
			return
		}
		if !h.table.used.Load() {
			rests = true
			tick.Stop()
			continue
		}
		if rests {
			rests = false
			tick.Reset(renewEvery)
			if now := h.cfg.Env.Monotonic(); len(h.known.load()) == 0 {
				h.looked.Store(now) // the last round is long ago because Run has rested, and not because this node was frozen
			}
		}
		h.look()
	}
}

// look runs a round of Run.
func (h *Holds) look() {
	v, now := h.cfg.Env.View(), h.cfg.Env.Monotonic()
	if h.isFrozen(now) {
		h.known.forget() // other members may have answered for the ranges of this node
	}
	h.looked.Store(now)
	var (
		found found
		self  = h.self()
		since = now - max(int64(staleAfter), 2*int64(h.cfg.Timeout)) // a grant arrives within two Timeouts, so an older entry is known to its holder
		to    = make(map[uint64][]shardDigest)
	)
	used := shards
	if !h.table.used.Load() {
		used = 0 // most nodes have no such limit, and should not lock each shard every second
	}
	for shard := range used {
		for !h.table.look(shard, v, now, since, &found) {
		}
		h.table.digests(shard, func(d *digest) {
			switch d.node {
			case 0:
			case self:
				d.renewed = now
			default:
				to[d.node] = append(to[d.node], shardDigest{shard, d.sum})
			}
		})
	}
	h.lost.Add(uint64(found.lost))
	if len(to) == 0 && len(found.stale) == 0 {
		return
	}
	members := slices.Collect(maps.Keys(to))
	if !h.busy.CompareAndSwap(false, true) {
		return // the messages of an earlier round are still being sent
	}
	if !h.cfg.Env.Try(func(context.Context) {
		defer h.busy.Store(false)
		env.Gather(len(members), callsAtOnce, func(i int) { h.renew(v, members[i], to[members[i]], now) })
		h.confirm(v, found.stale, since)
	}) {
		h.busy.Store(false)
	}
}

// isFrozen reports whether Run is so late that this node may have been frozen.
func (h *Holds) isFrozen(now int64) bool { return now-h.looked.Load() > int64(late) }

func (h *Holds) self() uint64 { return selfOf(h.cfg.Env.View()) }

// refOf returns the name of the hold in an ask.
func refOf(a *wire.Ask) ref { return ref{a.ID, a.Hold.Holder, a.Hold.Number} }
