package main

import (
	"context"
	"time"

	"github.com/weir-go/weir"
)

const lookEvery = 700 * time.Millisecond

// look has some node peek at some key of each Global limit, all the time.
func (s *stage) look(ctx context.Context) {
	rng := s.rand("look")
	for at := time.Duration(0); ; at += lookEvery {
		next := at + time.Duration(rng.Int64N(int64(lookEvery)))
		if next >= s.Lasts {
			return
		}
		time.Sleep(next - s.now())
		for i := range s.Limits {
			if s.limits[i].Scope != weir.Global {
				continue
			}
			h, key := s.hosts[rng.IntN(len(s.hosts))], rng.IntN(s.keysOf(i))
			s.mu.Lock()
			p, frozen := h.runs, h.frozen
			s.mu.Unlock()
			if p == nil || frozen || h.machine.Paused() > 0 {
				continue
			}
			l := Look{At: s.now(), Key: int32(key), Limit: int16(i), Node: int16(h.index)}
			d, err := p.limiters[i].Peek(ctx, s.keys[i][key])
			if err != nil || d.Limit != capacity(&s.limits[i]) {
				continue // of a side's share alone
			}
			l.Answered, l.Used = s.now(), d.Limit-d.Remaining
			s.mu.Lock()
			if !p.killed {
				s.looks = append(s.looks, l)
			}
			s.mu.Unlock()
		}
	}
}

// wanUse is what the nodes that run have sent to other regions, those that ended
// beside.
func (s *stage) wanUse() WAN {
	s.mu.Lock()
	defer s.mu.Unlock()
	use := s.ended
	for _, h := range s.hosts {
		if h.runs != nil {
			use.add(h.runs.node)
		}
	}
	return use
}

func (w *WAN) add(n *weir.Node) {
	for _, r := range n.Stats().Regions {
		w.Statements += r.Statements
		w.Unanswered += r.Unanswered
		w.Disputed += r.Disputed
		w.Bytes += r.Sent
	}
}
