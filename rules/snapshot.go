package rules

import (
	"fmt"

	"github.com/weir-go/weir"
)

// Snapshot is one version of a Book: the file's Set, and on top of it the node's
// Limiters and the overrides that hold. It never changes: who takes one Snapshot
// for a request sees one version. Its methods allocate nothing.
type Snapshot struct {
	*Set
	serial    uint64
	limiters  [][]pair // by Limit.Index, then by variant
	overrides map[[16]byte]*granted
}

// pair is what counts a key under a limit: hard, and where the rule allows an
// overrun, soft beyond it.
type pair struct {
	hard, soft *weir.Limiter
}

// granted is an override that holds, and what counts with its numbers.
type granted struct {
	Override
	pair
}

// newSnapshot makes the Limiters of a Set.
func newSnapshot(node *weir.Node, set *Set) (*Snapshot, error) {
	s := &Snapshot{Set: set, limiters: make([][]pair, len(set.limits))}
	for i, l := range set.limits {
		s.limiters[i] = make([]pair, 1+len(l.tiers))
		for v := range s.limiters[i] {
			p, err := newPair(node, l, l.of(v))
			if err != nil {
				return nil, fmt.Errorf("rules: limit %q: %w", l.Name, err)
			}
			s.limiters[i][v] = p
		}
	}
	return s, nil
}

func newPair(node *weir.Node, l *Limit, numbers weir.Limit) (p pair, err error) {
	if p.hard, err = node.Limiter(numbers); err != nil {
		return pair{}, err
	}
	if soft, ok := l.soft.of(numbers); ok {
		p.soft, err = node.Limiter(soft)
	}
	return p, err
}

// Limiter is the Limiter that counts a key under a limit of this Snapshot's Set,
// with the numbers of the key's override, or else of its tier.
func (s *Snapshot) Limiter(l *Limit, tier, key string) *weir.Limiter {
	return s.pair(l, tier, key).hard
}

// Soft is the Limiter of the overrun that the limit's rule allows a key, nil if
// it allows none.
func (s *Snapshot) Soft(l *Limit, tier, key string) *weir.Limiter {
	return s.pair(l, tier, key).soft
}

func (s *Snapshot) pair(l *Limit, tier, key string) *pair {
	p := &s.limiters[l.Index][l.variant(tier)]
	if len(s.overrides) > 0 {
		if o := s.overrides[p.hard.ID(key)]; o != nil {
			return &o.pair
		}
	}
	return p
}

// Serial rises by one with each Snapshot of a Book: with a new version of the
// file, and with a change of the overrides.
func (s *Snapshot) Serial() uint64 { return s.serial }
