// Package snapshots writes the durable counts and the published values of a node, and
// loads them after all nodes have stopped.
//
// A node writes at intervals and when it leaves. When it starts, it loads the snapshots, unless
// it finds a cluster that has been up for GraceFor or longer. Such a cluster knows the current
// counts, and resets that were made since the snapshot was written may no longer be in effect.
// These invariants hold:
//
//   - A loaded count is a replica like the replica of any member. So a count has an effect only
//     once, however many nodes load it, and does not change counts that are known to be newer.
//   - A snapshot is not loaded if the cluster is known to have run for longer than GraceFor since the snapshot
//     was written. The node of such a snapshot stopped before the other nodes. The snapshot lacks later resets,
//     and other nodes forget a reset after GraceFor. This is decided by the run of the cluster
//     (package epoch), and never by a time of day.
//   - No snapshot is written if it would replace a snapshot of another cluster. A node checks this
//     before it writes a snapshot. A node also writes no snapshot if, at its start, it had to load a
//     snapshot that is sealed under a secret that the node lacks, or that has a later format.
//   - No check waits for a snapshot. Writing uses a part of a single processor, and memory for a
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
	// GraceFor is how long resets are in effect (package countsync). If two snapshots were
	// written within GraceFor of each other, the later snapshot contains the resets since
	// the earlier snapshot.
	GraceFor = 10 * time.Minute
	// saveWait bounds the writing of a snapshot, and loadWait the loading of all
	// snapshots.
	saveWait = 10 * time.Minute
	loadWait = 10 * time.Minute
	// stalledFor is how long a store may accept no data while its node leaves, because
	// the caller may have set no deadline.
	stalledFor = time.Minute
	// storeEnds is how long a store may take to return after its context is done.
	storeEnds = time.Second
	// goodbyeFor is the part of the time to leave that is kept for abandoning a store that hangs,
	// and for the goodbye. This part is at most half of the time to leave.
	goodbyeFor = 2*time.Second + storeEnds
	// rest is the length of a pause of the writer in multiples of the preceding work, so that the
	// writer uses a sixth of a processor.
	rest = 5
	// workAtOnce is how long the writer works between two pauses.
	workAtOnce = time.Millisecond
)

// Config contains the dependencies of Snapshots.
type Config struct {
	Store   snapshot.Store // nil for no snapshots
	Every   time.Duration  // interval between two snapshots
	Node    string         // the name under which this node writes
	Cluster [16]byte       // equal on all nodes of this cluster
	Keys    Keys
	Build   string
	Log     *slog.Logger
	Env     *env.Env
	Stream  *countsync.Stream
	Members *epoch.Members
	Wake    func([]countsync.Member) // wakes the given members

	Values ValueStore
}

// ValueStore contains the published values, which are also saved in snapshots.
type ValueStore interface {
	Save(write func(message []byte) error) error
	Load(message []byte) error
}

// Snapshots writes and loads the snapshots of a node. It is safe for concurrent use.
type Snapshots struct {
	cfg Config

	loading atomic.Bool

	saving  chan struct{} // capacity 1: snapshots are written one at a time
	leaving atomic.Bool   // the current writing makes no more pauses
	taken   atomic.Int64  // when the store last accepted data, in monotonic time

	failures loglimit.Line // limits the log lines about failures

	shut atomic.Pointer[error] // the reason why no snapshot may be written; nil if writing is allowed

	mu      sync.Mutex
	stats   Stats
	last    int64           // start of the last successful writing, in monotonic time; 0 if there is none
	looked  map[string]bool // nodes whose snapshots are not known to be of another cluster
	foreign map[string]bool // nodes whose snapshots are of another cluster
}

// Stats contains the fields of weir.SnapshotStats.
type Stats struct {
	Loading  bool
	Loaded   int           // counts that were loaded
	LoadTook time.Duration // duration of loading
	Refused  int           // snapshots that were not loaded, or not to their end
	Skipped  int           // snapshots that were not loaded, because the cluster continued without the nodes that wrote them
	Foreign  int           // nodes of other clusters or regions that write to the same place
	Saved    uint64        // snapshots that were written
	Failures uint64        // snapshots that could not be written
	Error    string        // text of the last failure; empty if a snapshot was written since
	Age      time.Duration // time since the beginning of the last snapshot that was written; 0 if none was written
	Took     time.Duration // duration of writing the last snapshot
	Bytes    int64         // size of the last snapshot
	Counts   int           // counts in the last snapshot
}

// New returns the Snapshots of a node that starts.
func New(c Config) *Snapshots {
	s := &Snapshots{cfg: c, saving: make(chan struct{}, 1), looked: make(map[string]bool), foreign: make(map[string]bool)}
	s.loading.Store(c.Store != nil)
	return s
}

// Stats returns the current statistics.
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

// Loading reports whether this node has not loaded all snapshots yet. Until it has, this node may admit units
// that were admitted before all nodes stopped.
func (s *Snapshots) Loading() bool { return s.loading.Load() }

// Begin starts to load the snapshots of all nodes, and to write snapshots after that. It returns when all
// are loaded or ctx is done.
func (s *Snapshots) Begin(ctx context.Context) {
	loaded := make(chan struct{})
	s.cfg.Env.Go(func() {
		s.Load(s.cfg.Env.Context())
		close(loaded)
		s.Run()
	})
	select {
	case <-loaded:
	case <-ctx.Done():
	}
}

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
			_ = s.save(s.cfg.Env.Context()) // the error is counted and logged
			tick.Reset(max(s.cfg.Every-time.Since(began), s.cfg.Every/10))
		case <-s.cfg.Env.Done():
			return
		}
	}
}

// Leave writes a last snapshot without pauses, and ends in time for the node to say goodbye
// before ctx is done. A store that accepts no data for stalledFor is abandoned. If loading has
// not finished, nothing is written, because the existing snapshots contain more.
func (s *Snapshots) Leave(ctx context.Context) error {
	if s.cfg.Store == nil || s.loading.Load() {
		return nil
	}
	s.leaving.Store(true)
	defer s.leaving.Store(false) // the node may remain a member
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

// untilStalled returns a context that also ends once the store has accepted no data for
// stalledFor. The caller must cancel the context.
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
		cancel(fmt.Errorf("the store accepted no data for %v", stalledFor))
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
		return s.recordSave(Stats{}, fmt.Errorf("the previous snapshot is still being written: %w", context.Cause(ctx)))
	}
	var written Stats
	err, ended := runUntil(ctx, func() (err error) {
		defer func() { <-s.saving }()
		written, err = s.saveToStore(ctx)
		return err
	})
	if !ended {
		return s.recordSave(Stats{}, err)
	}
	return s.recordSave(written, err)
}

// runUntil calls f, which should return soon after ctx is done, and reports whether f has
// returned. A store may hang for longer, for example because of a disk. In that case the node
// does not wait.
func runUntil(ctx context.Context, f func() error) (err error, ended bool) {
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
		return fmt.Errorf("the snapshot store did not return: %w", context.Cause(ctx)), false
	}
}

// saveToStore saves a snapshot in the store, and returns its statistics.
func (s *Snapshots) saveToStore(ctx context.Context) (written Stats, err error) {
	if s.loading.Load() {
		return written, errLoading
	}
	if s.hasLeft() {
		return written, errLeft
	}
	if why := s.shut.Load(); why != nil {
		return written, *why
	}
	s.cfg.Members.Begin(ctx)
	if err := s.readNewHeaders(ctx); err != nil {
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

// recordSave records a written snapshot, or the error.
func (s *Snapshots) recordSave(written Stats, err error) error {
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
	errLoading = errors.New("the existing snapshots are not loaded yet, and contain more counts")
	// errLeft is the reason not to replace the snapshot that Leave has written: other
	// nodes write the current counts.
	errLeft = errors.New("this node has left")
)

// write writes all blocks.
func (s *Snapshots) write(ctx context.Context, file io.Writer) (counts int, err error) {
	w, err := NewWriter(file, s.cfg.Keys, Header{
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
	if s.hasLeft() { // this node has left in the meantime, so the snapshot lacks counts
		return 0, errLeft
	}
	return blocks.Counts, w.Close()
}

func (s *Snapshots) hasLeft() bool { return s.cfg.Env.View().Self < 0 }

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// countingWriter counts the bytes of an io.Writer.
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
