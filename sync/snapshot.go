package countsync

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weir-go/weir/bucket"
)

// A block of a snapshot, little-endian; numbers without a width are unsigned varints:
//
//	version 1 | time of day 8
//	ids     number of items | the id 16 of each
//	items   until the end
//
// The items have the format of a frame: states of counts, resets of ids, and vectors of counts that are
// empty after refunds. The ages in the block are correct at the time of day.
const (
	blockVersion = 1
	blockHead    = 9
	// blockIDs is the number of ids at which a block ends. Resets and vectors may exceed the number
	// by up to snapshotAtOnce-1.
	blockIDs       = 512
	blockBytes     = 48 << 10 // size of the items at which a block ends
	snapshotAtOnce = 32       // maximum number of counts, or of vectors and resets, that are visited each time the lock is held
	// snapshotPiece is the frame number of all pieces of logs in snapshots: each piece follows
	// the previous piece.
	snapshotPiece = 1
	// snapshotSender stands for the sender of blocks: no member has this value, and 0 is no
	// member.
	snapshotSender Member = ^Member(0)
)

// Snapshot writes the Durable counts of a Stream, block by block. It then writes the resets that are in
// effect, and the vectors (see the package comment) of counts that are empty after refunds. Snapshot must
// be used by a single goroutine. In memory, it keeps the IDs of one shard of the store at a time. Each
// block contains the time of day at which it was written. The snapshot may or may not contain units that
// are spent while it is written: loading merges the data in both cases.
type Snapshot struct {
	stream *Stream
	roles  func() Roles

	cursor  uint64 // cursor of the next piece of the store
	scanned bool   // all pieces of the store have been read
	ids     []bucket.ID
	mark    bucket.Mark // the log of ids[0] is written up to this mark
	beside  review
	block   []byte
	itemIDs []byte
	items   []byte
	limits  limits
	origins origins

	// Counts is the number of counts in the blocks so far.
	Counts int
}

// NewSnapshot returns a snapshot that has written no blocks yet. The function roles returns the
// present roles.
func (s *Stream) NewSnapshot(roles func() Roles) *Snapshot {
	return &Snapshot{stream: s, roles: roles}
}

// Next returns the next block, or nil if everything is written. The block is valid until the next
// call. The argument now is the time by the clock of the counts, and the argument day is the time of day,
// both in nanoseconds.
func (w *Snapshot) Next(now, day int64) []byte {
	w.itemIDs, w.items = w.itemIDs[:0], w.items[:0]
	w.limits, w.origins = w.limits[:0], w.origins[:0]
	for !w.isFull() && w.nextIDs() {
		w.writeCounts(now)
	}
	for more := true; !w.isFull() && more; {
		more = w.writeBeside(now)
	}
	if len(w.itemIDs) == 0 {
		return nil
	}
	w.block = append(w.block[:0], blockVersion)
	w.block = binary.LittleEndian.AppendUint64(w.block, uint64(day))
	w.block = binary.AppendUvarint(w.block, uint64(len(w.itemIDs)/idBytes))
	w.block = append(append(w.block, w.itemIDs...), w.items...)
	return w.block
}

func (w *Snapshot) isFull() bool {
	return len(w.itemIDs) >= blockIDs*idBytes || len(w.items) >= blockBytes
}

// nextIDs reports whether ids are left. If necessary, it reads the ids in the next piece of the
// store.
func (w *Snapshot) nextIDs() bool {
	for len(w.ids) == 0 && !w.scanned {
		w.cursor, w.ids = w.stream.store.Scan(w.cursor, w.ids[:0])
		w.scanned = w.cursor == 0
	}
	return len(w.ids) > 0
}

// withLock calls f under the lock of the stream, while s.limits and s.origins are those of this block.
func (w *Snapshot) withLock(now int64, f func(s *Stream)) {
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	s.limits, w.limits = w.limits, s.limits
	s.origins, w.origins = w.origins, s.origins
	f(s)
	s.limits, w.limits = w.limits, s.limits
	s.origins, w.origins = w.origins, s.origins
}

// writeCounts appends the states of some of the ids. writeCounts ends after a piece of a log that
// is not the last, and the next call continues with that log. If a count has changed since it
// was collected, it is collected first, because its vector must include all of its units.
func (w *Snapshot) writeCounts(now int64) {
	roles := w.roles()
	w.withLock(now, func(s *Stream) {
		for n := 0; n < snapshotAtOnce && len(w.ids) > 0 && !w.isFull(); n++ {
			if w.writeCount(s, w.ids[0], now, roles) {
				return
			}
			w.ids, w.mark = w.ids[1:], bucket.Mark{}
		}
	})
}

// writeCount appends a durable count, or the next piece of its log, and reports whether more pieces
// follow. It skips other counts, and counts that the store no longer has.
func (w *Snapshot) writeCount(s *Stream, id bucket.ID, now int64, roles Roles) (more bool) {
	if limit, held := s.store.Judge(id); !held || !limit.Durable {
		return false
	}
	mark, more, held := s.export(nil, id, w.mark, now, roles)
	if !held {
		return false
	}
	flags := byte(state)
	if more {
		flags |= itemMore
	}
	if s.count.Partial() {
		flags |= itemPiece
	}
	s.mine = s.mine[:0]
	if s.count.Total.Origin != 0 && flags == byte(state) && !s.ledger.contains(id) {
		flags |= itemTotal
	} else {
		s.mine = s.vector(s.mine, id, now)
	}
	items, at, ok := s.appendHead(w.items, id, flags, &s.count.Limit, now)
	if !ok {
		return false
	}
	if flags&itemTotal != 0 {
		items = s.origins.appendTotal(items, s.count.Total)
	}
	if flags&itemPiece != 0 {
		items = binary.AppendUvarint(items, snapshotPiece)
	}
	w.items = s.count.Append(s.limits.append(items, &s.count.Limit, at))
	w.itemIDs = appendID(w.itemIDs, id)
	if w.mark = mark; !more {
		w.Counts++
	}
	return more
}

// writeBeside appends some of the data beside counts: resets in effect, and the vectors of counts that are
// empty after refunds. Other nodes may write such a count before they hear of the refunds. writeBeside
// reports whether there is more data.
func (w *Snapshot) writeBeside(now int64) (more bool) {
	w.withLock(now, func(s *Stream) {
		for range snapshotAtOnce {
			kind, id, ok := s.nextBeside(&w.beside)
			if more = ok; !ok {
				return
			}
			s.mine = s.mine[:0]
			switch kind {
			case ofReset:
				if r, known := s.resets.get(id); !known || !r.isEffective(now) {
					continue
				}
			case ofVector:
				if used, _, _ := s.store.Used(id, now); used > 0 || !s.hasRefunds(id) {
					continue
				}
				s.mine = s.vector(s.mine, id, now)
			default:
				continue
			}
			w.items, _, _ = s.appendHead(w.items, id, byte(spend), nil, now)
			w.itemIDs = appendID(w.itemIDs, id)
		}
	})
	return more
}

// ErrBlock is the error for a malformed block, which was not written by a Snapshot or was
// damaged.
var ErrBlock = errors.New("countsync: malformed block of a snapshot")

// Load applies a block in the same way as a copy from another member: each unit counts once, and
// known units change nothing. The argument now is the time by the clock of the counts, and the argument day is
// the time of day at that time. Load returns the number of items that it has applied, and sends nothing: Loaded
// does that once all blocks are loaded. If the block is malformed, the error wraps ErrBlock, and the items
// before the malformed item have been applied.
func (s *Stream) Load(now, day int64, block []byte, roles Roles) (counts int, err error) {
	if len(block) < blockHead || block[0] != blockVersion {
		return 0, fmt.Errorf("%w: the block has %d bytes and the version %d: at least %d bytes and the version %d are needed", ErrBlock, len(block), append(block, 0)[0], blockHead, blockVersion)
	}
	written := int64(binary.LittleEndian.Uint64(block[1:]))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	r := reader{b: block[blockHead:]}
	x := arriving{
		Stream: s, roles: roles, in: &s.loading, from: snapshotSender, number: snapshotPiece, now: now,
		lain: min(max(0, day-written), maxAge), saved: true,
	}
	if x.items(&r); r.err != nil {
		return x.index, fmt.Errorf("%w: %w", ErrBlock, r.err)
	}
	return x.index, nil
}

// Loaded starts a scan for each member. The scans send the loaded data of an id to the member that
// answers for the id, or, if this node answers, to the targets of the id. Loaded returns the same
// members as Collect.
func (s *Stream) Loaded(now int64) []Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	s.loading = inbound{}
	for _, o := range s.outbounds {
		o.owe(All(), s.clock)
	}
	return s.ready()
}
