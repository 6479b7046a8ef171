package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// NewSolo returns a cluster of one: it opens no port, finds nobody and hears
// nobody.
func NewSolo(name, region string) Cluster {
	return &solo{name: name, region: region}
}

type solo struct {
	name, region string

	view atomic.Pointer[View]

	mu            sync.Mutex
	handler       Handler // nil until started
	left, closed  bool
	notifications sync.WaitGroup
	telling       sync.Mutex // calls of Changed come one at a time
}

func (s *solo) Start(ctx context.Context, h Handler) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.handler != nil:
		return errStartedTwice
	}
	s.handler = h
	s.show(Member{Name: s.name, Region: s.region, Born: time.Now()})
	return nil
}

func (s *solo) show(self Member) {
	s.view.Store(&View{Members: []Member{self}, Hears: [][]bool{{true}}, Direct: []bool{true}})
}

func (s *solo) View() *View { return s.view.Load() }

// Region is always nil: a cluster of one asks nobody.
func (s *solo) Region(string) Peer { return nil }

func (s *solo) Announce(state State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.handler == nil:
		return errNotStarted
	case !state.announced():
		return notAnnounced(state)
	case s.left:
		return fmt.Errorf("cluster: Announce: %w", errLeft)
	}
	self := s.view.Load().Members[0]
	if self.Announced == state {
		return nil
	}
	self.State, self.Announced = state, state
	s.show(self)
	s.tell()
	return nil
}

// tell has Changed called. It has its own goroutine, for the caller of Announce
// or Leave may hold what it needs.
func (s *solo) tell() {
	s.notifications.Go(func() {
		s.telling.Lock()
		defer s.telling.Unlock()
		s.handler.Changed()
	})
}

func (s *solo) Forget(name string) error {
	if v := s.view.Load(); v != nil && v.Self >= 0 && name == s.name {
		return fmt.Errorf("cluster: Forget: %q is not dead", name)
	}
	return fmt.Errorf("cluster: Forget: %q is not in the roster", name)
}

func (s *solo) Leave(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.handler == nil:
		return errNotStarted
	case s.left:
		return nil
	}
	s.left = true
	s.view.Store(&View{Self: -1})
	s.tell()
	return nil
}

func (s *solo) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.notifications.Wait()
	return nil
}

func (s *solo) Stats() Stats { return Stats{} }
