package handover

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// A node that waits for authority receives it when the holder transfers it, however long that takes:
// a distant holder with many counts is slow, but not faulty. So no wait has a timeout. Instead, a
// node that has waited for locateEvery asks all members which of the awaited ranges they have, and
// repeats this every locateEvery:
//
//	request  asker 8 | ranges | for each: first 8, last 8
//	answer   unclear 1 | ranges
//
// A node also asks about the abandoned ranges that it owns (view.Claimed). If a member has a range,
// the asker waits for that member. If no member has the range, except perhaps members that are
// away, authority over the range was lost, and the asker takes the range a second later. The asker
// may not know the member that holds a range. In that case the asker knows the member that has
// transferred the range to the holder, and this member answers for the holder.
//
// A member answers only if the asker owns the ranges in its own ring. So a node takes a range only
// if all members agree about the owner, and two nodes with different rings do not take the same
// range.
const (
	// locateEvery is the time between two rounds of locate, unless a round takes longer. Most
	// hand-overs take less time.
	locateEvery = 250 * time.Millisecond
	// LocateWait is the maximum time for which locate waits for the answer of a member.
	LocateWait = time.Second
)

// locate starts a round of requests if this node waits for authority and the time for the next
// round has come. Run calls locate, so locate must not block.
func (h *Handover) locate(v *view.View) {
	now := h.cfg.Env.Monotonic()
	ranges := v.RangesToLocate()
	if len(ranges) == 0 || h.waiting == 0 {
		h.waiting, h.located, h.warned = now, now, false
		return
	}
	if waited := time.Duration(now - h.waiting); waited >= view.Patience && !h.warned {
		h.warned = true
		h.cfg.Log.Warn("authority over owned keys has not arrived; their checks are passed on until it does",
			"waited", waited.Round(time.Second).String(), "members", v.Givers())
	}
	if now-h.located < int64(locateEvery) || !h.locating.CompareAndSwap(false, true) {
		return
	}
	h.located = now
	if !h.cfg.Env.Try(func(ctx context.Context) {
		defer h.locating.Store(false)
		h.locateNow(ctx, v, ranges)
	}) {
		h.locating.Store(false)
	}
}

// locateNow asks all members that can answer, and updates the view from the answers.
func (h *Handover) locateNow(ctx context.Context, v *view.View, ranges countsync.Ranges) {
	said := make([]*view.Location, len(v.Members))
	env.Gather(len(said), callsAtOnce, func(i int) {
		if v.AnswersLocate(i) && v.Reaches(i) {
			said[i] = h.askLocate(ctx, v, i, ranges)
		}
	})
	said = slices.DeleteFunc(said, func(l *view.Location) bool { return l == nil })
	h.swap.Lock()
	defer h.swap.Unlock()
	before := h.View()
	if next := before.ApplyLocations(said, ranges, h.cfg.Env.Monotonic()); next != before {
		h.replace(next)
	}
}

// askLocate asks a member, directly or through other members, which of the ranges the member has.
// It returns nil if the member does not answer.
func (h *Handover) askLocate(ctx context.Context, v *view.View, i int, ranges countsync.Ranges) *view.Location {
	header := wire.Header{Op: wire.OpLocate, Hops: wire.MaxHops, Wait: LocateWait / 2, To: v.Hashes[i]}
	body := AppendRanges(binary.LittleEndian.AppendUint64(nil, v.Hashes[v.Self]), ranges)
	answer, err := env.Call(ctx, v.Members[v.Next[i]].Peer, header, body, LocateWait)
	if err != nil || len(answer) == 0 {
		return nil
	}
	has, err := ParseRanges(answer[1:])
	if err != nil {
		return nil
	}
	return &view.Location{Member: v.Hashes[i], Has: has, Unclear: answer[0] != 0}
}

// ServeLocate handles the request of askLocate. If the asker owns the ranges, this node leaves the Vacant
// ranges among them to the asker.
func (h *Handover) ServeLocate(body, dst []byte) []byte {
	if len(body) < 8 {
		return nil
	}
	ranges, err := ParseRanges(body[8:])
	if err != nil {
		return nil
	}
	h.swap.Lock()
	defer h.swap.Unlock()
	v, now := h.View(), h.cfg.Env.Monotonic()
	if !v.AssignsRanges(binary.LittleEndian.Uint64(body), ranges) {
		return wire.AppendResponse(dst, wire.Unreached, 0)
	}
	has := v.LocalRanges(ranges, now, func(receiver countsync.Member) bool { return h.stream.Lag(receiver, h.cfg.Env.Now()).Transferring })
	if next := v.ReleaseVacant(ranges.Minus(has)); next != v {
		h.replace(next)
	}
	dst = wire.AppendResponse(dst, wire.Done, 0)
	unclear := byte(0)
	if v.IsUnclear(now) {
		unclear = 1
	}
	return AppendRanges(append(dst, unclear), has)
}

// AppendRanges appends ranges to a message, for ParseRanges to parse.
func AppendRanges(b []byte, ranges countsync.Ranges) []byte {
	for _, r := range ranges {
		b = binary.LittleEndian.AppendUint64(b, r.First)
		b = binary.LittleEndian.AppendUint64(b, r.Last)
	}
	return b
}

// ParseRanges parses the ranges in the rest of a message. The error is wire.ErrMalformed.
func ParseRanges(b []byte) (countsync.Ranges, error) {
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
