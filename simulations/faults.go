package main

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir"
)

// leaveWithin is the maximum time of a leave. The judge allows a leaving node to decide
// alone for the same time, moving.
const leaveWithin = moving

// strike applies a fault. Starts and leaves may still be in progress after strike returns.
func (s *stage) strike(ctx context.Context, f Fault) {
	switch f.Kind {
	case FaultHeal:
		s.cluster.Heal()
	case FaultSplit, FaultCut, FaultLink:
		s.changeLinks(&f)
	case FaultKill:
		s.kill(f.Nodes)
	default:
		for _, name := range f.Nodes {
			s.applyFault(ctx, &f, s.named[name])
		}
	}
}

func (s *stage) applyFault(ctx context.Context, f *Fault, h *host) {
	switch f.Kind {
	case FaultStart:
		s.start(ctx, h)
	case FaultLeave:
		s.leave(ctx, h)
	case FaultFreeze, FaultThaw:
		s.mu.Lock()
		h.frozen = f.Kind == FaultFreeze
		s.mu.Unlock()
		if f.Kind == FaultFreeze {
			s.cluster.Freeze(h.name)
		} else {
			s.cluster.Thaw(h.name)
		}
	case FaultSkew:
		s.cluster.Skew(h.name, f.By)
	case FaultSlow:
		s.cluster.Throttle(h.name, f.Pauses, f.Every)
	case FaultLose, FaultRevert:
		s.disks.drop(h.name, f.Kind == FaultLose)
	}
}

// changeLinks cuts or changes links, and ends connections across a cut if they are to
// break.
func (s *stage) changeLinks(f *Fault) {
	network := s.cluster.Network()
	for i, j := range s.between(f) {
		if from, to := s.hosts[i].name, s.hosts[j].name; f.Kind == FaultLink {
			network.SetLink(from, to, f.Link)
		} else {
			network.Cut(from, to)
		}
	}
	for i, j := range s.between(f) {
		if f.Breaks {
			network.Break(s.hosts[i].name, s.hosts[j].name)
		}
	}
}

// recordMove records that nodes started or ended. The caller must hold s.mu.
func (s *stage) recordMove(hosts ...int) {
	for _, h := range hosts {
		s.witness.moves = append(s.witness.moves, move{h, s.elapsed()})
	}
}

// kill ends nodes and the callers of these nodes.
func (s *stage) kill(names []string) {
	var died []int
	s.mu.Lock()
	for _, name := range names {
		h := s.named[name]
		if h.runs != nil {
			h.runs.killed = true
			died = append(died, h.index)
		}
		h.up, h.frozen = false, false // the next process on the host is not frozen
		h.kills++
	}
	if len(died) > 0 {
		s.recordEnd(s.elapsed(), false, died...)
	}
	s.mu.Unlock()
	for _, name := range names {
		s.cluster.Kill(name)
	}
}

// recordEnd records that nodes end now. If the end is orderly, the nodes have handed over
// since the time began, if there was a member that could receive. The caller must hold
// s.mu.
func (s *stage) recordEnd(began time.Duration, orderly bool, hosts ...int) {
	lag := time.Duration(0)
	for _, i := range hosts {
		h := s.hosts[i]
		if !orderly && s.Caps.Frame > 0 { // changes wait for a frame with enough room
			lag = max(lag, h.runs.node.Stats().Stream.Lag)
		}
		h.runs.endCallers(s.elapsed())
		s.ended.add(h.runs.node)
		h.runs, h.up = nil, false
	}
	s.trackAbsences()
	s.recordMove(hosts...)
	s.witness.crashes = append(s.witness.crashes, crash{s.elapsed(), hosts, orderly, began, lag})
	s.recordOutages(hosts...)
}

// start starts a node as soon as the previous node on the host has ended. The node
// receives checks after Start has returned.
func (s *stage) start(ctx context.Context, h *host) {
	s.schedule(h, func(kills int) {
		s.mu.Lock()
		h.up = h.kills == kills
		up := h.up
		if up {
			s.starts = append(s.starts, s.elapsed())
		}
		s.mu.Unlock()
		if !up {
			return
		}
		s.witness.forgetResets(h.index)
		n, err := s.cluster.Start(ctx, h.name)
		if err != nil {
			return // the node was killed while it started, or the run has ended
		}
		p, err := s.newProcess(n)
		if err != nil {
			return
		}
		s.mu.Lock()
		if h.kills == kills {
			h.runs = p
			s.disks.recordRun(h.name, s.elapsed())
			s.recordMove(h.index)
			s.trackAbsences()
		}
		s.mu.Unlock()
	})
}

// leave asks a node to leave, repeatedly until the node has left, for at most
// leaveWithin. It stops the node a second after the leave, when the callers of the node have
// their answers. A node that is late ends as if it were killed.
func (s *stage) leave(ctx context.Context, h *host) {
	s.schedule(h, func(kills int) {
		s.mu.Lock()
		p := h.runs
		if p != nil {
			p.leaves = true
		}
		s.mu.Unlock()
		if p == nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, leaveWithin)
		defer cancel()
		began := s.elapsed()
		err := p.node.Leave(ctx)
		for err != nil && !errors.Is(err, weir.ErrClosed) && ctx.Err() == nil {
			select {
			case <-time.After(time.Second):
				err = p.node.Leave(ctx)
			case <-ctx.Done():
			}
		}
		s.mu.Lock()
		if h.runs == p {
			s.recordEnd(began, err == nil, h.index)
		}
		s.mu.Unlock()
		if err == nil {
			time.Sleep(time.Second)
		}
		_ = s.cluster.Leave(ctx, h.name) // stops the node, which has left or has no more time to leave
	})
}

// schedule runs a function when the previous action on the host has ended.
func (s *stage) schedule(h *host, do func(kills int)) {
	before, done := h.busy, make(chan struct{})
	h.busy = done
	s.mu.Lock()
	kills := h.kills
	s.mu.Unlock()
	s.moving.Go(func() {
		defer close(done)
		<-before
		do(kills)
	})
}
