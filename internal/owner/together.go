package owner

import (
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Room is the working memory of a call of TakeAll, which later calls can reuse. The zero Room is
// empty.
type Room struct {
	parts   []bucket.Limit
	takes   []bucket.Ask
	wholes  []*bucket.Limit // limits of the takes that the holdings of this region judge, nil for other takes
	answers []bucket.Result
}

// grow makes room for the given number of asks.
func (r *Room) grow(asks int) {
	if cap(r.takes) < asks {
		asks = max(asks, 8)
		*r = Room{make([]bucket.Limit, asks), make([]bucket.Ask, 0, asks), make([]*bucket.Limit, 0, asks), make([]bucket.Result, asks)}
	}
}

// clear removes the references to limits.
func (r *Room) clear() {
	clear(r.takes[:cap(r.takes)])
	clear(r.wholes[:cap(r.wholes)])
	r.takes, r.wholes = r.takes[:0], r.wholes[:0]
}

// batch contains the asks of one request that are taken together.
type batch struct {
	room    Room
	asks    []wire.Ask
	limits  []bucket.Limit
	results []wire.Result
}

// answerTogether takes the asks of a request together, and appends the response to dst.
func (o *Owner) answerTogether(v *view.View, h wire.Header, request, dst []byte, now int64) ([]byte, error) {
	b, steady := o.batches.Get().(*batch), o.clock.MonotonicAt(now)
	defer o.batches.Put(b)
	if cap(b.asks) < int(h.Asks) {
		b.asks, b.limits, b.results = make([]wire.Ask, h.Asks), make([]bucket.Limit, h.Asks), make([]wire.Result, h.Asks)
	}
	asks, limits, results := b.asks[:h.Asks], b.limits[:h.Asks], b.results[:h.Asks]
	clear(results)
	for i := range asks {
		var err error
		if asks[i], err = wire.ParseAsk(request, i, &limits[i]); err != nil {
			return nil, err
		}
	}
	dst = wire.AppendResponse(dst, wire.Done, len(asks))
	for i := range asks {
		results[i].ResetNumber = o.ResetNumber(asks[i].ID, now)
	}
	o.TakeTogether(v, v.Standing(asks[0].ID), h.Flags, asks, now, &b.room, results)
	for i := range results {
		results[i].Firm = results[i].Banned || o.Firm(&asks[i], &results[i], steady)
		dst = results[i].Append(h.Op, dst)
	}
	return dst, nil
}

// Prefetch loads the counts of the next checks into the cache of the processor.
func (o *Owner) Prefetch(ids []bucket.ID) { o.counts.Prefetch(ids) }

// TakeTogether is like TakeAll, and counts the takes as tentative if the request has FlagTentative.
func (o *Owner) TakeTogether(v *view.View, as view.Standing, flags uint8, asks []wire.Ask, now int64, s *Room, results []wire.Result) {
	o.begin(flags, asks, o.clock.MonotonicAt(now))
	o.TakeAll(v, as, asks, now, s, results)
	o.conclude(flags, asks, results)
}

// TakeAll takes the units of all asks from counts of this node, or takes no units. Each take must be
// within the share of the limit that this node has. The denial of an ask with Shadow set does not
// prevent the other takes.
func (o *Owner) TakeAll(v *view.View, as view.Standing, asks []wire.Ask, now int64, s *Room, results []wire.Result) {
	s.grow(len(asks))
	defer s.clear()
	whole, closed, global := as == view.AsOwner && v.Complete, false, false
	for i := range asks {
		a, limit, source := &asks[i], asks[i].Limit, wire.Owner
		part := view.Share{All: true}
		if !whole {
			part, source = v.Share(as, a.ID, a.Partition)
		}
		if !part.All {
			s.parts[i] = part.Limit(o.regionLimit(a, now))
			limit = &s.parts[i]
		}
		r := &results[i]
		r.StoodIn, r.Ahead, r.Banned, r.Paused, r.At, r.Source = as != view.AsOwner, 0, false, false, now, source
		if o.refuse(a, now, r) {
			closed = closed || !a.Shadow
			continue
		}
		if r.Ahead = o.unitsAhead(a, limit, now); r.Ahead > 0 {
			if a.Shadow {
				r.Result = o.counts.Peek(a.ID, limit, now, a.Units)
				denyBehind(r.Ahead, limit, &r.Result)
				continue
			}
			closed = true
		}
		if part.All && a.Global && o.holdings != nil {
			s.wholes = append(s.wholes, limit)
			global = true
		} else {
			s.wholes = append(s.wholes, nil)
		}
		s.takes = append(s.takes, bucket.Ask{ID: a.ID, Limit: limit, Units: a.Units, Shadow: a.Shadow})
	}
	answers := s.answers[:len(s.takes)]
	switch {
	case closed:
		for i := range s.takes {
			t := &s.takes[i]
			answers[i] = o.counts.Peek(t.ID, t.Limit, now, t.Units)
		}
	case global:
		o.holdings.TakeAll(s.takes, s.wholes, o.clock.TimeAt(now), answers)
	default:
		o.counts.TakeAll(s.takes, now, answers)
	}
	taken := 0
	for i := range results {
		if r := &results[i]; !r.Banned && r.Source != wire.FailedClosed && !(r.Ahead > 0 && asks[i].Shadow) {
			r.Result = answers[taken]
			r.Age = time.Duration(now - int64(r.Receipt))
			if r.Ahead > 0 && closed {
				denyBehind(r.Ahead, s.takes[taken].Limit, &r.Result)
			}
			taken++
			o.capRetryAfter(asks[i].ID, &r.Result, now)
			r.RetryAfter = v.RetryAfter(as, r.Source, r.RetryAfter)
		}
	}
}

// refuse denies the ask without a count and returns true, if its key is banned or paused, or if r has the
// Source FailedClosed.
func (o *Owner) refuse(a *wire.Ask, now int64, r *wire.Result) bool {
	if (a.BansKeys || a.Pauses) && o.denyBanned(a, now, r) {
		return true
	}
	if r.Source != wire.FailedClosed {
		return false
	}
	r.Result = bucket.Result{RetryAfter: view.OutageRetry, ResetAfter: view.OutageRetry}
	return true
}

// begin counts the takes of asks as tentative before they are made, if their request has
// FlagTentative. A node that asks several members has all responses, or gives up, within the longest
// time of a check.
func (o *Owner) begin(flags uint8, asks []wire.Ask, now int64) {
	if flags&wire.FlagTentative == 0 {
		return
	}
	for i := range asks {
		o.tentative.begin(asks[i].ID, now, o.longest)
	}
}

// conclude removes the takes of asks that took no units.
func (o *Owner) conclude(flags uint8, asks []wire.Ask, results []wire.Result) {
	if flags&wire.FlagTentative == 0 {
		return
	}
	taken := wire.Allowed(asks, results)
	for i := range asks {
		if !taken || !results[i].Allowed {
			o.tentative.conclude(asks[i].ID)
		}
	}
}

// Conclude ends a tentative take of an ID: the take was confirmed or refunded.
func (o *Owner) Conclude(id bucket.ID) { o.tentative.conclude(id) }
