package rules

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/adapt"
	"github.com/weir-go/weir/internal/loglimit"
	"github.com/weir-go/weir/internal/stats"
)

// Nodes debit their measurements of a rule with Adapt to counts of the cluster. So the totals survive the loss of a
// member. One node at a time, the decider, reads the totals and publishes the factor. During a split, each side has
// a decider. After the split, all nodes keep the value of the majority. When a later value of the minority won
// instead, a factor at its minimum cost a third of the goodput for five seconds.
//
// The totals only grow. Counts of a sliding window showed a fifth more starts than ends, because the reports were
// in step with the window. A request is measured until its response begins, because the end of a download depends on
// the client.

const (
	adaptEvery = 250 * time.Millisecond // time from the end of a call of run to the next call, if a rule has requests
	adaptIdle  = time.Second            // the same time, if no rule has requests
	factorTerm = time.Hour              // the time after which a published factor ends; while the rule has requests, the factor is published again after half of this time
)

// newMeasureLimit returns the limit of the counts of measurements. The limit denies nothing, because the Rate is
// never reached in a window of ten minutes.
func newMeasureLimit() weir.Limit {
	return weir.Limit{Name: stats.Uncounted, Algorithm: weir.FixedWindow, Rate: 1e12, Per: 10 * time.Minute, Partition: weir.FailOpen, NoLeases: true}
}

// measures contains the names of the counts of a rule. Each report increases the first count.
var measures = [...]string{"busy", "started", "done", "slow", "failed", "denied"}

// numbers has the units of a count for each of the measures.
type numbers [len(measures)]int64

// busyUnit is the unit of the count of busy.
const busyUnit = 100 * time.Microsecond

// measured returns the numbers of a Sample, which must not be empty.
func measured(s *adapt.Sample) numbers {
	return numbers{1 + int64(s.Busy/busyUnit), s.Started, s.Done, s.Slow, s.Failed, s.Denied}
}

func (n *numbers) sample() adapt.Sample {
	return adapt.Sample{Busy: time.Duration(n[0]) * busyUnit, Started: n[1], Done: n[2], Slow: n[3], Failed: n[4], Denied: n[5]}
}

func measureKey(rule string, measure int) string { return rule + "|" + measures[measure] }

func newAdapter(b *Book) *adapter { return &adapter{book: b, decisions: make(map[string]*decision)} }

// adapter reports the measurements of a node, and decides the factors of which the node is the decider.
type adapter struct {
	book       *Book
	limiter    *weir.Limiter
	decisions  map[string]*decision // keyed by rule
	serving    string               // members with the state Serving at the last call of run
	last       time.Time            // time of the last call of run
	unreported loglimit.Line
}

// decision is the state of a rule on its decider.
type decision struct {
	adapt.State
	version uint64  // version of the last published value
	isKnown bool    // the next call of read can compare the counts with totals
	totals  numbers // counts at the last call of read
	last    numbers // increase of the counts between the last two calls of read
	active  bool    // the counts had changed at the last call of read
}

// run reports the measurements of each rule with Adapt once, and decides the factors of which this node is the
// decider. It returns the time until the next call, or 0 without such rules.
func (a *adapter) run(ctx context.Context) (next time.Duration) {
	s, now, err := a.book.Current(), time.Now(), error(nil)
	if len(s.adaptive) == 0 {
		return 0
	}
	if a.limiter == nil {
		if a.limiter, err = a.book.node.Limiter(newMeasureLimit()); err != nil { // the node is closed
			return adaptIdle
		}
	}
	next = adaptIdle
	ctx, cancel := context.WithTimeout(ctx, adaptEvery)
	defer cancel()
	members := a.book.node.Members()
	serving := slices.DeleteFunc(slices.Clone(members), func(m weir.Member) bool { return m.State != weir.Serving })
	hasMajority := 2*len(serving) > len(members)
	// If the members change, the counts of two sides may be merged. If this process was paused, another node may
	// have decided. In both cases, this node starts again from the published value.
	if names := fmt.Sprint(serving); names != a.serving || now.Sub(a.last) > 2*adaptIdle {
		clear(a.decisions)
		a.serving = names
	}
	a.last = now
	var all sync.WaitGroup
	for name, r := range s.adaptive {
		sample, decides := s.Meter(r).TakeSample(now), a.isDecider(name, serving)
		if !decides {
			delete(a.decisions, name)
			if sample.IsEmpty() {
				continue
			}
		} else if a.decisions[name] == nil {
			a.decisions[name] = new(decision)
		}
		d := a.decisions[name]
		if !sample.IsEmpty() || d != nil && d.active {
			next = adaptEvery
		}
		all.Go(func() {
			a.report(ctx, name, sample)
			if d != nil {
				a.decide(ctx, r, d, hasMajority)
			}
		})
	}
	all.Wait()
	return next
}

// isDecider reports whether this node decides the factor of a rule. The decider is the owner of the first count,
// because the owner reads this count without a message. If the owner is not serving, the decider is another member.
func (a *adapter) isDecider(rule string, serving []weir.Member) bool {
	owner := a.limiter.Owner(measureKey(rule, 0)).Name
	if at := slices.IndexFunc(serving, func(m weir.Member) bool { return m.Name == owner }); at >= 0 {
		return serving[at].Self
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(rule))
	return len(serving) > 0 && serving[int(h.Sum32()%uint32(len(serving)))].Self // the members are sorted by name
}

// report adds the measurements of this node to the counts of the cluster.
func (a *adapter) report(ctx context.Context, rule string, sample adapt.Sample) {
	if sample.IsEmpty() {
		return
	}
	n := measured(&sample)
	eachMeasure(func(i int) {
		if n[i] == 0 {
			return
		}
		if _, err := a.limiter.Debit(ctx, measureKey(rule, i), n[i]); err != nil && ctx.Err() == nil {
			a.logFailure(rule, err)
		}
	})
}

// read returns the sum of the measurements of all nodes over two intervals: since the last call, and the
// interval before the last call. ok is false in the first call, in a call with an error, and in a call that finds
// a decreased count, because its window has ended or because a replica lacks the last reports. After such an
// error or decrease, ok is false in the next call as well.
func (a *adapter) read(ctx context.Context, rule string, d *decision) (sample adapt.Sample, ok bool) {
	var mu sync.Mutex
	now, failed := d.totals, false
	look := func(i int) {
		used, err := a.limiter.Peek(ctx, measureKey(rule, i))
		mu.Lock()
		defer mu.Unlock()
		if failed = failed || err != nil; !failed {
			now[i] = used.Limit - used.Remaining
		}
	}
	if look(0); now[0] != d.totals[0] || !d.isKnown {
		eachMeasure(look)
	}
	var change, sum numbers
	ok = d.isKnown && !failed
	for i := range now {
		change[i] = now[i] - d.totals[i]
		sum[i] = change[i] + d.last[i]
		ok = ok && change[i] >= 0
	}
	d.active = change[0] != 0
	d.totals, d.last = now, change
	if !ok {
		d.last = numbers{}
	}
	d.isKnown = ok || !d.isKnown && !failed // after an error or a decrease, the next call only reads the totals
	return sum.sample(), ok
}

// decide computes the factor of a rule, and publishes it if it has changed in whole percent. While the rule has
// requests, decide also publishes an unchanged factor again once less than half of its term is left. A side
// without a majority publishes low versions, so that the value of the majority replaces its values after the split.
func (a *adapter) decide(ctx context.Context, r *Rule, d *decision, hasMajority bool) {
	sample, ok := a.read(ctx, r.Name, d)
	if !ok {
		return
	}
	now := time.Now()
	a.follow(r.Name, d, now)
	before := d.State
	d.State = d.Next(boundsOf(r), sample, now)
	isSame := math.Round(100*cmp.Or(before.Factor, r.Adapt.Max)) == math.Round(100*d.Factor)
	if isSame && (d.Until.IsZero() || d.Until.Sub(now) > factorTerm/2 || sample.IsEmpty()) {
		return
	}
	d.Until = now.Add(factorTerm).UTC()
	var version uint64 // 0 stands for a version of the present time
	if !hasMajority {
		version = d.version + 1
	}
	if err := a.book.values.Publish(adaptPrefix+r.Name, version, d.Encode()); err != nil {
		d.State = before // so that the next call publishes the change
		a.logFailure(r.Name, err)
		return
	}
	a.book.refresh()
}

// follow replaces the State by a value that another node has published. If the value has ended, the State begins
// anew.
func (a *adapter) follow(rule string, d *decision, now time.Time) {
	switch v, known := a.book.published(adaptPrefix + rule); {
	case !known && !d.Until.IsZero():
		d.State = adapt.State{}
	case known && v.Version != d.version:
		d.version = v.Version
		if own := d.Encode(); !bytes.Equal(own, v.Value) {
			d.State, _ = d.Follow(v.Value, now) // an invalid value is replaced
		}
	}
}

func (a *adapter) logFailure(rule string, err error) {
	if errors.Is(err, weir.ErrClosed) {
		return
	}
	if unlogged, due := a.unreported.Due(time.Now()); due {
		a.book.log.Warn("cannot adapt a rule: its factor stays", "rule", rule, "error", err, "unlogged", unlogged)
	}
}

// eachMeasure calls f with each index of measures at the same time, because each count may have another owner.
func eachMeasure(f func(measure int)) {
	var all sync.WaitGroup
	for i := range measures {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// boundsOf returns the bounds of the factor of a rule with Adapt.
func boundsOf(r *Rule) adapt.Bounds {
	return adapt.Bounds{Latency: r.Adapt.Latency, Slow: r.Adapt.Slow, Errors: r.Adapt.Errors, Min: r.Adapt.Min, Max: r.Adapt.Max, InFlight: r.holds()}
}
