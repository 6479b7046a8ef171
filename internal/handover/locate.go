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

// Authority that a node waits for comes when its holder gives it, however long that
// takes: a holder far away with many counts is slow, and not wrong. So no wait ends by
// time. Instead, a node that has waited for locateEvery asks all members which of the
// ranges they have, and asks again for as long as it waits:
//
//	request  asker 8 | ranges | for each: first 8, last 8
//	answer   unclear 1 | ranges
//
// A node also asks about the abandoned ranges that it owns (view.Claimed). If a member has a range,
// the asker waits for that member. If no member that is not away has the range, its authority was
// lost, and the asker takes it a second later. The asker may not know the member that holds a range,
// but it knows the member that gave the range away, and that one answers for it.
//
// A member answers only if the asker owns the ranges in its own ring. So a node takes a range only if
// all members agree about the owner, and two nodes with different rings do not take the same range.
const (
	// locateEvery is the time between two rounds of asking, unless one takes longer.
	// A hand-over in good health takes less.
	locateEvery = 250 * time.Millisecond
	// LocateWait is how long a member may take to answer.
	LocateWait = time.Second
)

// locate asks who has what this node waits for, when that is due. It is called by
// Run, for which nothing here waits.
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

// locateNow asks all members, and has the view follow from what they say.
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

// askLocate asks one member, directly or through others; nil if it has not answered.
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

// ServeLocate answers askLocate. What this node was to take later, as nobody was known
// to have it, is the asker's to take from here on, and not this node's.
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
	has := v.LocalRanges(ranges, now, func(to countsync.Member) bool { return h.stream.Lag(to, h.cfg.Env.Now()).Transferring })
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

func AppendRanges(b []byte, ranges countsync.Ranges) []byte {
	for _, r := range ranges {
		b = binary.LittleEndian.AppendUint64(b, r.First)
		b = binary.LittleEndian.AppendUint64(b, r.Last)
	}
	return b
}

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
