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

// Sink stores records: in a file, a topic or a table. A Log calls it sequentially, from one
// goroutine.
type Sink interface {
	// Write writes a batch of at least one record, and returns the number of records that are
	// stored. If a record is not stored, the error must not be nil. Write must return when ctx is
	// done: after Options.Timeout, or when Log.Close gives up. Write must not retain the batch.
	//
	// A Log never writes a batch twice. A Sink that can repeat a write without duplicates should
	// do so itself, within ctx.
	Write(ctx context.Context, batch []Record) (kept int, err error)
}

// Options configure a Log. The zero value records every denial, with the ID of its key.
type Options struct {
	// Sample is the part of the keys whose admissions are recorded as well, 0 to 1. The ID of a
	// key determines whether the key is in the sample. All nodes of a cluster record every
	// decision about such a key, so that its records add up to the units that the limit granted.
	// Only those who know Config.Seed can predict which keys are in the sample. Without a Seed,
	// anybody can.
	Sample float64

	// SampledOnly omits the denials of keys that are not in the Sample, for a service
	// that denies floods continuously.
	SampledOnly bool

	// Keys adds the text of keys to records. If false, records only have IDs.
	Keys bool

	// Clients adds the whole address of the client and its User-Agent to records. If false, records
	// have the network of the address, and the names of the products in the User-Agent.
	Clients bool

	// Trace returns the ID of the trace of a check, or "". The goroutine of the check calls
	// Trace, and only for decisions that must be recorded. If nil, records have no trace.
	Trace func(ctx context.Context) string

	Queue   int           // maximum number of queued records; further records are dropped. 8,192 if zero (3 MB, plus the length of the texts), at most 1,048,576
	Batch   int           // maximum number of records in a batch. 512 if zero, at most Queue
	Every   time.Duration // maximum time for which a record waits for a full batch. 1 s if zero, 1 ms to 1 h
	Timeout time.Duration // maximum time of the Sink for a batch. 10 s if zero, 1 ms to 1 h

	Logger *slog.Logger // receives the number of lost records, at most once a minute and after Close. slog.Default if nil
}

const (
	defaultQueue   = 8192
	maxQueue       = 1 << 20
	defaultBatch   = 512
	defaultEvery   = time.Second
	defaultTimeout = 10 * time.Second
	maxWait        = time.Hour
)

// Validate returns nil if the Options are valid, and otherwise an error that joins all errors
// found. Each of them is weir.ErrInvalid.
func (o Options) Validate() error {
	var errs []error
	refuse := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("%w audit.Options: "+format, append([]any{weir.ErrInvalid}, args...)...))
		}
	}
	refuse(!(o.Sample >= 0 && o.Sample <= 1), "Sample is %v: use 0 (only denials) to 1 (every decision)", o.Sample)
	refuse(o.SampledOnly && o.Sample == 0, "SampledOnly without a Sample records nothing: set Sample to the part of the keys to record")
	d := o.withDefaults()
	refuse(d.Queue < 1 || d.Queue > maxQueue, "Queue is %d: use 1 to %d, or 0 for %d", o.Queue, maxQueue, defaultQueue)
	refuse(d.Batch < 1 || d.Batch > d.Queue, "Batch is %d: use 1 to the Queue's %d, or 0 for %d", o.Batch, d.Queue, min(defaultBatch, d.Queue))
	refuse(d.Every < time.Millisecond || d.Every > maxWait, "Every is %v: use %v to %v, or 0 for %v", d.Every, time.Millisecond, maxWait, defaultEvery)
	refuse(d.Timeout < time.Millisecond || d.Timeout > maxWait, "Timeout is %v: use %v to %v, or 0 for %v", d.Timeout, time.Millisecond, maxWait, defaultTimeout)
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

// Log is a weir.Observer that records decisions, for Config.Observer of a node. It records
//
//   - each denial of a limit, including the denials of shadows, and each check that returned
//     an error. With SampledOnly, only the denials and errors of keys in the Sample;
//   - each admission of a key in the Sample. If only one limit of an AllowAll denies, the
//     records of the other limits have Allowed set, although no units were spent.
//
// A Peek is not recorded. A Wait has a record for each time at which it asks the limit.
//
// Decided may be called concurrently. The Log has a goroutine that reads the queue and
// calls the Sink, until Close.
type Log struct {
	o      Options
	sink   Sink
	queue  *queue
	wake   chan struct{} // holds a token if a batch may be complete
	rests  atomic.Bool   // whether the writer waits for the next record, without a timer
	begins chan struct{} // holds a token if a record has arrived while the writer rested

	asker atomic.Pointer[asker] // node of the first decision; nil before that

	written, dropped, failed atomic.Uint64

	closing context.Context    // done when Close was called
	close   context.CancelFunc //
	given   context.Context    // done when Close has given up before all records were written
	giveUp  context.CancelFunc //
	done    chan struct{}      // closed when the writer has ended
}

// Stats counts the decisions to be recorded. Each decision is counted in one field. The
// decisions of the batch that is being written are in no field.
type Stats struct {
	Queued  int    // records that wait to be written
	Written uint64 // records that the Sink has stored
	Dropped uint64 // records for which the queue was full or the Log closed
	Failed  uint64 // records that the Sink has not stored, because it returned an error
}

// New returns a Log that writes to a Sink, until Close. The error is weir.ErrInvalid.
func New(sink Sink, o Options) (*Log, error) {
	if sink == nil {
		return nil, fmt.Errorf("%w audit.New: the Sink is nil: pass JSONLines, or a Sink of your own", weir.ErrInvalid)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	l := &Log{o: o, sink: sink, queue: newQueue(o.Queue), wake: make(chan struct{}, 1), begins: make(chan struct{}, 1), done: make(chan struct{})}
	l.closing, l.close = context.WithCancel(context.Background())
	l.given, l.giveUp = context.WithCancel(context.Background())
	go l.run()
	return l, nil
}

// threshold returns a number t, so that the given part of all 64-bit numbers is at most t.
func threshold(part float64) uint64 {
	if part >= 1 {
		return math.MaxUint64
	}
	return uint64(part * (1 << 64))
}

// InSample reports whether a Log with this Sample records all decisions about a key. The ID is a
// keyed hash, so that each half is like a random number.
func InSample(id ID, sample float64) bool {
	return sample > 0 && binary.BigEndian.Uint64(id[8:]) <= threshold(sample)
}

// Decided queues a record of the decision, if the Options select it.
func (l *Log) Decided(ctx context.Context, e weir.DecisionEvent) {
	if l.asker.Load() == nil {
		l.asker.Store(askerOf(e.Limiter.Node())) // now, because a node that has left has no name
	}
	if e.Peek || e.Decision.Allowed && l.o.Sample == 0 {
		return
	}
	id := ID(e.Limiter.ID(e.Key))
	if (e.Decision.Allowed || l.o.SampledOnly) && !InSample(id, l.o.Sample) {
		return
	}
	var trace string
	if l.o.Trace != nil {
		trace = l.o.Trace(ctx) // before a slot is claimed, because the writer waits for claimed slots
	}
	s, at := l.queue.claim()
	if s == nil {
		l.dropped.Add(1)
		return
	}
	key := e.Key
	if e.Key = ""; !l.o.Keys || len(key) > maxKeyBytes {
		key = ""
	}
	s.at, s.event, s.id = time.Now().UnixNano(), e, id
	setText(&s.key, key, maxKeyBytes)
	setText(&s.trace, trace, maxTraceBytes)
	s.setCaller(weir.CallerOf(ctx))
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

// UsesCallers returns true, so that records have the weir.Caller of a check.
func (l *Log) UsesCallers() bool { return true }

// Hopped does nothing, because decisions have their Source.
func (l *Log) Hopped(context.Context, weir.HopEvent) {}

// Stats returns a snapshot of the counters of the Log.
func (l *Log) Stats() Stats {
	return Stats{Queued: l.queue.len(), Written: l.written.Load(), Dropped: l.dropped.Load(), Failed: l.failed.Load()}
}

// Close writes the queued records and ends the Log. Later decisions are counted as
// dropped. Close returns nil after all records have been passed to the Sink, whether or not
// the Sink has stored them (see Stats). If ctx is done earlier, the queued records are
// counted as dropped, the context of the Sink is cancelled, and Close returns the error
// of ctx without waiting for the Sink.
//
// Close the node before the Log, and the Sink after the Log.
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
		return fmt.Errorf("audit: the context of Close ended with %d records in the queue: %w", l.queue.len(), ctx.Err())
	}
}
