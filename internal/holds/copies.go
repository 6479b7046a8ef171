package holds

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

const (
	// copyPause is the minimum time between two rounds of copying, in which changes accumulate.
	copyPause = 20 * time.Millisecond
	// copyRetry is the time after which a record is sent again that a member has not acknowledged.
	copyRetry = time.Second
	// leaveWait is how long a node that leaves waits until the members have acknowledged its
	// records.
	leaveWait = 5 * time.Second
	// copyShards is the number of shards that are gathered at once.
	copyShards = 16
)

// copies is the state of copying records to their keepers. A round waits for members, so it holds
// the turn and not a mutex.
type copies struct {
	turn chan struct{} // contains a value during a round
	view *view.View    // the view of the last round, nil after failures: in the same view, a round copies only changed records
}

// keepers appends the members that should have a replica of a record of this node. This is the
// member that answers for the count. If this node answers, the keepers are the successors, and the
// node that asked for the hold, which has the record from the beginning. Keepers that are not
// reached get the record when they are reached. While no keeper is reached, another member gets the
// record.
func (h *Holds) keepers(dst []uint64, v *view.View, name *ref) []uint64 {
	self := selfOf(v)
	answers := v.Answers(name.id)
	switch {
	case answers == 0:
	case answers != self:
		dst = append(dst, answers)
	default:
		dst = v.Targets(dst, name.id)
		if !slices.Contains(dst, name.holder) {
			dst = append(dst, name.holder)
		}
	}
	dst = slices.DeleteFunc(dst, func(m uint64) bool {
		i, known := v.Named[m]
		return !known || !isOther(v, i)
	})
	for i := 0; i < len(v.Hashes) && len(dst) == 0; i++ {
		if isOther(v, i) {
			dst = append(dst, v.Hashes[i])
		}
	}
	return dst
}

// isOther reports whether member i is another member that this node reaches.
func isOther(v *view.View, i int) bool { return i != v.Self && v.Next[i] >= 0 }

// queueCopy queues a record for copying. The caller must hold s.mu.
func (s *shard) queueCopy(r *record) {
	if !r.queued {
		r.queued = true
		s.changes = append(s.changes, r.ref)
	}
	env.Signal(s.signal)
}

// RunCopies copies records until the life of the node ends.
func (h *Holds) RunCopies() {
	again := time.NewTimer(copyRetry) // runs while a record is not acknowledged
	again.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	defer again.Stop()
	for {
		select {
		case <-h.table.changed:
		case <-again.C:
		case <-h.cfg.Env.Done():
			return
		}
		if !h.table.used.Load() {
			continue
		}
		if h.copyRecords(h.cfg.Env.Context()) > 0 {
			again.Reset(copyRetry)
		}
		pause.Reset(copyPause)
		select {
		case <-pause.C:
		case <-h.cfg.Env.Done():
			return
		}
	}
}

// ErrUncopied is the error of Leave if this node may have the only replicas of clients' holds.
var ErrUncopied = errors.New("weir: leaving: other members have not acknowledged all holds of clients: call Leave again to wait longer")

// Leave sends a copy of each record to the members that will answer for its count after this node
// has left. It takes at most leaveWait. The error is ErrUncopied, cluster.ErrClosed or the error of
// ctx.
func (h *Holds) Leave(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, leaveWait)
	defer cancel()
	for h.copyRecords(bounded) > 0 {
		select {
		case <-time.After(copyPause):
		case <-bounded.Done():
			return cmp.Or(ctx.Err(), ErrUncopied)
		case <-h.cfg.Env.Done():
			return cluster.ErrClosed
		}
	}
	return nil
}

// copyRecords runs a round: it sends the records that have changed. After a change of the view or a round with
// failures, it sends all records that their keepers have not acknowledged. It returns
// the number of records that were not acknowledged, or 1 if ctx is done before the round begins.
func (h *Holds) copyRecords(ctx context.Context) (failed int) {
	select {
	case h.copies.turn <- struct{}{}:
		defer func() { <-h.copies.turn }()
	case <-ctx.Done():
		return 1
	}
	v := h.cfg.Env.View()
	all := h.copies.view != v
	silent := make(map[uint64]bool) // the members that have not answered in this round
	for first := 0; first < shards; first += copyShards {
		g := gathering{h: h, v: v, indexes: make(map[uint64][]int)}
		for shard := first; shard < first+copyShards; shard++ {
			g.gather(shard, all)
		}
		failed += g.send(ctx, silent)
	}
	if h.copies.view = v; failed > 0 {
		h.copies.view = nil
	}
	return failed
}

// gathering contains the records of some shards that are to be sent.
type gathering struct {
	h       *Holds
	v       *view.View
	records []record
	state   []uint64         // the copyState of each record once all members have acknowledged the record
	failed  []bool           // whether a member has not acknowledged the record
	indexes map[uint64][]int // for each member, the indexes of its records
	room    [8]uint64
}

// gather adds the records of a shard that have changed. If all is set, it also adds the other records
// that their keepers have not acknowledged.
func (g *gathering) gather(shard int, all bool) {
	t := g.h.table
	s := t.lockShard(shard)
	changes := s.changes
	s.changes = nil
	s.mu.Unlock()
	for chunk := range slices.Chunk(changes, lookAtOnce) {
		s.mu.Lock()
		for _, name := range chunk {
			if r := s.record(name); r != nil {
				r.queued = false
				g.add(r)
			}
		}
		s.mu.Unlock()
	}
	if !all {
		return
	}
	for before := math.MaxInt; before > 0; {
		before = t.visitRecords(shard, before, countsync.All(), g.add)
	}
}

// add adds a record unless its keepers have acknowledged it. The caller must hold the lock of the
// shard.
func (g *gathering) add(r *record) {
	members := g.h.keepers(g.room[:0], g.v, &r.ref)
	state := r.copyState(members)
	if len(members) == 0 || r.copied == state {
		return
	}
	for _, m := range members {
		g.indexes[m] = append(g.indexes[m], len(g.records))
	}
	g.records, g.state, g.failed = append(g.records, *r), append(g.state, state), append(g.failed, false)
}

// send sends the records, and returns the number of records that at least one of their members has not
// acknowledged.
func (g *gathering) send(ctx context.Context, silent map[uint64]bool) (failed int) {
	members := slices.Collect(maps.Keys(g.indexes))
	sent := make([]int, len(members)) // the number of records that each member has acknowledged
	env.Gather(len(members), callsAtOnce, func(i int) {
		if !silent[members[i]] {
			sent[i] = g.sendTo(ctx, members[i])
		}
	})
	for i, m := range members {
		rest := g.indexes[m][sent[i]:]
		for _, at := range rest {
			g.failed[at] = true
		}
		if len(rest) > 0 {
			silent[m] = true
		}
	}
	for i := range g.records {
		if g.failed[i] {
			failed++
			continue
		}
		g.h.table.acknowledge(&g.records[i], g.state[i])
	}
	return failed
}

// sendTo sends the records for a member, and returns how many of them the member has
// acknowledged.
func (g *gathering) sendTo(ctx context.Context, member uint64) (acknowledged int) {
	list := g.indexes[member]
	for acknowledged < len(list) {
		page := list[acknowledged:]
		now := g.h.cfg.Env.Monotonic()
		body, n := beginRecords(selfOf(g.v), g.h.cfg.Cluster.Date()), 0
		for ; n < len(page) && len(body) < pageBytes; n++ {
			body = appendRecord(body, &g.records[page[n]], now)
		}
		if !g.h.sendRecords(ctx, g.v, member, body) {
			return acknowledged
		}
		acknowledged += n
	}
	return acknowledged
}

// sendRecords sends a message of records, and reports whether the member has acknowledged the
// message.
func (h *Holds) sendRecords(ctx context.Context, v *view.View, member uint64, body []byte) bool {
	answer, err := h.call(ctx, v, member, wire.OpRenew, body, renewWait)
	if err != nil {
		return false
	}
	now := h.cfg.Env.Monotonic()
	m, err := parseRenew(append(beginRecords(member, 0), answer...), now)
	if err != nil {
		return false
	}
	h.mergeFrom(member, m.records, now)
	return true
}

// acknowledge marks a record as acknowledged by its keepers. The argument sent is the record that was sent, and
// state is its copyState. A record that has changed since then is sent again.
func (t *table) acknowledge(sent *record, state uint64) {
	s := t.lock(sent.id)
	defer s.mu.Unlock()
	if r := s.record(sent.ref); r != nil && r.sameState(sent) {
		r.copied = state
	}
}

// mergeFrom merges records that a member has sent, and marks them as acknowledged by this member.
func (h *Holds) mergeFrom(member uint64, records []record, now int64) {
	for i := range records {
		records[i].copied = records[i].copyState([]uint64{member})
		h.table.merge(records[i], now)
	}
}

// serveRecords merges the records of a message. It appends each merged record that has a later renewal or fewer
// units than the sent record, or a release that the sent record lacks.
func (h *Holds) serveRecords(m *renewMessage, dst []byte, now int64) []byte {
	for i := range m.records {
		in := &m.records[i]
		in.copied = in.copyState([]uint64{m.holder})
		if joined, kept := h.table.merge(*in, now); kept && !joined.sameState(in) {
			dst = appendRecord(dst, &joined, now)
		}
	}
	return dst
}

// secure sends a record of this node to its keepers and to the targets of the count
// (view.View.Targets). It returns once one member has acknowledged the record, all requests have
// ended, or ctx is done.
func (h *Holds) secure(ctx context.Context, name ref) {
	v, now := h.cfg.Env.View(), h.cfg.Env.Monotonic()
	r, known := h.table.recordOf(name)
	if !known {
		return
	}
	members := h.keepers(nil, v, &name)
	for _, m := range v.Targets(nil, name.id) {
		if !slices.Contains(members, m) {
			members = append(members, m)
		}
	}
	body := appendRecord(beginRecords(selfOf(v), h.cfg.Cluster.Date()), &r, now)
	answers, asked := make(chan bool, len(members)), 0
	for _, m := range members {
		if h.cfg.Env.Try(func(ctx context.Context) { answers <- h.sendRecords(ctx, v, m, body) }) {
			asked++
		}
	}
	for range asked {
		select {
		case acknowledged := <-answers:
			if acknowledged {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// recordOf returns a copy of a record.
func (t *table) recordOf(name ref) (r record, known bool) {
	s := t.lock(name.id)
	defer s.mu.Unlock()
	if p := s.record(name); p != nil {
		return *p, true
	}
	return r, false
}
