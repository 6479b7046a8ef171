package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// NewSolo returns a cluster of one: it opens no port and finds nobody. Its
// member serves from the start.
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
	s.view.Store(&View{
		Members: []Member{{Name: s.name, Region: s.region, Born: time.Now(), State: Serving}},
		Hears:   [][]bool{{true}},
		Direct:  []bool{true},
	})
	return nil
}

func (s *solo) View() *View { return s.view.Load() }

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
	// Leave's caller may hold what Changed needs, so Changed has its own goroutine.
	s.notifications.Go(s.handler.Changed)
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
