package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// maxLooked bounds each of the two sets of node names that a node remembers. The snapshots of
// further nodes are read again.
const maxLooked = 100_000

// readNewHeaders reads the headers of this node's newest snapshot, and of the snapshots of nodes
// that are not known yet. The error is that another cluster or region has written under the name
// of this node, or that ctx is done. Two clusters that started to share a place at the same moment
// find each other only here, because neither had a snapshot when the other started.
func (s *Snapshots) readNewHeaders(ctx context.Context) error {
	taken := false
	err := s.cfg.Store.Load(ctx, func(node string) bool {
		return node == s.cfg.Node || !s.hasLooked(node) && s.mustLoad(node)
	}, func(node string, from io.Reader) error {
		switch h, err := ReadHeader(from); {
		case err != nil: // refused at the start of this node, or written since
		case h.Cluster != s.cfg.Cluster:
			s.recordForeign(node)
			taken = taken || node == s.cfg.Node
		default:
			s.recordOwn(node)
		}
		return nil
	})
	if taken {
		return fmt.Errorf("another cluster or region also writes snapshots of a node %q to this place, and this node does not replace them: give each cluster and region a place of its own", s.cfg.Node)
	}
	if ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil // unreadable snapshots do not prevent writing
}

func (s *Snapshots) hasLooked(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked[node] || s.foreign[node]
}

// recordOwn records a node whose snapshot is not known to be of another cluster.
func (s *Snapshots) recordOwn(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.looked) < maxLooked {
		s.looked[node] = true
	}
	delete(s.foreign, node)
}

// recordForeign records a node whose snapshot is of another cluster, and logs it once.
func (s *Snapshots) recordForeign(node string) {
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
