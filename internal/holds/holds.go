// Package holds counts the holds of InFlight limits: units that come back as they are released,
// and not with time.
//
// The member that answers for a count knows each of its holds, and grants no more than the limit.
// A hold of a process is a fact that one node knows at first hand, the holder, and that node
// vouches for it:
//
//   - A holder sends each member once a second a digest of each shard of its holds there. Where
//     digests differ, it sends the list. So an entry that was missed comes.
//   - A member asks the holders of the entries that were not renewed lately to confirm them. So
//     an entry ends of which the release was lost, or went to a member that answered before.
//   - A holder gives up a hold that no member has renewed for Term before the others do.
//
// A client's hold is a record, which no node vouches for:
//
//   - Its name is the name in the client's text. It never changes, whichever node renews it.
//   - Members merge replicas of it. A release wins, then the later renewal (record.merge).
//   - It ends at its expiry, exactly: each op on a count first ends the records that are due.
//   - Each member that has a record sends it to those that are to have it, until they have
//     acknowledged it: the member that answers for the count, or from there the successors and the
//     node that asked for the hold. So it survives as long as one member that is reached has it.
//   - A member refuses a message about it that was under way for long (isLate): the time until the
//     expiry counts from the arrival. The sender repeats what is still true.
//   - It is granted, renewed or released once a second member has the record, if one is reached.
//   - A record that has ended stays until the latest expiry that it ever had: no late replica
//     revives it. A released one stays for LongestTerm if its member does not know all of the
//     count, or misses another member later (keepApart), as others may have renewed it.
//
// Both count alike:
//
//   - A member that has come to answer for a count first asks all others for its holds, and grants
//     nothing before.
//   - A hold is named by its first node and a number, so that a hold which two members report, or
//     which is granted twice, counts once.
//   - A grant that comes too late is kept while its hold is still asked for, here or elsewhere, and
//     released after that if it is not held.
//   - No hold is revoked. One that a member reports is never refused for being above the limit:
//     nothing new is granted until there is room.
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
	// Term is for how long a hold of a process stays that its holder does not renew.
	Term = 10 * time.Second
	// renewEvery is the time between two digests to a member.
	renewEvery = time.Second
	// renewWait is how long a member may take to answer one.
	renewWait = time.Second / 2
	// staleAfter is how long an entry may lack a renewal until its holder is asked to confirm it.
	// A live hold is renewed before.
	staleAfter = renewEvery + renewWait
	// endWait is how long a node that ends waits until others know what it holds no more.
	endWait = time.Second / 4
	// callsAtOnce bounds the members that are asked at a time.
	callsAtOnce = 64
	// denyFor is the RetryAfter of a denial: units come back at any time.
	denyFor = 10 * time.Millisecond
	// knownFor is how long a stand-in goes by what the members have told it, at least.
	knownFor = 100 * time.Millisecond
)

// Config is what a Holds needs of its node.
type Config struct {
	Env     *env.Env
	Checks  env.Checks
	Timeout time.Duration
	Cluster ClusterAge
	Most    int         // holds that are known of at most
	Box     *sealed.Box // seals the texts of clients' holds
}

// ClusterAge returns for how long the cluster has run, as far as this node knows.
type ClusterAge interface {
	Age() time.Duration
	// Date is Age, or 0 if another member may state a much higher age.
	Date() time.Duration
}

// Holds is what this node holds, and what it knows that is held of the counts that it answers
// for.
type Holds struct {
	cfg    Config
	table  *table
	number atomic.Uint64
	wake   chan struct{} // the view has changed
	looked atomic.Int64  // when Run last looked, by the monotonic clock
	busy   atomic.Bool   // members are being told
	lost   atomic.Uint64
	known  known
	copies copies
}

// Stats says what is held.
type Stats struct {
	Held  int    // holds of this process, and clients' holds that this node asked for
	Known int    // holds of all nodes that this node knows, as it answers for their counts or has replicas
	Lost  uint64 // holds of this process that ended as no member renewed them; it only grows
}

// New returns a Holds that nothing is held of.
func New(c Config) *Holds {
	h := &Holds{cfg: c, table: newTable(c.Most, c.Cluster.Age), wake: make(chan struct{}, 1), copies: copies{turn: make(chan struct{}, 1)}}
	h.number.Store(rand.Uint64())
	return h
}

// Stats returns what is held now.
func (h *Holds) Stats() Stats {
	held, known := h.table.count(h.self())
	return Stats{held, known, h.lost.Load()}
}

// Number returns that of a new hold.
func (h *Holds) Number() uint64 { return h.number.Add(1) }

// Name makes a an ask for the hold of this node that has the number. A waiting caller uses the
// same number in each ask until the hold is granted.
func (h *Holds) Name(a *wire.Ask, number uint64) {
	a.Hold.Holder, a.Hold.Number = h.self(), number
}

// Has sets o to the hold that r granted to an ask of Name. This node sent the ask at the monotonic time sent.
// The caller must not change a.Limit afterwards. If a stand-in granted the hold, Has reports the hold to the
// owner, because the owner would grant the same units until the next digest.
func (h *Holds) Has(o *Hold, a *wire.Ask, r *wire.Result, sent int64) {
	o.ref, o.units, o.limit, o.partition, o.renewed = refOf(a), a.Units, a.Limit, a.Partition, sent
	if r.Source == wire.Owner {
		h.table.has(o, o.holder)
		return
	}
	v := h.cfg.Env.View()
	h.table.has(o, renewedAt(v, o))
	if r.StoodIn {
		h.report(v, o)
	}
}

// Release ends a hold of this node. It waits for nobody: where what it says is lost, the
// units come back as the hold's term is over. To end it again does nothing.
func (h *Holds) Release(o *Hold) {
	if at, held := h.table.release(o); held {
		h.release(o, at)
	}
}

// release tells the other members that may have an entry for a hold that it has ended: the one
// that answers for the count, and the one that has renewed it.
func (h *Holds) release(o *Hold, at uint64) {
	v := h.cfg.Env.View()
	if v.Settled && v.Holds(o.id) && at == v.Hashes[v.Self] {
		return // no other has
	}
	way := v.Route(o.id, h.cfg.Env.Monotonic())
	if way.To != v.Self && way.Way != view.NoWay {
		a := o.ask()
		h.cfg.Checks.Tell(wire.OpRelease, &a)
	}
	if to, known := v.Named[at]; known && to != v.Self && to != way.To && v.Next[to] >= 0 {
		a := o.ask()
		b := wire.Header{Op: wire.OpRelease, Hops: wire.MaxHops, Asks: 1, To: at}.Append(nil)
		v.Members[v.Next[to]].Peer.Tell(a.Append(b))
	}
}

// ask is what releases a hold.
func (o *Hold) ask() wire.Ask {
	return wire.Ask{
		ID: o.id, Limit: o.limit, Partition: o.partition, Units: o.units, Hold: wire.Hold{Holder: o.holder, Number: o.number},
	}
}

// ReleaseAll ends all holds of this process, as the node is about to end, and sends the members
// their releases, and the records that they lack. It waits for no more than a moment.
func (h *Holds) ReleaseAll() {
	ended := make(map[uint64][]*Hold) // by the member that they are renewed at
	for shard := range shards {
		for _, o := range h.table.own(nil, shard, func(*Hold) bool { return true }) {
			if at, held := h.table.release(o); held {
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
		h.list(ctx, v, members[i], kindEnded, ended[members[i]], func([]*Hold) {})
	})
}

// Do executes an operation on holds, within the units that this node may grant. The result is Unknown if
// this node does not know yet which holds of the count there are: Learn asks the other members.
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
			ttl.known = int64(a.Hold.TTL) // another member may have renewed it
		}
		if a.Hold.Denied {
			ttl.unknown = 0 // it was not granted, unless this member knows of it
		}
		h.table.bury(refOf(a), ttl, now)
		r.Allowed = true
	case op == wire.OpRelease:
		h.table.end(refOf(a))
	case denied:
		refuse(r)
	case h.isLate(a.Hold.ClusterAge, h.cfg.Timeout): // its asker has given up
		r.RetryAfter = denyFor
	case op == wire.OpPeek:
		h.table.peek(a, most, a.Peek.Latest, now, r)
		r.Unknown = !h.Knows(v, as, op, a)
	case !h.Knows(v, as, op, a):
		r.Unknown, r.RetryAfter = true, denyFor
	case op == wire.OpExtend:
		certain := as == view.AsOwner
		if _, lacks := h.lacks(v, op, a); certain && lacks {
			_, certain = h.table.knows(refOf(a), now)
		} else if as == view.AsStandIn {
			_, certain = h.table.knows(ref{id: a.ID}, now)
		}
		h.table.extend(a, certain && v.HasMajority(), now, r)
	default:
		h.table.hold(a, most, a.Hold.Waits, now, r)
	}
}

// refuse denies a hold that no member may grant.
func refuse(r *wire.Result) {
	r.Result, r.Source = bucket.Result{RetryAfter: view.OutageRetry, ResetAfter: view.OutageRetry}, wire.FailedClosed
}

// Run renews what this node holds, and forgets what others have not renewed, until the
// node's life ends. It rests until the first hold.
func (h *Holds) Run() {
	tick := time.NewTimer(renewEvery + h.cfg.Env.View().Offset(renewEvery))
	defer tick.Stop()
	for rests := false; ; {
		select {
		case <-tick.C:
			tick.Reset(renewEvery)
		case <-h.wake: // holds may have to be renewed elsewhere
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
				h.looked.Store(now) // Run was not late
			}
		}
		h.look()
	}
}

// look is one turn of Run.
func (h *Holds) look() {
	v, now := h.cfg.Env.View(), h.cfg.Env.Monotonic()
	if h.frozen(now) {
		h.known.forget() // others may have answered for what this node has
	}
	h.looked.Store(now)
	var (
		found found
		self  = h.self()
		since = now - max(int64(staleAfter), 2*int64(h.cfg.Timeout)) // what is granted reaches its holder before
		to    = make(map[uint64][]shardDigest)
	)
	used := shards
	if !h.table.used.Load() {
		used = 0 // most nodes have no such limit, and lock no shard twice a second
	}
	for shard := range used {
		for !h.table.look(shard, v, now, since, &found) {
		}
		h.table.digests(shard, func(d *digest) {
			switch d.of {
			case 0:
			case self:
				d.renewed = now
			default:
				to[d.of] = append(to[d.of], shardDigest{shard, d.sum})
			}
		})
	}
	h.lost.Add(uint64(found.lost))
	if len(to) == 0 && len(found.stale) == 0 {
		return
	}
	members := slices.Collect(maps.Keys(to))
	if !h.busy.CompareAndSwap(false, true) {
		return // what they are told is no older than renewWait
	}
	if !h.cfg.Env.Try(func(context.Context) {
		defer h.busy.Store(false)
		env.Gather(len(members), callsAtOnce, func(i int) { h.renew(v, members[i], to[members[i]], now) })
		h.confirm(v, found.stale, since)
	}) {
		h.busy.Store(false)
	}
}

// frozen reports whether Run is so late that this node may have been frozen.
func (h *Holds) frozen(now int64) bool { return now-h.looked.Load() > int64(late) }

func (h *Holds) self() uint64 { return selfOf(h.cfg.Env.View()) }

// refOf names the hold of an ask.
func refOf(a *wire.Ask) ref { return ref{a.ID, a.Hold.Holder, a.Hold.Number} }
