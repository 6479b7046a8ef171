package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/rules"
)

// The names of limits. A key counts under one of them.
const (
	hotLimit   = "hot"  // a round's one key that all ask for, of which owners lend units
	newLimit   = "new"  // keys that are asked for once or twice
	pairLimit  = "pair" // asked for together with pair2Limit, all or none
	pair2Limit = "pair2"
	giveLimit  = "give"  // what is taken is given back
	quotaLimit = "quota" // of which a round's keys are used up: what a fault resets shows
	ruledLimit = "ruled" // from the file of rules
	keptLimit  = "kept"  // a day's, asked for in the rounds in which all nodes stop
)

// per is the window of most limits, short enough that many lie between two faults.
const per = time.Second

// lasting is the Per of limits whose counts must survive a fault or a stop of all nodes. It is much shorter
// than a long run, so that the number of these counts is constant from the first third to the last.
const lasting = 5 * time.Minute

// limits are those of the traffic, by name, of so many nodes that make so many checks a
// second each. Those of ruledLimit are the file's, of which this has the highest.
func limits(nodes, rate int) map[string]weir.Limit {
	all := make(map[string]weir.Limit)
	for _, l := range []weir.Limit{
		{Name: "log", Algorithm: weir.SlidingLog, Rate: 20, Per: per},
		{Name: "window", Algorithm: weir.SlidingWindow, Rate: 20, Per: per},
		{Name: "fixed", Algorithm: weir.FixedWindow, Rate: 20, Per: per},
		{Name: "token", Algorithm: weir.TokenBucket, Rate: 20, Burst: 10, Per: per},
		{Name: "leaky", Algorithm: weir.LeakyBucket, Rate: 20, Burst: 10, Per: per},
		{Name: hotLimit, Algorithm: weir.SlidingLog, Rate: 1000, Per: lasting, Durable: weir.Durable},
		{Name: newLimit, Algorithm: weir.SlidingLog, Rate: 5, Per: per},
		{Name: pairLimit, Algorithm: weir.SlidingLog, Rate: 20, Per: per},
		{Name: pair2Limit, Algorithm: weir.SlidingLog, Rate: 30, Per: per},
		{Name: giveLimit, Algorithm: weir.SlidingLog, Rate: 30, Per: lasting, Durable: weir.Durable},
		{Name: quotaLimit, Algorithm: weir.SlidingLog, Rate: 30, Per: lasting, Durable: weir.Durable},
		{Name: ruledLimit, Algorithm: weir.SlidingLog, Rate: ruledMost, Per: per},
		{Name: keptLimit, Algorithm: weir.FixedWindow, Rate: max(1, int64(nodes*rate*keptPart*keptSeconds/100/keptKeys)), Per: 24 * time.Hour, Durable: weir.Durable, NoLeases: true},
	} {
		all[l.Name] = l
	}
	return all
}

// steady are the limits of which each of a few keys is asked for more than it has.
var steady = [...]string{"log", "window", "fixed", "token", "leaky"}

const (
	steadyKeys = 3 // of each
	quotaKeys  = 4 // of a round
	keptKeys   = 4 // of a round in which all nodes stop
	askers     = 4 // goroutines of a node that ask

	// In a round in which all nodes stop so many checks in a hundred are of kept keys, each of
	// which is used up in so many seconds. The stop comes amid it, and after two snapshots.
	keptPart    = 8
	keptSeconds = 6
)

// traffic asks a node, as a service that embeds it does, until its context is done.
// It rests while somebody holds rest.
type traffic struct {
	node     *weir.Node
	book     *rules.Book
	limiters map[string]*weir.Limiter
	late     *lab.Lateness
	rest     sync.RWMutex
	round    atomic.Int64
	kept     atomic.Bool // kept keys are asked for

	mu  sync.Mutex
	now harvest
}

// harvest is what came of the checks since the last one. Every moment is in Unix
// nanoseconds of the machine's clock.
type harvest struct {
	Asked    int
	Denied   int
	Sources  map[string]int      `json:",omitempty"` // decisions, by where they were made
	Accounts map[string]*account `json:",omitempty"` // by limit and key
	Given    int                 // refunds
	Errors   int
	Error    string  // the first
	Slowest  slowest // check
}

// slowest is the check that took longest, without what its process was late meanwhile.
type slowest struct {
	Took, Late time.Duration
	At         int64  // when it began, in Unix nanoseconds
	Node       int    // from 1
	Of         string // limits and keys
	Source     string
}

// since describes the check for a reader who looks for the reason. begun is the run's.
func (s *slowest) since(begun time.Time) string {
	return fmt.Sprintf("%v, of %s on node %d after %.1f s, answered by %s, while the process was late by %v",
		s.Took.Round(100*time.Microsecond), s.Of, s.Node, time.Unix(0, s.At).Sub(begun).Seconds(), s.Source, s.Late.Round(100*time.Microsecond))
}

func newTraffic(node *weir.Node, book *rules.Book, late *lab.Lateness, limits map[string]weir.Limit) (*traffic, error) {
	t := &traffic{node: node, book: book, limiters: make(map[string]*weir.Limiter), late: late}
	for name, l := range limits {
		if name == ruledLimit {
			continue
		}
		var err error
		if t.limiters[name], err = node.Limiter(l); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// run asks so many times a second in all, as drawn from a seed.
func (t *traffic) run(ctx context.Context, rate int, seed uint64) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range askers {
		all.Go(func() {
			draw := rand.New(rand.NewPCG(seed, uint64(i)))
			tick := time.NewTicker(askers * time.Second / time.Duration(rate))
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				t.rest.RLock()
				t.ask(draw)
				t.rest.RUnlock()
			}
		})
	}
}

// ask makes one check.
func (t *traffic) ask(draw *rand.Rand) {
	one := func(limit, key string) { t.check(limit, key, t.limiters[limit]) }
	if t.kept.Load() && draw.IntN(100) < keptPart {
		one(keptLimit, fmt.Sprint(t.round.Load(), "/", draw.IntN(keptKeys)))
		return
	}
	switch n := draw.IntN(100); {
	case n < 45:
		one(steady[n%len(steady)], fmt.Sprint(draw.IntN(steadyKeys)))
	case n < 65:
		one(hotLimit, fmt.Sprint(t.round.Load()))
	case n < 75:
		one(newLimit, fmt.Sprint(draw.Uint64()))
	case n < 80:
		t.refunded(fmt.Sprint(t.round.Load()))
	case n < 87:
		t.pair(fmt.Sprint(draw.IntN(steadyKeys)))
	case n < 95:
		one(quotaLimit, fmt.Sprint(t.round.Load(), "/", draw.IntN(quotaKeys)))
	default:
		s := t.book.Current()
		if l, _, ok := s.Limit(ruledLimit); ok {
			key := fmt.Sprint(draw.IntN(steadyKeys))
			t.check(ruledLimit, key, s.Limiter(l, "", key))
		}
	}
}

// check asks a limiter for a unit, and takes down what came of it.
func (t *traffic) check(limit, key string, l *weir.Limiter) {
	t.time(func() (weir.Decision, error) { return l.Allow(context.Background(), key) }, limit+" "+key)
}

// refunded takes a unit and gives it back: of any number the limit grants one more.
// Units that are given back hold no window, so they are not among the admitted.
func (t *traffic) refunded(key string) {
	l := t.limiters[giveLimit]
	d, ok := t.time(func() (weir.Decision, error) { return l.Allow(context.Background(), key) })
	if !ok || !d.Allowed {
		return
	}
	err := l.Refund(context.Background(), key, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.Given++
	t.failed(err)
}

// pair asks for a unit of each of two limits, all or none.
func (t *traffic) pair(key string) {
	t.time(func() (weir.Decision, error) {
		ds, err := t.node.AllowAll(context.Background(),
			weir.Ask{Limiter: t.limiters[pairLimit], Key: key}, weir.Ask{Limiter: t.limiters[pair2Limit], Key: key})
		if err != nil {
			return weir.Decision{}, err
		}
		d := ds.Strictest()
		d.Allowed = ds.Allowed()
		for _, one := range ds {
			d.Source = worse(d.Source, one.Source)
		}
		return d, nil
	}, pairLimit+" "+key, pair2Limit+" "+key)
}

// worse is the source that says less of what all have spent.
func worse(a, b weir.Source) weir.Source {
	rank := func(s weir.Source) int {
		switch {
		case shared(s):
			return 2
		case s == weir.StandIn:
			return 1
		}
		return 0
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}

func shared(s weir.Source) bool {
	return s == weir.Budget || s == weir.FailedOpen || s == weir.FailedClosed
}

// time makes a check, and takes down what came of it, under each of the names.
func (t *traffic) time(ask func() (weir.Decision, error), names ...string) (d weir.Decision, ok bool) {
	before, from := t.late.Total(), time.Now() // in this order: the process may be frozen between the two
	d, err := ask()
	to := time.Now()
	late := t.late.Total() - before
	asked := lab.Between(from.UnixNano(), to.UnixNano())
	t.mu.Lock()
	defer t.mu.Unlock()
	h := &t.now
	h.Asked++
	if took := to.Sub(from) - late; took > h.Slowest.Took {
		h.Slowest = slowest{Took: took, Late: late, At: from.UnixNano(), Of: cmp.Or(strings.Join(names, " and "), giveLimit), Source: d.Source.String()}
	}
	if t.failed(err); err != nil {
		return d, false
	}
	if h.Sources == nil {
		h.Sources, h.Accounts = make(map[string]int), make(map[string]*account)
	}
	h.Sources[d.Source.String()]++
	for _, name := range names {
		a := accountOf(h.Accounts, name)
		switch {
		case shared(d.Source):
			a.Shared = append(a.Shared, asked)
		case d.Source == weir.StandIn:
			a.Alone = append(a.Alone, stoodIn{asked, t.ownerOf(name)})
		}
		if d.Allowed {
			a.Admitted = append(a.Admitted, asked)
		} else {
			a.Denied = max(a.Denied, asked.From)
		}
	}
	if !d.Allowed {
		h.Denied++
	}
	return d, true
}

// ownerOf is the index of the node that owns a key, named by its limit and key; -1 if
// that is not known.
func (t *traffic) ownerOf(name string) int64 {
	limit, key, _ := strings.Cut(name, " ")
	l := t.limiters[limit]
	if l == nil { // the file's
		s := t.book.Current()
		of, _, ok := s.Limit(limit)
		if !ok {
			return -1
		}
		l = s.Limiter(of, "", key)
	}
	var number int64
	if _, err := fmt.Sscanf(l.Owner(key).Name, "node-%d-", &number); err != nil {
		return -1
	}
	return number - 1
}

// failed takes down an error; t.mu is held.
func (t *traffic) failed(err error) {
	if err == nil {
		return
	}
	if t.now.Errors++; t.now.Error == "" {
		t.now.Error = err.Error()
	}
}

// harvest is what came of the checks since it was called last.
func (t *traffic) harvest() harvest {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.now
	t.now = harvest{}
	return h
}
