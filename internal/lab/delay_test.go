package lab

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// between returns the interval between two moments in milliseconds.
func between(from, to int64) Interval { return Between(from*1e6, to*1e6) }

func newDelay(slack time.Duration, sleeps ...Interval) *SchedulingDelay {
	l := new(SchedulingDelay)
	l.slack = slack
	for _, s := range sleeps {
		l.Add(s)
	}
	return l
}

func TestDelaySumsAllSleepsAndKeepsStandStills(t *testing.T) {
	l := newDelay(20*time.Millisecond, between(10, 15), between(25, 20), between(30, 50), between(60, 160), between(200, 230))
	require.Equal(t, 155*time.Millisecond, l.Total(), "a sleep that ended early has no delay")
	require.Equal(t, 100*time.Millisecond, l.Worst())
	require.Equal(t, []Interval{between(60, 160), between(200, 230)}, l.kept, "a sleep late by the slack itself is no stand-still")
}

func TestDelayWithinIntervalSumsStandStills(t *testing.T) {
	l := newDelay(0, between(100, 150), between(200, 210), between(300, 320))
	for _, test := range []struct {
		from, to int64
		within   time.Duration
	}{
		{0, 1000, 80 * time.Millisecond},
		{0, 100, 0},
		{0, 101, time.Millisecond},
		{110, 120, 10 * time.Millisecond},
		{149, 305, 16 * time.Millisecond},
		{150, 200, 0},
		{320, 1000, 0},
		{205, 110, 0}, // a span that ends before it begins
	} {
		require.Equal(t, test.within, l.DelayWithin(between(test.from, test.to)), "from %d to %d", test.from, test.to)
	}
	for from, worst := range map[int64]time.Duration{0: 50, 149: 50, 150: 20, 319: 20, 320: 0} {
		require.Equal(t, worst*time.Millisecond, l.WorstSince(from*1e6), "since %d", from)
	}
}

func TestSchedulingDelayKeepsOnlyTheLatestStandStills(t *testing.T) {
	l := new(SchedulingDelay)
	for i := range int64(maxStandStills + 3) {
		l.Add(between(10*i, 10*i+2))
	}
	require.Len(t, l.kept, maxStandStills)
	require.Equal(t, between(30, 32), l.kept[0])
	require.Equal(t, (maxStandStills+3)*2*time.Millisecond, l.Total(), "dropped stand-stills count")
}

func TestDelayOfIdleProcessIsZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(SchedulingDelay)
		isZero := func() {
			require.Zero(t, l.Total()+l.Worst()+l.WorstSince(0)+l.DelayWithin(Between(0, time.Now().UnixNano())))
		}
		isZero()
		l.Stop() // Stop does nothing here
		l.Start(time.Millisecond, 0)
		require.Panics(t, func() { l.Start(time.Millisecond, 0) })
		time.Sleep(100 * time.Millisecond)
		isZero()
		l.Stop()
		l.Stop()
	})
}

// stall moves the planned end of the current sleep into the past, as if the goroutine had
// not been woken meanwhile.
func stall(l *SchedulingDelay, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = time.Now().Add(-late)
}

func TestDelayCountsOverdueSleepOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(SchedulingDelay)
		l.Start(time.Second, 20*time.Millisecond)
		defer l.Stop()
		from := time.Now().UnixNano()
		time.Sleep(500 * time.Millisecond)
		stall(l, 100*time.Millisecond)
		seen := func(late time.Duration) {
			t.Helper()
			require.Equal(t, late, l.Total())
			require.Equal(t, late, l.Worst())
			require.Equal(t, late, l.WorstSince(from))
			require.Equal(t, late, l.DelayWithin(Between(from, time.Now().UnixNano())))
		}
		seen(100 * time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		seen(200 * time.Millisecond)
		time.Sleep(400 * time.Millisecond) // the goroutine wakes
		synctest.Wait()
		seen(600 * time.Millisecond)
		time.Sleep(time.Minute)
		seen(600 * time.Millisecond)
	})
}

func TestStopCountsOverdueSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(SchedulingDelay)
		l.Start(time.Second, 0)
		time.Sleep(time.Second / 2)
		stall(l, 50*time.Millisecond)
		l.Stop()
		require.Equal(t, 50*time.Millisecond, l.Total())
		time.Sleep(time.Minute)
		require.Equal(t, 50*time.Millisecond, l.Total(), "nothing is overdue after Stop")
	})
}

func TestDelayWithIdleExcludesCPUTimeOfProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taken time.Duration
		l := &SchedulingDelay{Idle: true, cpu: func() time.Duration { return taken }, slack: 20 * time.Millisecond}
		wakes := func(late, work time.Duration) Interval { // a sleep ends late, and the process has worked meanwhile
			time.Sleep(time.Second)
			l.due, l.taken = time.Now().Add(-late), taken
			taken += work
			require.Equal(t, max(0, late-work), l.overdue(time.Now()).Length())
			l.woken(0)
			return Between(time.Now().Add(work-late).UnixNano(), time.Now().UnixNano())
		}
		const ms = time.Millisecond
		wakes(20*ms, 0) // late by the slack, which is no stand-still
		require.Empty(t, l.TakeStandStills())
		all := wakes(100*ms, 0)
		rest := wakes(100*ms, 75*ms)
		wakes(100*ms, 200*ms) // the process has worked on two cores
		require.Equal(t, []Interval{all, rest}, l.TakeStandStills())
		require.Empty(t, l.TakeStandStills(), "the stand-stills were taken")
		require.Equal(t, 145*ms, l.Total())
	})
}

// Total counts an overdue sleep once, both before and after the sleep is recorded, even if the
// caller is suspended within Total while the sleep is recorded.
func TestDelayTotalNeverFalls(t *testing.T) {
	l := new(SchedulingDelay)
	l.Start(time.Microsecond, 0)
	defer l.Stop()
	for before, until := l.Total(), time.Now().Add(20*time.Millisecond); time.Now().Before(until); {
		now := l.Total()
		require.GreaterOrEqual(t, now, before)
		before = now
	}
}
