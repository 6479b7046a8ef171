package audit

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

// Sink keeps records: in a file, a topic, a table. A Log calls it from one goroutine, one
// call at a time.
type Sink interface {
	// Write writes a batch of one record or more, and returns how many of it are kept,
	// with an error unless that is all. It returns when ctx is done, which is after
	// Options.Timeout at the latest. It keeps no reference to the batch.
	//
	// A Log writes no batch twice. A Sink that can write again without writing double
	// does so itself, within ctx.
	Write(ctx context.Context, batch []Record) (kept int, err error)
}

// Options are what a Log records, and how. The zero value records every denial, by id.
type Options struct {
	// Sample is the part of the keys of which admissions are recorded as well, 0 to 1.
	// It goes by the key's id: of a key that is in the sample every decision is recorded,
	// by every node of a cluster, so that its records add up to what the limit granted.
	// Without Config.Seed nobody can say which keys these are.
	Sample float64

	// SampledOnly leaves out the denials of keys that are not in the Sample: for a service
	// that denies floods all day.
	SampledOnly bool

	// Keys adds the text of keys to records. False: their ids alone.
	Keys bool

	// Trace returns the id of the trace that a check is part of, empty for none. It is
	// called on the check's own goroutine, for what is recorded alone. Nil: no trace.
	Trace func(ctx context.Context) string

	Queue   int           // how many records wait to be written, at most; those that come when it is full are dropped. 8,192 if zero (1.5 MB, and with Keys as much more as these are long), at most 1,048,576
	Batch   int           // how many are written at once, at most. 512 if zero, at most Queue
	Every   time.Duration // how long a record waits for others to be written with. 1 s if zero, 1 ms to 1 h
	Timeout time.Duration // how long the Sink may take for a batch. 10 s if zero, 1 ms to 1 h

	Logger *slog.Logger // gets a line, once a minute at most, that says how many records were lost. slog.Default if nil
}

const (
	defaultQueue   = 8192
	maxQueue       = 1 << 20
	defaultBatch   = 512
	defaultEvery   = time.Second
	defaultTimeout = 10 * time.Second
	maxWait        = time.Hour
)

// Validate reports everything that is wrong with the Options at once, nil if nothing is.
// Each error is weir.ErrInvalid.
func (o Options) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w audit.Options: "+format, append([]any{weir.ErrInvalid}, args...)...))
	}
	if !(o.Sample >= 0 && o.Sample <= 1) {
		wrong("Sample: %v: use 0, for denials alone, to 1, for every decision", o.Sample)
	}
	if o.SampledOnly && o.Sample == 0 {
		wrong("SampledOnly without a Sample records nothing: set Sample to the part of the keys to record")
	}
	d := o.withDefaults()
	if d.Queue < 1 || d.Queue > maxQueue {
		wrong("Queue: %d: use 1 to %d, or 0 for %d", o.Queue, maxQueue, defaultQueue)
	}
	if d.Batch < 1 || d.Batch > d.Queue {
		wrong("Batch: %d: use 1 to the Queue's %d, or 0 for %d", o.Batch, d.Queue, min(defaultBatch, d.Queue))
	}
	for _, wait := range []struct {
		name         string
		is, standard time.Duration
	}{{"Every", d.Every, defaultEvery}, {"Timeout", d.Timeout, defaultTimeout}} {
		if wait.is < time.Millisecond || wait.is > maxWait {
			wrong("%s: %v: use %v to %v, or 0 for %v", wait.name, wait.is, time.Millisecond, maxWait, wait.standard)
		}
	}
	return errors.Join(errs...)
}

func (o Options) withDefaults() Options {
	o.Queue = cmp.Or(o.Queue, defaultQueue)
	o.Batch = cmp.Or(o.Batch, min(defaultBatch, o.Queue))
	o.Every = cmp.Or(o.Every, defaultEvery)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}

// Log records decisions: it is a weir.Observer, the Config.Observer of a node. It records
//
//   - each denial of a limit, also of a shadow, and each check that ended in an error;
//   - each admission of a key in the Sample. Where one limit of an AllowAll denies, the
//     others' records say Allowed, though nothing was spent of them.
//
// A Peek is not recorded. A Wait is one record for each time that it asked.
//
// Decided may be called by any number of goroutines. The Log has one goroutine, which
// reads the queue and calls the Sink; Close ends it.
type Log struct {
	o       Options
	sink    Sink
	sampled uint64 // the greatest id in the sample, by its second half; 0 for none
	queue   *queue
	wake    chan struct{} // holds a token if a batch may have come together
	rests   atomic.Bool   // the writer waits for the next record, without a timer
	begins  chan struct{} // holds a token if a record has come meanwhile

	asker atomic.Pointer[asker] // whose first decision came; nil before

	written, dropped, failed atomic.Uint64

	closing context.Context    // done when Close was called
	close   context.CancelFunc //
	given   context.Context    // up: done when a Close has ended before all was written
	giveUp  context.CancelFunc //
	done    chan struct{}      // closed when the writer has ended
}

// Stats is what has become of the decisions that were to be recorded. Each is in one of
// Queued, Written, Dropped and Failed, but for those of the batch that is being written.
type Stats struct {
	Queued  int    // wait to be written
	Written uint64 // the Sink has kept them
	Dropped uint64 // the queue was full, or the Log closed
	Failed  uint64 // the Sink returned an error
}

// New returns a Log that writes to a Sink, until Close. The error is weir.ErrInvalid.
func New(sink Sink, o Options) (*Log, error) {
	if sink == nil {
		return nil, fmt.Errorf("%w audit.New: the Sink is nil: use JSONLines, or one of your own", weir.ErrInvalid)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	l := &Log{o: o, sink: sink, sampled: threshold(o.Sample), queue: newQueue(o.Queue), wake: make(chan struct{}, 1), begins: make(chan struct{}, 1), done: make(chan struct{})}
	l.closing, l.close = context.WithCancel(context.Background())
	l.given, l.giveUp = context.WithCancel(context.Background())
	go l.run()
	return l, nil
}

// threshold is the number that a part of all 64-bit numbers does not exceed.
func threshold(part float64) uint64 {
	if part >= 1 {
		return math.MaxUint64
	}
	return uint64(part * (1 << 64))
}

// inSample reports whether a key's decisions are all recorded. The id is a keyed hash, so
// that either half of it is as good as a random number.
func (l *Log) inSample(id ID) bool {
	return binary.BigEndian.Uint64(id[8:]) <= l.sampled
}

// Decided queues a record of the decision, if it is one to be recorded.
func (l *Log) Decided(ctx context.Context, e weir.DecisionEvent) {
	if l.asker.Load() == nil {
		l.asker.Store(askerOf(e.Limiter.Node())) // now: once it has left, a node is no member any more
	}
	if e.Peek || e.Decision.Allowed && l.sampled == 0 {
		return
	}
	id := ID(e.Limiter.ID(e.Key))
	if (e.Decision.Allowed || l.o.SampledOnly) && !l.inSample(id) {
		return
	}
	var trace string
	if l.o.Trace != nil {
		trace = l.o.Trace(ctx) // before a slot is claimed, which the writer waits for
	}
	s, at := l.queue.claim()
	if s == nil {
		l.dropped.Add(1)
		return
	}
	s.at, s.limiter, s.decision, s.err, s.units, s.id = time.Now().UnixNano(), e.Limiter, e.Decision, e.Err, e.Units, id
	s.trace = append(s.trace[:0], trace[:min(len(trace), maxTraceBytes)]...)
	if l.o.Keys && len(e.Key) <= maxKeyBytes {
		s.key = append(s.key[:0], e.Key...)
	} else {
		s.key = s.key[:0]
	}
	s.publish(at)
	if l.rests.Load() && l.rests.CompareAndSwap(true, false) {
		select {
		case l.begins <- struct{}{}:
		default:
		}
	}
	if at%uint64(l.o.Batch) == uint64(l.o.Batch)-1 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Hopped does nothing: a decision says where it was made.
func (l *Log) Hopped(context.Context, weir.HopEvent) {}

// Stats is a snapshot of the Log's counters.
func (l *Log) Stats() Stats {
	return Stats{Queued: l.queue.len(), Written: l.written.Load(), Dropped: l.dropped.Load(), Failed: l.failed.Load()}
}

// Close writes what is queued and ends the Log: decisions that come later count as
// dropped. It returns nil once the Sink was given all of it; Stats says what the Sink has
// kept. If ctx ends before, what is still queued counts as dropped, the Sink's context is
// done, and Close returns the error of ctx without waiting for the Sink.
//
// Close the node before it, and the Sink, if that is to be closed, after it.
func (l *Log) Close(ctx context.Context) error {
	l.queue.close()
	l.close()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
	}
	l.giveUp()
	select {
	case <-l.done:
		return nil
	default:
		return fmt.Errorf("audit: closed with %d records queued: %w", l.queue.len(), ctx.Err())
	}
}
