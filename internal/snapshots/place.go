package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// maxLooked bounds the names that a node remembers. The snapshots of others are looked at again.
const maxLooked = 100_000

// lookAgain reads the headers of this node's newest snapshot, and of those of nodes that it has
// not seen yet. The error is that another cluster or region has written under this node's name:
// two clusters that began to share a place at one moment have found nothing as they started.
func (s *Snapshots) lookAgain(ctx context.Context) error {
	taken := false
	err := s.cfg.Store.Load(ctx, func(node string) bool {
		return node == s.cfg.Node || !s.hasLooked(node) && s.mine(node)
	}, func(node string, from io.Reader) error {
		switch h, err := ReadHeader(from); {
		case err != nil: // it was refused as this node started, or is of this node's own time
		case h.Cluster != s.cfg.Cluster:
			s.foundForeign(node)
			taken = taken || node == s.cfg.Node
		default:
			s.foundOwn(node)
		}
		return nil
	})
	if taken {
		return fmt.Errorf("another cluster or region writes snapshots of a node %q there too, and they are not replaced: give each a place of its own", s.cfg.Node)
	}
	if ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil // what cannot be read is no reason to write nothing
}

func (s *Snapshots) hasLooked(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked[node] || s.foreign[node]
}

// foundOwn records a node of which a snapshot of this cluster was found.
func (s *Snapshots) foundOwn(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.looked) < maxLooked {
		s.looked[node] = true
	}
	delete(s.foreign, node)
}

// foundForeign records a node of which a snapshot of another cluster was found, and logs it once.
func (s *Snapshots) foundForeign(node string) {
	s.mu.Lock()
	known := s.foreign[node]
	if len(s.foreign) < maxLooked {
		s.foreign[node] = true
	}
	delete(s.looked, node)
	s.mu.Unlock()
	if !known {
		s.cfg.Log.Error("another cluster or region writes snapshots to the same place; give each a place of its own", "member", node)
	}
}

// countRefused counts snapshots that were not loaded, or not to their end.
func (s *Snapshots) countRefused(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Refused += n
}
