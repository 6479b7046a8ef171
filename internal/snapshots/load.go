package snapshots

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/wire"
)

// found is what a first look at all snapshots finds.
type found struct {
	newest  int64  // when the latest of this cluster was written that opens, as time of day; 0: there is none
	refused bool   // there is one that does not open
	foreign string // the node of one of another cluster
}

// Load loads what all nodes have written before they stopped, unless this node has joined a
// cluster that counts already. Nothing of it stops the node: what cannot be read is
// logged and counted.
func (s *Snapshots) Load(ctx context.Context) {
	if s.cfg.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, loadWait)
	defer cancel()
	err, ended := within(ctx, func() error {
		s.load(ctx)
		return nil
	})
	if !ended {
		s.cfg.Log.Error("snapshots were not read to their end, so that counts in them are lost; mend what holds them, and restart all nodes", "error", err)
	}
	s.loading.Store(false)
}

// load is Load, for as long as what keeps snapshots takes.
func (s *Snapshots) load(ctx context.Context) {
	began := s.cfg.Clock.Steady()
	oldest, newest := s.ask(ctx)
	s.began.Store(min(s.began.Load(), s.cfg.Clock.Steady()-int64(oldest)))
	all, err := s.look(ctx)
	if err != nil && !all.refused { // else the reason is logged as it is loaded
		s.cfg.Log.Error("snapshots were not read, so that the counts in them are lost; mend what holds them, and restart all nodes", "error", err)
	}
	if all.foreign != "" {
		err := fmt.Errorf("where snapshots are kept, node %q of another cluster or region writes too: give each a place of its own", all.foreign)
		s.shut.Store(&err)
		s.cfg.Log.Error("no snapshot is loaded or written", "error", err)
		return
	}
	newest = max(newest, all.newest)
	if oldest >= graceFor || all.newest == 0 && !all.refused {
		return
	}
	s.newest.Store(newest)
	loaded := s.loadAll(ctx, newest)
	s.cfg.Wake(s.cfg.Stream.Loaded(s.cfg.Clock.Now()))
	s.passOn(ctx)
	took := time.Duration(s.cfg.Clock.Steady() - began)
	s.mu.Lock()
	s.stats.Loaded, s.stats.LoadTook = loaded, took
	s.mu.Unlock()
	if newest == 0 {
		return // all were refused
	}
	s.cfg.Log.Info("loaded snapshots", "counts", loaded, "took", took.String(), "written", time.Unix(0, newest).UTC())
}

// look reads the headers of all snapshots that are this node's to load. Of a node whose newest
// one does not open, it reads the one before. A header counts only once it is authenticated: a
// damaged time would have the others taken for outdated. Of what is sealed under a secret that
// this node lacks, it tells the cluster all the same.
func (s *Snapshots) look(ctx context.Context) (all found, err error) {
	err = s.cfg.Store.Load(ctx, s.mine, func(_ string, from io.Reader) error {
		var head bytes.Buffer
		h, err := ReadHeader(io.TeeReader(from, &head))
		if err == nil {
			_, err = NewReader(io.MultiReader(&head, from), s.cfg.Keys)
		}
		switch shut := errors.Is(err, ErrOtherSecret) || errors.Is(err, ErrNoSecret); {
		case (err == nil || shut) && h.Cluster != s.cfg.Cluster:
			all.foreign = h.Node
		case err == nil:
			all.newest = max(all.newest, h.Saved.UnixNano())
		default:
			all.refused = true
		}
		return err
	})
	return all, err
}

// loadAll loads each snapshot that was written within graceFor before the newest, and returns how
// many counts it has read.
func (s *Snapshots) loadAll(ctx context.Context, newest int64) (loaded int) {
	err := s.cfg.Store.Load(ctx, s.mine, func(node string, r io.Reader) error {
		counts, err := s.loadOne(ctx, r, newest)
		loaded += counts
		if err != nil {
			s.mu.Lock()
			s.stats.Refused++
			s.mu.Unlock()
			s.cfg.Log.Error("a snapshot was refused; what was read before the damage counts, and the one before it is loaded if there is one", "member", node, "counts", counts, "error", err)
		}
		if errors.Is(err, ErrOtherSecret) || errors.Is(err, ErrNoSecret) || errors.Is(err, ErrLaterVersion) {
			why := fmt.Errorf("the snapshot of node %q cannot be read, and is not to be replaced: %w", node, err)
			s.shut.Store(&why)
		}
		return err
	})
	if err != nil && loaded == 0 {
		s.cfg.Log.Error("no snapshot was loaded", "error", err)
	}
	return loaded
}

// loadOne loads one.
func (s *Snapshots) loadOne(ctx context.Context, from io.Reader, newest int64) (counts int, err error) {
	r, err := NewReader(from, s.cfg.Keys)
	if err != nil {
		return 0, err
	}
	if r.Header().Saved.UnixNano() < newest-int64(graceFor) {
		return 0, nil // of a node that stopped before the others
	}
	for {
		kind, block, err := r.Next()
		switch {
		case err == io.EOF:
			return counts, nil
		case err != nil:
			return counts, err
		case ctx.Err() != nil:
			return counts, context.Cause(ctx)
		}
		switch kind {
		case Counts:
			var n int
			n, err = s.cfg.Stream.Load(s.cfg.Clock.Now(), s.cfg.Clock.TimeOfDay(), newest, block, s.cfg.View())
			counts += n
		case Values:
			err = s.cfg.LoadValues(block)
		}
		if err != nil {
			return counts, err
		}
	}
}

// passOn waits until the other members have acknowledged all that was loaded here: the member
// that answers for a count need not have loaded it. It waits for a moment for those that
// are not heard, as they may just have started too.
func (s *Snapshots) passOn(ctx context.Context) {
	queued := int64(0) // when all of it was queued, by what counts go by; 0: it has yet to be
	for began := time.Now(); ctx.Err() == nil; {
		v, now := s.cfg.View(), s.cfg.Clock.Now()
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

// mine reports whether a node's snapshot is this node's to load, where several share what
// holds them: its own, and of the nodes that have not started those that it stands first
// for. Of all nodes that start, the one that stands first for a name of all takes
// itself for the first, whichever others it knows. So each snapshot is loaded by one at least.
func (s *Snapshots) mine(node string) bool {
	if node == s.cfg.Node {
		return true
	}
	v := s.cfg.View()
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

// Label returns the name of a node without its incarnation.
func Label(member string) string {
	const suffix = 17 // a dash, and 16 digits
	if n := len(member) - suffix; n > 0 && member[n] == '-' {
		return member[:n]
	}
	return member
}

// A node that starts asks the others since when the cluster counts:
//
//	answer  age of the cluster in ns | when the newest snapshot was written that is loaded, as time of day in ns, 0 if none is
//
// Both are unsigned varints.

// ServeSince appends the answer.
func (s *Snapshots) ServeSince(_, dst []byte) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(max(0, s.cfg.Clock.Steady()-s.began.Load())))
	return binary.AppendUvarint(dst, uint64(max(0, s.newest.Load()))), nil
}

const (
	passOnEvery = 10 * time.Millisecond
	hearFor     = 2 * time.Second

	sinceWait  = time.Second
	sinceAsked = 16 // at once
)

// ask returns how long the cluster that this node has joined has counted, 0 if it has met nobody,
// and when the newest snapshot was written that others load. A member that does not know the
// question runs an older release, and so has counted for long.
func (s *Snapshots) ask(ctx context.Context) (age time.Duration, newest int64) {
	v := s.cfg.View()
	heard := v.Heard()
	ages, times := make([]time.Duration, len(heard)), make([]int64, len(heard))
	env.Gather(len(heard), sinceAsked, func(i int) {
		h := wire.Header{Op: wire.OpSince, Wait: sinceWait, To: v.Hashes[heard[i]]}
		answer, err := env.Call(ctx, v.Members[heard[i]].Peer, h, nil, sinceWait)
		switch c := wire.NewCursor(answer); {
		case errors.Is(err, wire.ErrUnknownOp):
			ages[i] = graceFor
		case err == nil:
			a, t := c.Number(maxAge), c.Number(maxAge)
			if c.Err() == nil && c.Left() == 0 {
				ages[i], times[i] = time.Duration(a), int64(t)
			}
		}
	})
	for i := range heard {
		age, newest = max(age, ages[i]), max(newest, times[i])
	}
	return age, newest
}

const maxAge = 1 << 62
