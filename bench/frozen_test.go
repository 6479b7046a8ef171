package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

const (
	frozenMembers = 3
	frozenLoad    = 20_000 // checks a second, on those that are not frozen together
	thawedLoad    = 1_000  // on the one that was, from then on
	frozenFor     = 45 * time.Second
	thawedFor     = 30 * time.Second // from the thaw until the benchmark has seen enough
	thawedLap     = time.Second
	// frozenTimeout is weir.Config's default: the others are to find out by themselves
	// that nobody answers.
	frozenTimeout = 20 * time.Millisecond

	// frozenKeys are so many that some 240,000 keys of the frozen node's are asked for
	// meanwhile: a third of 900,000 checks, few of them twice for one key.
	frozenKeys = 3 * worker.Million
	// hotKeys are asked for in one check of so many, often enough to be used up. They
	// say how much was admitted beyond the limit.
	hotKeys  = 5_000
	hotOften = 10
	hotRate  = 5 // of each key, in a window that outlasts the benchmark
)

// BenchmarkFrozen is what it costs that one of three nodes is frozen, while the others
// go on with its keys, and thawed: what checks take, how soon it is noticed, and how
// long after the thaw all checks are exact again. N is the number of freezes, each in
// a new cluster.
func BenchmarkFrozen(b *testing.B) {
	var all []thawed
	for b.Loop() {
		all = append(all, freezeOnce(b))
	}
	of := func(name string, figure func(*thawed) float64) {
		var figures []float64
		for i := range all {
			figures = append(figures, figure(&all[i]))
		}
		b.ReportMetric(median(figures), name)
	}
	longest := func(l Lap) float64 { return milliseconds(slices.Max(l.Latencies)) }
	of("s-until-noticed", func(t *thawed) float64 { return t.noticed.Seconds() })
	of("s-until-heard", func(t *thawed) float64 { return t.heard.Seconds() })
	of("s-until-exact", func(t *thawed) float64 { return t.exact.Seconds() })
	of("s-until-steady", func(t *thawed) float64 { return t.steady.Seconds() })
	of("p99-before-ms", func(t *thawed) float64 { return milliseconds(t.before.p99()) })
	of("p99-frozen-ms", func(t *thawed) float64 { return milliseconds(t.during.p99()) })
	of("max-frozen-ms", func(t *thawed) float64 { return longest(t.during) })
	of("p99-thawed-ms", func(t *thawed) float64 { return milliseconds(t.after.p99()) })
	of("max-thawed-ms", func(t *thawed) float64 { return longest(t.after) })
	of("tallies", func(t *thawed) float64 { return float64(t.tallies) })
	of("gone-frozen", func(t *thawed) float64 { return float64(t.goneDuring) })
	of("gone-thawed", func(t *thawed) float64 { return float64(t.goneAfter) })
	of("%strays-before", func(t *thawed) float64 { return t.before.strays() })
	of("%strays-thawed", func(t *thawed) float64 { return t.after.strays() })
	of("%over", func(t *thawed) float64 { return 100 * float64(t.over) / (hotKeys * hotRate) })
	of("most-of-L", func(t *thawed) float64 { return float64(t.most) / hotRate })
	b.ReportMetric(0, "ns/op")
}

// thawed is what one freeze came to.
type thawed struct {
	noticed               time.Duration // from the freeze until each of the others does not hear it
	heard, exact          time.Duration // from the thaw until all hear all, and until checks are exact
	steady                time.Duration // from the thaw until the last second in which more than 1 % of the checks were not decided by authority
	before, during, after Lap
	tallies               int // counts that had been spent from without authority, at the thaw
	goneDuring, goneAfter int // times that a member which lived was taken for gone, before the thaw and after it
	over, most            int // units of hot keys beyond their limit, and the most of one
}

func freezeOnce(b *testing.B) (t thawed) {
	members := startMembersWith(b, frozenMembers, MemberConfig{Timeout: frozenTimeout})
	defer func() { endMembers(b, members) }()
	victim, others := members[0], members[1:]
	call[int](b, members, "Member.Watch", 0)
	call[int](b, others, "Member.Spend", frozenLoad/len(others))
	time.Sleep(joinBefore)
	t.before = merge(call[Lap](b, others, "Member.Lap", 0))

	froze := time.Now()
	if err := victim.Freeze(); err != nil {
		b.Skip(err)
	}
	resume := sync.OnceFunc(func() { require.NoError(b, victim.Thaw()) })
	defer resume() // it could not be told to end
	time.Sleep(frozenFor)
	for _, tallies := range call[int](b, others, "Member.Tallies", 0) {
		t.tallies = max(t.tallies, tallies)
	}
	t.during = merge(call[Lap](b, others, "Member.Lap", 0))

	thaw := time.Now()
	resume()
	call[int](b, []*member{victim}, "Member.Spend", thawedLoad)
	exact := calling[int64](b, members, "Member.ExactAll", 0)
	var after []Lap
	for at := thawedLap; at <= thawedFor; at += thawedLap {
		time.Sleep(time.Until(thaw.Add(at)))
		lap := merge(call[Lap](b, members, "Member.Lap", 0))
		if lap.strays() > 1 {
			t.steady = at
		}
		after = append(after, lap)
	}
	t.after = merge(after)
	t.exact = since(thaw, slices.Max(exact()))

	granted := make([]int, hotKeys)
	for i, w := range call[Witness](b, members, "Member.Witness", 0) {
		for key, n := range w.Granted {
			granted[key] += n
		}
		noticed := members[i] == victim
		for _, s := range w.Sights {
			switch at := time.Unix(0, s.At); {
			case at.Before(froze):
			case s.Heard:
				t.heard = max(t.heard, since(thaw, s.At))
			case !noticed && s.Of == victim.addr && at.Before(thaw):
				noticed = true
				t.noticed = max(t.noticed, at.Sub(froze))
			case at.Before(thaw):
				t.goneDuring++
			default:
				t.goneAfter++
			}
		}
	}
	for _, n := range granted {
		t.over += max(0, n-hotRate)
		t.most = max(t.most, n)
	}
	return t
}

// strays is the part of a hundred checks that was not decided by authority.
func (l Lap) strays() float64 { return 100 * float64(l.Strays) / float64(max(1, len(l.Latencies))) }

func since(begin time.Time, at int64) time.Duration {
	return max(0, time.Unix(0, at).Sub(begin))
}

// Witness is what a member has seen.
type Witness struct {
	Granted []int   // of each hot key
	Sights  []Sight // of other members, in their order
}

// Sight is that a member was taken for gone, or not any more, in Unix nanoseconds.
type Sight struct {
	Of    string // its address
	Heard bool
	At    int64
}

// frozenSide is a member's side of BenchmarkFrozen.
type frozenSide struct {
	limiter *weir.Limiter
	granted [hotKeys]atomic.Int64
	done    chan struct{}
	watch   sync.WaitGroup

	mu     sync.Mutex
	sights []Sight
}

// sightEvery is how often a member's view is looked at.
const sightEvery = 5 * time.Millisecond

// Watch has the member count by a limit that can be used up, and note whom it takes
// for gone.
func (s *service) Watch(_ int, _ *int) (err error) {
	f := &frozenSide{done: make(chan struct{})}
	if f.limiter, err = s.node.Limiter(weir.Limit{Name: "frozen", Algorithm: weir.FixedWindow, Rate: hotRate, Per: time.Hour}); err != nil {
		return err
	}
	s.frozen = f
	f.watch.Go(func() {
		tick := time.NewTicker(sightEvery)
		defer tick.Stop()
		missing := map[string]bool{}
		for {
			select {
			case <-tick.C:
				f.see(s.node.Members(), missing)
			case <-f.done:
				return
			}
		}
	})
	return nil
}

func (f *frozenSide) see(members []weir.Member, missing map[string]bool) {
	for _, m := range members {
		gone := m.State == weir.Unheard || m.State == weir.Dead
		if gone == missing[m.Addr] {
			continue
		}
		missing[m.Addr] = gone
		f.mu.Lock()
		f.sights = append(f.sights, Sight{m.Addr, !gone, time.Now().UnixNano()})
		f.mu.Unlock()
	}
}

// end is also of a member that does not watch.
func (f *frozenSide) end() {
	if f != nil {
		close(f.done)
		f.watch.Wait()
	}
}

// Spend begins a steady load of so many checks a second.
func (s *service) Spend(perSecond int, _ *int) error {
	s.load = newSteady(perSecond, s.frozen.spend)
	return nil
}

func (f *frozenSide) spend() weir.Source {
	hot := rand.IntN(hotOften) == 0
	i := rand.IntN(frozenKeys)
	if hot {
		i = rand.IntN(hotKeys)
	}
	d, _ := f.limiter.Allow(context.Background(), frozenKey(hot, i))
	if hot && d.Allowed {
		f.granted[i].Add(1)
	}
	return d.Source
}

// frozenKey is one of the hot keys, or of the others.
func frozenKey(hot bool, i int) string {
	if hot {
		i += frozenKeys
	}
	return string(worker.AppendKey(make([]byte, 0, worker.KeyBytes), i))
}

// ExactAll waits until a hundred of all keys in a row are decided by those with
// authority, and answers with when that was, in Unix nanoseconds.
func (s *service) ExactAll(_ int, at *int64) error {
	var keys []string
	for i := range 100 {
		keys = append(keys, frozenKey(false, i*(frozenKeys/100)))
	}
	err := untilExactOf(s.frozen.limiter, keys, memberWait)
	*at = time.Now().UnixNano()
	return err
}

// Tallies answers with how many counts were spent from without authority.
func (s *service) Tallies(_ int, tallies *int) error {
	*tallies = s.node.Stats().Stream.Tallies
	return nil
}

// Witness answers with what the member has seen.
func (s *service) Witness(_ int, w *Witness) error {
	f := s.frozen
	for i := range f.granted {
		w.Granted = append(w.Granted, int(f.granted[i].Load()))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Sights = slices.Clone(f.sights)
	return nil
}
