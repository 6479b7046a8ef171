package lab

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/wire"
)

// GiveUp is the maximum duration of a wait. Only a fault makes a wait so long.
const GiveUp = time.Minute

// Eventually waits until the function done returns true, and fails the test after GiveUp. It calls
// the function in the goroutine of the test, so that the function may end the test.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for begun := time.Now(); !done(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > GiveUp {
			t.Fatalf("not within %v: %s", GiveUp, what)
		}
	}
}

// MeasureDelay begins to measure the scheduling delay of this process. The caller must
// call Stop. A test subtracts the delay from the duration of a check.
func MeasureDelay() *SchedulingDelay {
	delay := new(SchedulingDelay)
	delay.Start(time.Millisecond, 0)
	return delay
}

// Decisions is the number of checks for each weir.Source of a decision. A test counts
// under source 0 that a member did not answer another member in time.
type Decisions[Source ~uint8] map[Source]int

// Strayed reports whether any source but the owner, a lease or a pushback decided a check.
func (d Decisions[Source]) Strayed() bool {
	for source, n := range d {
		if n > 0 && (source == 0 || source > Source(wire.Relayed) && source < Source(wire.Pushback)) {
			return true
		}
	}
	return false
}

// WhileHealthy calls play, at most 20 times, until a call fails the test or all members
// have answered in time during a call. If a process is paused, other members decide in
// its place, so the numbers differ from those of a healthy run. The function play returns
// the sources of its decisions, and must not check exact numbers if any of them strayed.
func WhileHealthy[Source ~uint8](t *testing.T, play func(t *testing.T) Decisions[Source]) {
	const attempts = 20
	for attempt := range attempts {
		healthy := false
		t.Run(fmt.Sprint("attempt ", attempt+1), func(t *testing.T) {
			decided := play(t)
			if healthy = !decided.Strayed(); !healthy {
				t.Logf("a member did not answer in time: decided by %v", decided)
			}
		})
		if healthy || t.Failed() {
			return
		}
	}
	t.Fatalf("in each of %d attempts, a member did not answer in time", attempts)
}
