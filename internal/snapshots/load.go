package snapshots

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-go/weir/cluster"
)

// found is the result of the first reading of all snapshots.
type found struct {
	opened  bool // at least one snapshot of this cluster can be opened
	refused bool // at least one snapshot cannot be opened
}

// errForeign is the error of a snapshot of another cluster or region.
var errForeign = errors.New("weir: the snapshot is of another cluster or region: give each cluster and region a place of its own")

// Load loads the snapshots that this node must load, of this node and of other nodes (mustLoad). It loads none if
// this node has joined a cluster that has been up for GraceFor or longer. An error does not stop the node:
// unreadable snapshots are logged and counted.
func (s *Snapshots) Load(ctx context.Context) {
	if s.cfg.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, loadWait)
	defer cancel()
	err, ended := runUntil(ctx, func() error {
		s.load(ctx)
		return nil
	})
	if !ended {
		s.cfg.Log.Error("cannot read snapshots, so counts in them are lost; mend their store and restart all nodes", "error", err)
	}
	s.loading.Store(false)
}

// load does the work of Load. It does not return before the store does.
func (s *Snapshots) load(ctx context.Context) {
	began := s.cfg.Env.Monotonic()
	s.cfg.Members.Ask(ctx)
	all, err := s.readHeaders(ctx)
	if !all.opened && !all.refused && err != nil {
		s.countRefused(1)
		s.cfg.Log.Error("cannot read snapshots, so counts in them are lost; mend their store and restart all nodes", "error", err)
	}
	if s.cfg.Members.Age() >= GraceFor || !all.opened && !all.refused {
		return
	}
	loaded, newest := s.loadAll(ctx)
	s.cfg.Wake(s.cfg.Stream.Loaded(s.cfg.Env.Now()))
	s.passOn(ctx)
	took := time.Duration(s.cfg.Env.Monotonic() - began)
	s.mu.Lock()
	s.stats.Loaded, s.stats.LoadTook = loaded, took
	s.mu.Unlock()
	if newest.IsZero() {
		return // all snapshots were refused
	}
	s.cfg.Log.Info("loaded snapshots", "counts", loaded, "took", took.String(), "written", newest)
}

// readHeaders reads the headers of all snapshots that this node must load. If the newest snapshot
// of a node cannot be opened, the previous snapshot is read. The run of the cluster is used only
// after the header is authenticated. The cluster is compared even for a snapshot that is sealed
// under a secret that this node lacks.
func (s *Snapshots) readHeaders(ctx context.Context) (all found, err error) {
	err = s.cfg.Store.Load(ctx, s.mustLoad, func(node string, from io.Reader) error {
		var head bytes.Buffer
		h, err := ReadHeader(io.TeeReader(from, &head))
		if err == nil {
			_, err = NewReader(io.MultiReader(&head, from), s.cfg.Keys)
		}
		switch shut := errors.Is(err, ErrOtherSecret) || errors.Is(err, ErrNoSecret); {
		case (err == nil || shut) && h.Cluster != s.cfg.Cluster:
			s.recordForeign(node)
			return errForeign
		case err == nil:
			all.opened = true
			s.cfg.Members.Clock.Find(h.Run)
		default:
			all.refused = true
		}
		s.recordOwn(node)
		return err
	})
	return all, err
}

// loadAll loads all snapshots that this node must load, except for those that loadOne skips.
// It returns the number of counts, and the time at which the newest snapshot was written, by
// the clock of the machine that wrote the snapshot.
func (s *Snapshots) loadAll(ctx context.Context) (loaded int, newest time.Time) {
	var refused []error
	err := s.cfg.Store.Load(ctx, s.mustLoad, func(node string, r io.Reader) error {
		counts, written, err := s.loadOne(ctx, node, r)
		loaded += counts
		if written.After(newest) {
			newest = written
		}
		if err == nil {
			return nil
		}
		refused = append(refused, err)
		if errors.Is(err, errForeign) {
			return err // readHeaders has logged it
		}
		s.countRefused(1)
		s.cfg.Log.Error("a snapshot was refused; its counts before the damage were loaded, and the previous snapshot of its node is loaded too, if there is one", "member", node, "counts", counts, "error", err)
		if errors.Is(err, ErrOtherSecret) || errors.Is(err, ErrNoSecret) || errors.Is(err, ErrLaterVersion) {
			why := fmt.Errorf("this node writes no snapshot, because it must not replace the snapshot of node %q, which it cannot read: %w", node, err)
			s.shut.Store(&why)
		}
		return err
	})
	for _, err := range excludeErrors(err, refused) {
		s.countRefused(1)
		s.cfg.Log.Error("a snapshot was refused; its counts before the damage were loaded, and the previous snapshot of its node is loaded too, if there is one", "error", err)
	}
	return loaded, newest
}

// excludeErrors returns the errors that a store has joined, except for the given errors.
func excludeErrors(joined error, given []error) (others []error) {
	all := []error{joined}
	if several, ok := joined.(interface{ Unwrap() []error }); ok {
		all = several.Unwrap()
	}
	for _, err := range all {
		if err != nil && !slices.ContainsFunc(given, func(of error) bool { return errors.Is(err, of) }) {
			others = append(others, err)
		}
	}
	return others
}

// loadOne loads a snapshot. It skips a snapshot if the cluster ran for more than GraceFor
// after the snapshot was written. written is zero if the snapshot was refused at its header,
// or skipped.
func (s *Snapshots) loadOne(ctx context.Context, node string, from io.Reader) (counts int, written time.Time, err error) {
	r, err := NewReader(from, s.cfg.Keys)
	if err != nil {
		return 0, written, err
	}
	h := r.Header()
	if h.Cluster != s.cfg.Cluster {
		return 0, written, errForeign
	}
	behind := time.Duration(s.cfg.Members.Clock.Before(h.Run.Moment))
	if behind > GraceFor {
		s.mu.Lock()
		s.stats.Skipped++
		s.mu.Unlock()
		s.cfg.Log.Warn("a snapshot was not loaded, because the cluster continued without the node that wrote it; other snapshots have the counts", "member", node, "written", h.Saved, "behind", behind.String())
		return 0, written, nil
	}
	for {
		kind, block, err := r.Next()
		switch {
		case err == io.EOF:
			return counts, h.Saved, nil
		case err != nil:
			return counts, h.Saved, err
		case ctx.Err() != nil:
			return counts, h.Saved, context.Cause(ctx)
		}
		switch kind {
		case Counts:
			var n int
			n, err = s.cfg.Stream.Load(s.cfg.Env.Now(), s.cfg.Env.TimeOfDay(), block, s.cfg.Env.View())
			counts += n
		case Values:
			err = s.cfg.Values.Load(block)
		}
		if err != nil {
			return counts, h.Saved, err
		}
	}
}

// passOn waits until the other members have acknowledged all loaded counts, because the owner of
// a count may not have loaded it. Members that are not connected may just have started, so passOn
// waits hearFor for them.
func (s *Snapshots) passOn(ctx context.Context) {
	queued := int64(0) // when all loaded counts had been queued, in the time of counts; 0 before that
	for began := time.Now(); ctx.Err() == nil; {
		v, now := s.cfg.Env.View(), s.cfg.Env.Now()
		scanning, waits := false, false
		for i := range v.Members {
			if i == v.Self || !v.Direct[i] && (v.Members[i].State == cluster.Dead || time.Since(began) > hearFor) {
				continue
			}
			lag := s.cfg.Stream.Lag(v.Hashes[i], now)
			scanning = scanning || lag.Scanning
			waits = waits || lag.Counts > 0 && lag.Age >= time.Duration(now-queued)
		}
		switch {
		case scanning:
		case queued == 0:
			queued = now
		case !waits:
			return
		}
		pause(ctx, passOnEvery)
	}
}

// mustLoad reports whether this node loads the snapshot of the given node, if several nodes share
// a store. A node loads its own snapshot. It also loads the snapshot of a node that is not a
// known member, if this node has the highest rank for that snapshot among the known members. The
// starting node with the highest rank of all passes this check, whichever members it knows, so
// each snapshot is loaded by at least one node.
func (s *Snapshots) mustLoad(node string) bool {
	if node == s.cfg.Node {
		return true
	}
	v := s.cfg.Env.View()
	if v.Self < 0 {
		return true
	}
	own := rank(node, v.Members[v.Self].Name)
	for i := range v.Members {
		if name := v.Members[i].Name; i != v.Self && (Label(name) == node || rank(node, name) > own) {
			return false
		}
	}
	return true
}

func rank(node, member string) uint64 { return xxhash.Sum64String(node + "\x00" + member) }

// Label returns the name of a member without its incarnation.
func Label(member string) string {
	const suffix = 17 // a dash and 16 digits
	if n := len(member) - suffix; n > 0 && member[n] == '-' {
		return member[:n]
	}
	return member
}

const (
	passOnEvery = 10 * time.Millisecond
	hearFor     = 2 * time.Second
)
