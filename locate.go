package weir

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// Authority that a node waits for comes when its holder gives it, however long that
// takes: a holder far away with many counts is slow, and not wrong. So no wait ends by
// time. Instead, a node that has waited for locateEvery asks all members which of the
// ranges they have, and asks again for as long as it waits:
//
//	request  asker 8 | ranges | for each: first 8, last 8
//	answer   unclear 1 | ranges
//
// A range that some member has is waited for from that one. A range that no member
// has, by the word of all that are not away, is authority that was lost: the asker
// takes it, as it takes what a member had that is gone. Only the node to which the
// ring gives a range takes it, and a member whose ring gives it to another does not
// answer: nothing is taken until all agree on whose it is. So nobody takes what is held
// by a member that it does not know yet, but whoever gave it to that one does; and of
// two that wait for one range, as their rings differ, neither takes it.
const (
	// locateEvery is the time between two rounds of asking, unless one takes longer.
	// A hand-over in good health takes less.
	locateEvery = 250 * time.Millisecond
	// locateWait is how long a member may take to answer.
	locateWait = time.Second
	// movingFor is how long a member says of what it has given that it has it: longer
	// than a round takes, so that authority on its way between two members is not
	// missed at both.
	movingFor = 3 * time.Second
)

// location is what one member has said.
type location struct {
	member  countsync.Member
	has     countsync.Ranges
	unclear bool // of the rest it does not know whether a member has it that was missing until just now
}

// awaited is what this node owns and waits for.
func (v *view) awaited() (ranges countsync.Ranges) {
	if v.settled {
		return nil
	}
	for _, w := range v.waits {
		ranges = ranges.Union(w.ranges.Intersect(v.want))
	}
	return ranges
}

// locate asks who has what this node waits for, when that is due. It is called by
// keepInStep, for which nothing here waits.
func (n *Node) locate(v *view) {
	s, now := n.stream, n.steady()
	ranges := v.awaited()
	if len(ranges) == 0 || s.waiting == 0 {
		s.waiting, s.located, s.warned = now, now, false
		return
	}
	if waited := time.Duration(now - s.waiting); waited >= patience && !s.warned {
		s.warned = true
		n.cfg.Logger.Warn("authority over keys that this node owns has not come yet: it passes their checks on until it has",
			"waited", waited.Round(time.Second).String(), "members", v.givers())
	}
	if now-s.located < int64(locateEvery) || !s.locating.CompareAndSwap(false, true) {
		return
	}
	s.located = now
	if !n.background(func(ctx context.Context) {
		defer s.locating.Store(false)
		n.locateNow(ctx, v, ranges)
	}) {
		s.locating.Store(false)
	}
}

// givers are the members that this node waits for, sorted.
func (v *view) givers() (names []string) {
	for _, w := range v.waits {
		if w.from != "" && len(w.ranges.Intersect(v.want)) > 0 {
			names = append(names, w.from)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// locateNow asks all members, and has the view follow from what they say.
func (n *Node) locateNow(ctx context.Context, v *view, ranges countsync.Ranges) {
	said := make([]*location, len(v.Members))
	var asks errgroup.Group
	asks.SetLimit(callsAtOnce)
	for i := range v.Members {
		if v.answersLocate(i) && v.reaches(i) {
			asks.Go(func() error {
				said[i] = n.askLocate(ctx, v, i, ranges)
				return nil
			})
		}
	}
	_ = asks.Wait() // they return no errors
	said = slices.DeleteFunc(said, func(l *location) bool { return l == nil })
	n.stream.swap.Lock()
	defer n.stream.swap.Unlock()
	before := n.view.Load()
	if next := before.told(said, ranges, n.steady()); next != before {
		n.replace(next)
	}
}

// answersLocate reports whether one of Members has a say in who has what: a joiner has
// nothing, nor does a member that nobody has heard for a second. While one of these is
// missing from the ring, its absence makes all unclear.
func (v *view) answersLocate(i int) bool {
	return i != v.Self && v.Members[i].Announced != cluster.Joining && !v.away[i]
}

// askLocate asks one member, directly or through others; nil if it has not answered.
func (n *Node) askLocate(ctx context.Context, v *view, i int, ranges countsync.Ranges) *location {
	request := wire.Header{Op: wire.OpLocate, Hops: wire.MaxHops, Wait: locateWait / 2, To: v.hashes[i]}.Append(nil)
	request = binary.LittleEndian.AppendUint64(request, v.hashes[v.Self])
	answer, err := v.Members[v.next[i]].Peer.Ask(ctx, appendHashes(request, ranges), nil, locateWait)
	if err != nil {
		return nil
	}
	if s, err := wire.ParseAnswer(answer, 0); err != nil || s != wire.Done || len(answer) == wire.AnswerHeaderBytes {
		return nil
	}
	has, err := parseHashes(answer[wire.AnswerHeaderBytes+1:])
	if err != nil {
		return nil
	}
	return &location{member: v.hashes[i], has: has, unclear: answer[wire.AnswerHeaderBytes] != 0}
}

// serveLocate answers askLocate. What this node was to take later, as nobody was known
// to have it, is the asker's to take from here on, and not this node's.
func (n *Node) serveLocate(body, dst []byte) []byte {
	if len(body) < 8 {
		return nil
	}
	ranges, err := parseHashes(body[8:])
	if err != nil {
		return nil
	}
	s := n.stream
	s.swap.Lock()
	defer s.swap.Unlock()
	v, now := n.view.Load(), n.steady()
	if !v.grants(binary.LittleEndian.Uint64(body), ranges) {
		return wire.AppendAnswer(dst, wire.Unreached, 0)
	}
	has := v.has(ranges, now, func(to countsync.Member) bool { return s.Stream != nil && s.Lag(to, n.now()).Giving })
	if next := v.unclaimed(ranges.Minus(has)); next != v {
		n.replace(next)
	}
	dst = wire.AppendAnswer(dst, wire.Done, 0)
	unclear := byte(0)
	if v.unclear(ranges, now) {
		unclear = 1
	}
	return appendHashes(append(dst, unclear), has)
}

// grants reports whether the ring gives these ranges to a member, as that one's does.
func (v *view) grants(member countsync.Member, ranges countsync.Ranges) bool {
	i, known := v.named[member]
	return known && slices.Contains(v.points, i) && len(ranges.Minus(v.owned(i))) == 0
}

// has is what of these ranges this node holds, is giving away or gave just now. giving
// reports whether a member has yet to take what it was given.
func (v *view) has(ranges countsync.Ranges, now int64, giving func(to countsync.Member) bool) countsync.Ranges {
	var has countsync.Ranges
	if !v.yields() {
		has = v.held
	}
	for _, w := range v.gave {
		if now < w.until-int64(patience-movingFor) || giving(nameHash(w.from)) {
			has = has.Union(w.ranges)
		}
	}
	return has.Intersect(ranges)
}

// unclear reports whether a member that this node did not hear until just now may have
// what it has not.
func (v *view) unclear(ranges countsync.Ranges, now int64) bool {
	return v.scattered(now) || len(v.abandoned.Intersect(ranges)) > 0
}

// unclaimed is the view in which this node does not take ranges, in a moment or when
// it is clear that nobody has them.
func (v *view) unclaimed(ranges countsync.Ranges) *view {
	next, changed := *v, len(v.claims.Intersect(ranges)) > 0
	next.claims, next.waits, next.recalls = v.claims.Minus(ranges), nil, false
	for _, w := range v.waits {
		if w.from == "" && len(w.ranges.Intersect(ranges)) > 0 {
			w.ranges, changed = w.ranges.Minus(ranges), true
		}
		if len(w.ranges) > 0 {
			next.waits = append(next.waits, w)
		}
	}
	if !changed {
		return v
	}
	return &next
}

// told is the view that follows from what members have said of ranges; v itself if
// nothing does.
func (v *view) told(said []*location, ranges countsync.Ranges, now int64) *view {
	of := make(map[countsync.Member]*location, len(said))
	nowhere, unclear := ranges.Intersect(v.awaited()), v.scattered(now)
	for _, l := range said {
		of[l.member] = l
		nowhere = nowhere.Minus(l.has)
		unclear = unclear || l.unclear
	}
	for i, m := range v.hashes {
		if v.answersLocate(i) && of[m] == nil {
			nowhere = nil // it may have what the others have not
		}
	}
	for _, w := range v.waits {
		if w.from == "" {
			nowhere = nowhere.Minus(w.ranges) // that is known
		}
	}
	next, changed := *v, len(nowhere) > 0
	next.waits, next.recalls = nil, len(nowhere) > 0
	for _, w := range v.waits {
		w.ranges = w.ranges.Minus(nowhere)
		elsewhere := w.ranges.Intersect(v.want)
		if l := of[nameHash(w.from)]; l != nil {
			elsewhere = elsewhere.Minus(l.has)
		}
		for _, l := range said {
			i, known := v.named[l.member]
			part := elsewhere.Intersect(l.has)
			if !known || len(part) == 0 {
				continue
			}
			next.waits = append(next.waits, wait{ranges: part, from: v.Members[i].Name, until: forever})
			w.ranges, elsewhere, changed = w.ranges.Minus(part), elsewhere.Minus(part), true
		}
		if len(w.ranges) > 0 {
			next.waits = append(next.waits, w)
		}
	}
	switch {
	case !changed:
		return v
	case len(nowhere) == 0:
	case unclear:
		if !v.scattered(now) { // what may have happened a member that does not know it has just said
			next.back = slices.Clone(v.back)
			next.heal(said[slices.IndexFunc(said, func(l *location) bool { return l.unclear })].member, now)
		}
		next.abandoned, next.claims = v.abandoned.Union(nowhere), v.claims.Union(nowhere)
	default:
		next.waits = append(next.waits, wait{ranges: nowhere, until: now + int64(holdDown)})
	}
	next.gave = nil
	for _, w := range v.gave {
		if w.ranges = w.ranges.Minus(nowhere); len(w.ranges) > 0 {
			next.gave = append(next.gave, w)
		}
	}
	return &next
}

func appendHashes(b []byte, ranges countsync.Ranges) []byte {
	for _, r := range ranges {
		b = binary.LittleEndian.AppendUint64(b, r.First)
		b = binary.LittleEndian.AppendUint64(b, r.Last)
	}
	return b
}

func parseHashes(b []byte) (countsync.Ranges, error) {
	if len(b)%16 != 0 {
		return nil, wire.ErrMalformed
	}
	ranges := make([]countsync.Range, 0, len(b)/16)
	for ; len(b) > 0; b = b[16:] {
		r := countsync.Range{First: binary.LittleEndian.Uint64(b), Last: binary.LittleEndian.Uint64(b[8:])}
		if r.First > r.Last {
			return nil, wire.ErrMalformed
		}
		ranges = append(ranges, r)
	}
	return countsync.NewRanges(ranges...), nil
}
