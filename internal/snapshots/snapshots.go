// Package snapshots has a node write what it knows of durable counts and of what is
// published, and load it where all nodes have stopped.
//
// A node writes at intervals and as it leaves. It loads once, as it starts, unless it finds a
// cluster that has been up for longer than GraceFor: that one knows what counts, and has
// forgotten which counts were reset since the snapshot was written. These invariants hold:
//
//   - What is loaded is a copy like that of any member, so that it counts once however many
//     nodes load it, and changes nothing of what is known to be newer.
//   - A snapshot is not loaded if the cluster is known to have run for longer than GraceFor since:
//     its node stopped before the others, and it lacks the resets since, which are remembered for
//     that long. The run of the cluster (package epoch) shows this, and never a time of day.
//   - Nothing is written where it would replace a snapshot that this node cannot read: that of
//     another cluster, or one that is sealed under a secret that it lacks. A node looks before
//     each snapshot that it writes.
//   - No check waits for a snapshot. Writing takes a part of one processor, and memory for a
//     few blocks.
package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/epoch"
	"github.com/weir-go/weir/internal/loglimit"
	"github.com/weir-go/weir/snapshot"
	countsync "github.com/weir-go/weir/sync"
)

const (
	// GraceFor is how long the tombstones of resets are heeded: of snapshots that were
	// written within it of each other, the later one has the resets since the earlier one.
	GraceFor = 10 * time.Minute
	// saveWait bounds one writing, and loadWait all loading.
	saveWait = 10 * time.Minute
	loadWait = 10 * time.Minute
	// stalledFor is how long a store may take nothing while its node leaves: the caller may have
	// set no deadline.
	stalledFor = time.Minute
	// storeEnds is how long a store may take to end, once it may not go on.
	storeEnds = time.Second
	// goodbyeFor is how much of the time to leave is kept, if there is twice as much, for a store
	// that hangs to be given up, and for the goodbye.
	goodbyeFor = 2*time.Second + storeEnds
	// rest is how many times as long as it has worked a writer pauses, so that it takes a sixth
	// of one processor.
	rest = 5
	// workAtOnce is how long it works between two pauses.
	workAtOnce = time.Millisecond
)

// Config is what Snapshots need of their node.
type Config struct {
	Store   snapshot.Store // nil: none
	Every   time.Duration
	Node    string   // the name under which this node writes
	Cluster [16]byte // what the nodes of this cluster have in common
	Keys    Keys
	Build   string
	Log     *slog.Logger
	Env     *env.Env
	Stream  *countsync.Stream
	Members *epoch.Members
	Wake    func([]countsync.Member) // that something waits for

	Values ValueStore
}

// ValueStore has published values, which snapshots have as well.
type ValueStore interface {
	Save(write func(message []byte) error) error
	Load(message []byte) error
}

// Snapshots writes and loads those of one node. It is safe for concurrent use.
type Snapshots struct {
	cfg Config

	loading atomic.Bool

	saving  chan struct{} // has room for one: one snapshot is written at a time
	leaving atomic.Bool   // what is being written takes no more pauses
	taken   atomic.Int64  // when the store took something last, by the monotonic clock

	failures loglimit.Line // of the lines about them

	shut atomic.Pointer[error] // why nothing is written, nil if all may be

	mu      sync.Mutex
	stats   Stats
	last    int64           // when the writing of the last one began, by the monotonic clock; 0 if none was written
	looked  map[string]bool // nodes whose snapshots are of this cluster
	foreign map[string]bool // nodes whose snapshots are of another cluster
}

// Stats is a weir.SnapshotStats.
type Stats struct {
	Loading  bool
	Loaded   int           // counts that were loaded
	LoadTook time.Duration // that it took
	Refused  int           // snapshots that were not loaded, or not to their end
	Skipped  int           // snapshots that were not loaded, as the cluster went on without their node
	Foreign  int           // nodes of other clusters or regions that write to the same place
	Saved    uint64        // snapshots that were written
	Failures uint64        // that were not
	Error    string        // of the last one that failed, if none was written since
	Age      time.Duration // of what was written last; 0 if nothing was
	Took     time.Duration // that writing it took
	Bytes    int64         // of it
	Counts   int           // in it
}

// New returns the Snapshots of a node that starts.
func New(c Config) *Snapshots {
	s := &Snapshots{cfg: c, saving: make(chan struct{}, 1), looked: make(map[string]bool), foreign: make(map[string]bool)}
	s.loading.Store(c.Store != nil)
	return s
}

// Stats returns them.
func (s *Snapshots) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Loading = s.loading.Load()
	stats.Foreign = len(s.foreign)
	if s.last != 0 {
		stats.Age = time.Duration(s.cfg.Env.Monotonic() - s.last)
	}
	return stats
}

// Loading reports whether there may be more to load: until then this node may admit what was
// admitted before.
func (s *Snapshots) Loading() bool { return s.loading.Load() }

// Run writes a snapshot in each interval, until the node's life ends.
func (s *Snapshots) Run() {
	if s.cfg.Store == nil {
		return
	}
	tick := time.NewTimer(s.cfg.Env.View().Offset(s.cfg.Every))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			began := time.Now()
			_ = s.save(s.cfg.Env.Context()) // it is counted, and logged
			tick.Reset(max(s.cfg.Every-time.Since(began), s.cfg.Every/10))
		case <-s.cfg.Env.Done():
			return
		}
	}
}

// Leave writes once more, as fast as it can, and ends in time for the node to say goodbye
// before ctx is done. It gives a store up that takes nothing for stalledFor. Where loading is
// not over it writes nothing, as what is there has more.
func (s *Snapshots) Leave(ctx context.Context) error {
	if s.cfg.Store == nil || s.loading.Load() {
		return nil
	}
	s.leaving.Store(true)
	defer s.leaving.Store(false) // the node may stay a member
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left-min(goodbyeFor, left/2))
		defer cancel()
	}
	ctx, cancel := s.untilStalled(ctx)
	defer cancel()
	return s.save(ctx)
}

// untilStalled returns a context that also ends once the store has taken nothing for stalledFor.
// The caller cancels it.
func (s *Snapshots) untilStalled(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.taken.Store(s.cfg.Env.Monotonic())
	go func() {
		for left := stalledFor; left > 0; left = stalledFor - time.Duration(s.cfg.Env.Monotonic()-s.taken.Load()) {
			pause(ctx, left)
			if ctx.Err() != nil {
				return
			}
		}
		cancel(fmt.Errorf("it took nothing for %v", stalledFor))
	}()
	return ctx, func() { cancel(nil) }
}

// save writes a snapshot.
func (s *Snapshots) save(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, saveWait)
	defer cancel()
	select {
	case s.saving <- struct{}{}:
	case <-ctx.Done():
		return s.saved(Stats{}, fmt.Errorf("another is being written: %w", context.Cause(ctx)))
	}
	var written Stats
	err, ended := within(ctx, func() (err error) {
		defer func() { <-s.saving }()
		written, err = s.store(ctx)
		return err
	})
	if !ended {
		return s.saved(Stats{}, err)
	}
	return s.saved(written, err)
}

// within calls f, which ends soon after ctx, and reports whether it has. What keeps snapshots may
// hang for longer, as a disk does: nothing of the node waits for that.
func within(ctx context.Context, f func() error) (err error, ended bool) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err, true
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err, true
	case <-time.After(storeEnds):
		return fmt.Errorf("what keeps snapshots does not end: %w", context.Cause(ctx)), false
	}
}

// store has a snapshot kept, and returns what was written.
func (s *Snapshots) store(ctx context.Context) (written Stats, err error) {
	if s.loading.Load() {
		return written, errLoading
	}
	if s.left() {
		return written, errLeft
	}
	if why := s.shut.Load(); why != nil {
		return written, *why
	}
	s.cfg.Members.Begin(ctx)
	if err := s.lookAgain(ctx); err != nil {
		return written, err
	}
	began := s.cfg.Env.Monotonic()
	err = s.cfg.Store.Save(ctx, s.cfg.Node, func(w io.Writer) (err error) {
		counted := countingWriter{w: w, wrote: func() { s.taken.Store(s.cfg.Env.Monotonic()) }}
		written.Counts, err = s.write(ctx, &counted)
		written.Bytes = counted.n
		return err
	})
	written.Took = time.Duration(s.cfg.Env.Monotonic() - began)
	return written, err
}

// saved takes note of what was written, or why nothing was.
func (s *Snapshots) saved(written Stats, err error) error {
	if errors.Is(err, errLeft) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.stats.Saved++
		s.stats.Error = ""
		s.stats.Took, s.stats.Bytes, s.stats.Counts = written.Took, written.Bytes, written.Counts
		s.last = s.cfg.Env.Monotonic() - int64(written.Took)
		return nil
	}
	s.stats.Failures++
	s.stats.Error = err.Error()
	if unlogged, due := s.failures.Due(time.Now()); due {
		s.cfg.Log.Warn("a snapshot was not written; counts since the last one do not survive a stop of all nodes", "error", err, "unlogged", unlogged)
	}
	return fmt.Errorf("weir: writing a snapshot: %w", err)
}

var (
	errLoading = errors.New("the last ones are not loaded yet, and have more")
	// errLeft is the reason not to replace what Leave has written: others write what counts now.
	errLeft = errors.New("this node has left")
)

// write writes all blocks.
func (s *Snapshots) write(ctx context.Context, to io.Writer) (counts int, err error) {
	w, err := NewWriter(to, s.cfg.Keys, Header{
		Cluster: s.cfg.Cluster, Node: s.cfg.Node, Saved: time.Unix(0, s.cfg.Env.TimeOfDay()), Build: s.cfg.Build,
		Run: s.cfg.Members.Clock.State(s.cfg.Env.Monotonic()),
	})
	if err != nil {
		return 0, err
	}
	if err := s.cfg.Values.Save(func(message []byte) error { return w.Block(Values, message) }); err != nil {
		return 0, err
	}
	blocks := s.cfg.Stream.NewSnapshot(func() countsync.Roles { return s.cfg.Env.View() })
	for worked := time.Now(); ; {
		day, now := s.cfg.Env.TimeOfDay(), s.cfg.Env.Now()
		block := blocks.Next(now, day)
		if block == nil {
			break
		}
		if err := w.Block(Counts, block); err != nil {
			return 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		if took := time.Since(worked); took >= workAtOnce && !s.leaving.Load() {
			pause(ctx, rest*took)
			worked = time.Now()
		}
	}
	if s.left() { // while it was written, so that it lacks counts
		return 0, errLeft
	}
	return blocks.Counts, w.Close()
}

func (s *Snapshots) left() bool { return s.cfg.Env.View().Self < 0 }

// pause waits for a while.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// countingWriter counts what it passes on.
type countingWriter struct {
	w     io.Writer
	n     int64
	wrote func() // called after each Write
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.wrote()
	return n, err
}
