package countsync

import (
	"encoding/binary"
	"math"

	"github.com/weir-go/weir/bucket"
)

// A copy of a holding contains the data that its successor needs, little-endian; numbers without
// a width are unsigned varints:
//
//	limit | series | number of accounts
//	for each account: granted | grantedTo 8 | grantedUntil | moved | heard | received | receivedUntil | owes | number
//
// In the place of each time, the format has the duration until that time.

// maxRegions is the maximum number of accounts in a copy.
const maxRegions = 1024

// appendCopy appends a copy of the holding of id. appendCopy appends nothing if there is no
// holding, if the holding is unsure, or if no member would accept its limit.
func (h *Holdings) appendCopy(b []byte, id bucket.ID, known *limits) []byte {
	if h == nil {
		return b
	}
	monotonic := h.monotonic.Load()
	sh := h.lock(id)
	defer sh.mu.Unlock()
	x := sh.byID[id]
	if x == nil || x.unsure {
		return b
	}
	at, ok := known.index(&x.whole)
	if !ok {
		return b
	}
	b = known.append(b, &x.whole, at)
	b = binary.AppendUvarint(b, uint64(max(0, x.series)))
	b = binary.AppendUvarint(b, uint64(len(x.accounts)))
	for i := range x.accounts {
		a := &x.accounts[i]
		b = binary.AppendUvarint(b, uint64(a.granted))
		b = binary.LittleEndian.AppendUint64(b, a.grantedTo)
		b = binary.AppendUvarint(b, uint64(max(0, a.grantedUntil-monotonic)))
		b = binary.AppendUvarint(b, uint64(a.moved))
		b = binary.AppendUvarint(b, uint64(a.heard))
		b = binary.AppendUvarint(b, uint64(a.received))
		b = binary.AppendUvarint(b, uint64(max(0, a.receivedUntil-monotonic)))
		b = binary.AppendUvarint(b, uint64(a.owes))
		b = binary.AppendUvarint(b, uint64(a.number))
	}
	return b
}

// adoptCopy merges a copy: it keeps the later data of each account. Before this node grants any
// units, it asks the other regions which units of this region they have, because the copy may be
// older than the last grant.
func (h *Holdings) adoptCopy(id bucket.ID, r *reader, known *limits, now int64) {
	whole := known.read(r)
	series := r.number()
	n := r.uvarint()
	if r.err == nil && n > maxRegions {
		r.fail("a holding has %d accounts, and at most %d are allowed", n, maxRegions)
	}
	if r.err != nil {
		return
	}
	var t Time
	if h != nil {
		t = Time{now, h.monotonic.Load()}
	}
	accounts := make([]account, n)
	for i := range accounts {
		a := &accounts[i]
		a.granted, a.grantedTo = r.held(), r.uint64()
		a.grantedUntil = t.Monotonic + min(r.age(), keptFor)
		a.moved = r.held()
		a.heard = r.number()
		a.received = r.held()
		a.receivedUntil = t.Monotonic + min(r.age(), term)
		a.owes = r.held()
		a.number = r.number()
	}
	if err := whole.Validate(); r.err == nil && err != nil {
		r.fail("the limit of a holding is invalid: %w", err) // the limit of a holding is not a share
	}
	if r.err != nil || h == nil || len(accounts) != len(h.regions.names) {
		return // members can disagree about the set of regions while it changes
	}
	sh := h.lock(id)
	defer sh.mu.Unlock()
	x := h.holdingOf(sh, id, &whole, t)
	if x == nil {
		return
	}
	x.seen = t.Monotonic
	for i := range accounts {
		a, from := &x.accounts[i], &accounts[i]
		if from.heard >= a.heard {
			a.granted, a.grantedTo, a.grantedUntil = from.granted, from.grantedTo, from.grantedUntil
			a.moved, a.heard = from.moved, from.heard
		}
		if from.number >= a.number {
			a.received, a.receivedUntil = from.received, from.receivedUntil
			a.owes, a.number = from.owes, from.number
		}
		a.waits = false
		// The region must state which units of this region it has, because there may be grants
		// that are later than the copy.
		a.known, a.asked = i == h.regions.self, 0
	}
	x.unsure, x.copied = false, t.Monotonic
	x.series = max(x.series, series+1)
	h.renew(x, t)
}

// number reads an integer. An integer above MaxInt64/2 becomes MaxInt64/2.
func (r *reader) number() int64 { return int64(min(r.uvarint(), math.MaxInt64/2)) }

// held reads a number of units in a holding, limited to 2⁴⁰: no limit has more.
func (r *reader) held() int64 { return int64(min(r.uvarint(), 1<<40)) }
