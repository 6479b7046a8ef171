// Package realtime has the helpers of tests whose nodes run on sockets, in real time. A busy
// machine delays such nodes, so these tests wait for events, and repeat what an outage
// disturbed.
package realtime

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/wire"
)

// GiveUp bounds a wait that only a fault makes as long.
const GiveUp = time.Minute

// Eventually waits until done reports true, and fails the test after GiveUp. It calls done in
// the goroutine of the test, so done may end the test.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for begun := time.Now(); !done(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > GiveUp {
			t.Fatalf("not within %v: %s", GiveUp, what)
		}
	}
}

// MeasureLateness measures how late this process runs, from now until Stop. A check itself took
// its duration less the lateness of the process meanwhile.
func MeasureLateness() *lab.Lateness {
	late := new(lab.Lateness)
	late.Start(time.Millisecond, 0)
	return late
}

// Decisions counts checks by the weir.Source of their decisions. Source 0 counts the checks
// that were made while the members that were to decide did not answer each other.
type Decisions[Source ~uint8] map[Source]int

// Strayed reports whether a check was decided otherwise than by its owner, a lease or a
// pushback.
func (d Decisions[Source]) Strayed() bool {
	for source, n := range d {
		if n > 0 && (source == 0 || source > Source(wire.Relayed) && source < Source(wire.Pushback)) {
			return true
		}
	}
	return false
}

// WhileHealthy repeats play until all members answer in time. Exact figures hold only then:
// while a process stands still, other members decide in its stead. play returns the sources of
// its decisions, and judges exact figures only if none of them strayed.
func WhileHealthy[Source ~uint8](t *testing.T, play func(t *testing.T) Decisions[Source]) {
	const attempts = 20
	for attempt := 1; !t.Failed(); attempt++ {
		healthy := false
		t.Run(fmt.Sprint("attempt ", attempt), func(t *testing.T) {
			decided := play(t)
			if healthy = !decided.Strayed(); !healthy {
				t.Logf("a member did not answer in time: decided by %v", decided)
			}
		})
		if healthy {
			return
		}
		if attempt == attempts {
			t.Fatalf("the machine let all members answer in time at none of %d attempts", attempts)
		}
	}
}
