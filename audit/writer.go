package audit

import (
	"context"
	"runtime"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
)

// complaintEvery is the minimum time between two log lines about lost records, except for the
// last line, after Close.
const complaintEvery = time.Minute

// writer is the state of the goroutine of a Log. Only the writer reads the queue and calls the
// Sink.
type writer struct {
	*Log
	batch []Record

	asker *asker // node of the previous record; nil before the first record

	complained time.Time
	told       Stats // the Stats at the last log line
	lastErr    error // last error of the Sink since the last log line, or nil
}

// asker is a node, with the name and the region that its records have.
type asker struct {
	node         *weir.Node
	name, region string
}

// askerOf returns the asker for a node. The name is empty if the node has left.
func askerOf(n *weir.Node) *asker {
	a := &asker{node: n}
	for _, m := range n.Members() {
		if m.Self {
			a.name, a.region = m.Name, m.Region
		}
	}
	return a
}

// run writes records until the Log is closed and the queue is empty. Once Close has given
// up, run drops the queued records. While there is nothing to write or to log, the ticker
// is stopped.
func (l *Log) run() {
	defer close(l.done)
	w := &writer{Log: l, batch: make([]Record, 0, l.o.Batch)}
	tick := time.NewTicker(l.o.Every)
	defer tick.Stop()
	for l.closing.Err() == nil {
		select {
		case <-tick.C:
		case <-l.wake:
		case <-l.begins:
			tick.Reset(l.o.Every)
			continue
		case <-l.closing.Done():
		}
		if l.rests.Load() {
			tick.Stop() // the batch that wake announced is already written; the next record signals begins
			continue
		}
		w.drain()
		w.complain(time.Now())
		if w.mayRest() {
			tick.Stop()
		}
	}
	for w.drain(); l.queue.len() > 0; w.drain() {
		runtime.Gosched() // a check has claimed a slot and has not published it yet
	}
	w.complain(time.Time{})
}

// mayRest reports whether the writer has no work until the next record. It sets rests before
// it looks at the queue, so that a record that arrives later signals begins.
func (w *writer) mayRest() bool {
	if is := w.Stats(); is.Dropped != w.told.Dropped || is.Failed != w.told.Failed {
		return false
	}
	w.rests.Store(true)
	return w.queue.len() == 0 || !w.rests.CompareAndSwap(true, false)
}

// drain writes the queued records.
func (w *writer) drain() {
	for {
		s := w.queue.nextPublished()
		if s == nil {
			w.flush()
			return
		}
		w.batch = append(w.batch, w.record(&s.entry))
		w.queue.release(s)
		if len(w.batch) == cap(w.batch) {
			w.flush()
		}
	}
}

// flush writes the batch to the Sink.
func (w *writer) flush() {
	if len(w.batch) == 0 {
		return
	}
	defer func() {
		clear(w.batch)
		w.batch = w.batch[:0]
	}()
	if w.given.Err() != nil {
		w.dropped.Add(uint64(len(w.batch)))
		return
	}
	ctx, cancel := context.WithTimeout(w.given, w.o.Timeout)
	defer cancel()
	kept, err := w.sink.Write(ctx, w.batch)
	if err == nil {
		kept = len(w.batch)
	} else {
		kept, w.lastErr = max(0, min(kept, len(w.batch))), err
	}
	w.written.Add(uint64(kept))
	w.failed.Add(uint64(len(w.batch) - kept))
	w.complain(time.Now())
}

// record returns the Record of an entry.
func (w *writer) record(e *entry) Record {
	limiter, d := e.event.Limiter, &e.event.Decision
	if node := limiter.Node(); w.asker == nil || node != w.asker.node {
		if w.asker = w.Log.asker.Load(); node != w.asker.node {
			w.asker = askerOf(node)
		}
	}
	limit := limiter.Limit()
	r := Record{
		Time: time.Unix(0, e.at).UTC(), Node: w.asker.name, Region: w.asker.region,
		Limit: limit.Name, Version: limit.Version, ID: e.id, Key: string(e.key), Units: e.event.Units,
		Operation: e.event.Operation, Request: e.event.Request, Refused: e.event.Refused, Critical: e.event.Critical,
		Allowed: d.Allowed, Shadow: d.Shadow, Banned: d.Banned, Paused: d.Paused, Source: d.Source.String(),
		Algorithm: limit.Algorithm.String(), Rate: limit.Rate, Burst: limit.Burst, Keep: limit.Keep, Overridden: limit.Overridden, Factor: limit.Factor,
		Capacity: d.Limit, Used: max(0, d.Limit-d.Remaining), Remaining: d.Remaining, RetryAfterMS: milliseconds(d.RetryAfter),
		Decided: e.event.At.UTC(), TookUS: e.event.Took.Microseconds(),
		Route: string(e.route), Tier: string(e.tier), Client: w.o.client(e.client), Agent: w.o.agent(string(e.agent)),
		Sample: w.o.Sample, Trace: string(e.trace),
	}
	if e.event.Request != 0 {
		r.Asks = e.event.Asks
	}
	if limit.Per != 0 {
		r.Per = enum.Duration(limit.Per)
	}
	if limit.Calendar != weir.NoCalendar {
		r.Calendar = limit.Calendar.String()
	}
	if err := e.event.Err; err != nil {
		r.Error = err.Error()
		r.Error = r.Error[:min(len(r.Error), maxErrorBytes)]
	}
	return r
}

// complain logs the number of records that were lost since the last log line, if there are
// any, at most once in complaintEvery. If now is zero, complain does not wait for that time.
func (w *writer) complain(now time.Time) {
	is := w.Stats()
	dropped, failed := is.Dropped-w.told.Dropped, is.Failed-w.told.Failed
	if dropped+failed == 0 || !now.IsZero() && now.Sub(w.complained) < complaintEvery {
		return
	}
	attrs := []any{"dropped", dropped, "failed", failed}
	if w.lastErr != nil {
		attrs = append(attrs, "error", w.lastErr)
	}
	w.o.Logger.Warn("audit records were lost", attrs...)
	w.complained, w.told, w.lastErr = now, is, nil
}
