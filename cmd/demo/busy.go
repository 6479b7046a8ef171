package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// Of the load under which no gateway leaves the machine idle time.
const (
	// busyFor is how long it lasts, in a run of usual length.
	busyFor = 3 * time.Second
	// busyWork is what a goroutine works between two checks, and busyPerCore how many
	// goroutines each gateway has for each core.
	busyWork    = 200 * time.Microsecond
	busyPerCore = 8
	// busyKeys are few enough that most are used up.
	busyKeys = 1000
	// exactKeys, which nobody has spent from, show that checks are exact again once all
	// of them in a row are decided by authority, at each gateway.
	exactKeys = 100
)

// What the load has to show.
const (
	leastByAuthority = 90 // of a hundred checks
	exactWithin      = time.Second
	// exactLooks is for how long a gateway looks whether they are.
	exactLooks = 2 * exactWithin
	// mostByOthers is how much of the machine, in parts of a hundred, programs that are
	// not the demo's may have meanwhile, unless more than spare of it was idle. With more
	// the load is not the one that leastByAuthority is about: gateways wait for cores
	// longer than a check may take.
	mostByOthers = 50
	spare        = 10
)

// busyLimit has a window that outlasts the demo: whatever was granted stays used.
var busyLimit = weir.Limit{Name: "busy", Algorithm: weir.FixedWindow, Rate: 5, Per: time.Hour}

func busyKey(i int) string { return fmt.Sprintf("key-%04d", i) }

// busyTime is how long gateways are busy in a run of this length.
func busyTime(duration time.Duration) time.Duration {
	return min(busyFor, (duration / 12).Truncate(10*time.Millisecond))
}

// strain is what became of the checks that a gateway, or all of them, made while it
// was busy.
type strain struct {
	Asked, Granted [busyKeys]int // of each key
	Elsewhere      [busyKeys]int // checks that were not decided by authority
	At             [places]int
	Took           lab.Histogram // with the time that the goroutine waited for a core
	Errors         int
	Cores          coreTime
	Over, Exact    int64 // when the load ended and when checks were exact again, in Unix nanoseconds; never if they were not in time
}

// coreTime is what became of the machine's cores while gateways were busy, as far as the
// system tells. Of several gateways it has the sums.
type coreTime struct {
	Told       int           // by so many gateways
	Used, Idle time.Duration // time of all cores
	Own        time.Duration // of Used, what the gateways' processes had, and the demo's
}

// measureCores returns a function that returns what became of them since it was made.
func measureCores() func() coreTime {
	own := lab.CPU()
	used, idle, known := lab.MachineCPU()
	return func() coreTime {
		usedNow, idleNow, ok := lab.MachineCPU()
		if !known || !ok {
			return coreTime{}
		}
		return coreTime{1, usedNow - used, idleNow - idle, lab.CPU() - own}
	}
}

func (u *coreTime) add(o coreTime) {
	u.Told += o.Told
	u.Used += o.Used
	u.Idle += o.Idle
	u.Own += o.Own
}

// others returns which part of a hundred of the machine other programs had while none of
// it was to spare, 0 if the system does not tell.
func (u *coreTime) others() int {
	all := u.Used + u.Idle
	if u.Told == 0 || all <= 0 || 100*u.Idle > spare*all {
		return 0
	}
	// Each gateway told of the same machine.
	return int(100 * max(0, u.Used-time.Duration(u.Told)*u.Own) / all)
}

// endure is a gateway's part: it is busy until a moment, and then asks until checks
// are exact again, or ctx is done.
func endure(ctx context.Context, l *weir.Limiter, until int64) *strain {
	var (
		s    strain
		mu   sync.Mutex
		wait sync.WaitGroup
	)
	used := measureCores()
	for range busyPerCore * runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for time.Now().UnixNano() < until && ctx.Err() == nil {
				for begun := time.Now(); time.Since(begun) < busyWork; {
				}
				runtime.Gosched()
				key := rand.IntN(busyKeys)
				begun := time.Now()
				d, err := l.Allow(ctx, busyKey(key))
				took := time.Since(begun)
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				s.add(key, d, took, err)
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	s.Cores = used()
	s.Over, s.Exact = until, never
	for give := time.Now().Add(exactLooks); ctx.Err() == nil && time.Now().Before(give); {
		if exact(ctx, l) {
			s.Exact = time.Now().UnixNano()
			break
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
	}
	return &s
}

// exact reports whether exactKeys keys, one after the other, are decided by authority.
func exact(ctx context.Context, l *weir.Limiter) bool {
	for i := range exactKeys {
		d, err := l.Peek(ctx, busyKey(busyKeys+i))
		if err != nil || elsewhereAt(placeOf(d.Source.String())) {
			return false
		}
	}
	return true
}

func (s *strain) add(key int, d weir.Decision, took time.Duration, err error) {
	if err != nil {
		s.Errors++
		return
	}
	s.Asked[key]++
	if d.Allowed {
		s.Granted[key]++
	}
	at := placeOf(d.Source.String())
	s.At[at]++
	if elsewhereAt(at) {
		s.Elsewhere[key]++
	}
	s.Took.Add(took)
}

// merge adds another gateway's.
func (s *strain) merge(o *strain) {
	for key := range busyKeys {
		s.Asked[key] += o.Asked[key]
		s.Granted[key] += o.Granted[key]
		s.Elsewhere[key] += o.Elsewhere[key]
	}
	for at, n := range o.At {
		s.At[at] += n
	}
	s.Took.Merge(&o.Took)
	s.Errors += o.Errors
	s.Cores.add(o.Cores)
	s.Over, s.Exact = max(s.Over, o.Over), max(s.Exact, o.Exact)
}

// part is of a hundred checks those that were decided in a place.
func (s *strain) part(at place) int { return 100 * s.At[at] / max(1, s.Took.Total) }

// byAuthority returns how many of a hundred checks were decided with authority.
func (s *strain) byAuthority() int {
	return 100 * (s.Took.Total - s.At[stoodIn] - s.At[budget]) / max(1, s.Took.Total)
}

// most is what a key is granted at most: its limit, or twice that if a check of it
// was answered without its authority, which lived.
func (s *strain) most(key int) int {
	if s.Elsewhere[key] > 0 {
		return 2 * int(busyLimit.Rate)
	}
	return int(busyLimit.Rate)
}

// sums is what all keys were granted, what their limits grant of what was asked, what
// they promise at most, and a key that was granted more than its own promise, -1 if
// there is none.
func (s *strain) sums() (granted, due, most, beyond int) {
	beyond = -1
	for key, asked := range s.Asked {
		if asked == 0 {
			continue
		}
		granted += s.Granted[key]
		due += min(asked, int(busyLimit.Rate))
		most += s.most(key)
		if s.Granted[key] > s.most(key) {
			beyond = key
		}
	}
	return granted, due, most, beyond
}

// strain makes all gateways busy for a time.
func (f *fleet) strain(last time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := time.Now()
	until := from.Add(last)
	f.ownUsage = lab.CPU()
	f.busy = append(f.busy, span{from.UnixNano(), never})
	f.strained = new(strain)
	f.say("busy", "for %v each gateway has %d goroutines for each core, which work %v, yield and check", last, busyPerCore, busyWork)
	for _, inc := range f.current {
		if !inc.is(up) {
			continue
		}
		if err := inc.process.Order(order{Busy: until.UnixNano()}); err != nil {
			return err
		}
		f.straining++
	}
	return nil
}

// endured takes in what a gateway's checks came to. f.mu is held.
func (f *fleet) endured(s *strain, at int64) {
	f.strained.merge(s)
	if f.straining--; f.straining > 0 {
		return
	}
	f.strained.Cores.Own += lab.CPU() - f.ownUsage
	f.busy[len(f.busy)-1].to = at
	f.unproven = false
	all := f.strained
	f.happened[len(f.happened)-1].from = all.Over
	f.shown = "checks are exact again"
	if all.Exact == never {
		f.shown = "checks are not exact again"
	}
	f.shown += fmt.Sprintf("; of %s under load authority decided %d%%, within %s but for 1%%", number(all.Took.Total), all.byAuthority(), short(all.Took.Quantile(0.99)))
}

// lose notes members that a gateway takes for gone though they are up, from when all
// are busy on. f.mu is held.
func (f *fleet) lose(before, now *report) {
	if len(f.busy) == 0 {
		return
	}
	for _, inc := range f.current {
		if inc.is(up, joining) && before.hears(inc.report.Name) && !now.hears(inc.report.Name) {
			f.lost++
		}
	}
}

// wasBusy reports whether the gateways were busy at some moment between two.
func (f *fleet) wasBusy(from, to int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return near(f.busy, span{from, to})
}

// excuse is which windows a check excuses that was answered without the one to ask,
// while gateways were busy: those from then on until all that was late has settled.
func excuse(check span, busy []span) (span, bool) {
	for _, b := range busy {
		if near([]span{b}, check) {
			return span{check.from, b.healed().to}, true
		}
	}
	return span{}, false
}

// judge adds the claims on busy gateways. lost is how often one took another for gone, delay how
// long after the load checks were not exact, but for the time that the machine stood still, and
// clients what the clients saw meanwhile.
func (s *strain) judge(v *findings, lost int, delay time.Duration, clients *sums) {
	least, crowded := fmt.Sprintf("at least %d%%", leastByAuthority), s.Cores.others() > mostByOthers
	if crowded {
		least = fmt.Sprintf("of which nothing is promised while other programs have %d%% of the machine", s.Cores.others())
	}
	granted, due, most, beyond := s.sums()
	more := ""
	if beyond >= 0 {
		more = fmt.Sprintf("; a key got %d of %d", s.Granted[beyond], s.most(beyond))
	}
	exact, looked := "–", ""
	if s.Exact != never {
		exact = short(delay)
	} else if delay <= exactWithin {
		looked = fmt.Sprintf("; the machine stood still for %s of the %v in which they looked", short(exactLooks-delay), exactLooks)
	}
	v.add((crowded || s.byAuthority() >= leastByAuthority) && s.Errors == 0, "busy", fmt.Sprintf("%d%%", s.byAuthority()),
		"of %s checks by gateways that left the machine no idle time were decided by authority, %s; %d%% by a copy, %d%% by a share, %d failed",
		number(s.Took.Total), least, s.part(stoodIn), s.part(budget), s.Errors)
	v.add(true, "p99, busy", short(s.Took.Quantile(0.99)), "of these checks, p50 %s; of requests over HTTP meanwhile %s", short(s.Took.Quantile(0.5)), short(clients.took.Quantile(0.99)))
	v.add(lost == 0, "gone", number(lost), "times that a gateway took another for gone, though all were there")
	v.add(beyond < 0, "granted", number(granted), "units granted by these checks, of %s that the limits grant of what was asked: at most %s, L for each key, 2L where a check timed out%s", number(due), number(most), more)
	v.add(delay <= exactWithin, "exact", exact, "after the load until authority decided %d keys in a row at each gateway, in %v at most%s", exactKeys, exactWithin, looked)
}
