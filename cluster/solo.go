package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

// NewSolo returns a cluster of a single node. It opens no port and has no other members.
func NewSolo(name, region string) Cluster {
	return &solo{name: name, region: region}
}

type solo struct {
	name, region string

	view atomic.Pointer[View]

	mu            sync.Mutex
	handler       Handler // nil until started
	roster        *detect.Roster
	closed        bool
	notifications sync.WaitGroup
	telling       sync.Mutex // held during a call of Changed
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
	s.roster = detect.NewRoster(detect.Record{Name: s.name, Region: s.region, Born: time.Now().UnixNano()}, 0)
	s.show()
	return nil
}

func (s *solo) show() {
	s.view.Store(&View{Members: []Member{memberOf(s.roster.Self())}, Connected: [][]int{nil}, Direct: []bool{true}})
}

func (s *solo) View() *View { return s.view.Load() }

// Region returns nil, because there are no other nodes.
func (s *solo) Region(string) Peer { return nil }

func (s *solo) Announce(state State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.handler == nil:
		return errNotStarted
	}
	change, err := s.roster.Announce(state)
	if change.Members {
		s.show()
		s.notifyChanged()
	}
	return err
}

// notifyChanged calls Changed in a new goroutine, because the caller of Announce or Leave may hold a lock
// that Changed needs.
func (s *solo) notifyChanged() {
	s.notifications.Go(func() {
		s.telling.Lock()
		defer s.telling.Unlock()
		s.handler.Changed()
	})
}

func (s *solo) Forget(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handler == nil {
		return errNotStarted
	}
	_, err := s.roster.Forget(name, time.Now())
	return err
}

func (s *solo) Leave(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.handler == nil:
		return errNotStarted
	}
	if s.roster.Leave(time.Now()).Members {
		s.view.Store(&View{Self: -1})
		s.notifyChanged()
	}
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
