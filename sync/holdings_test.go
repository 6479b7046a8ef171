package countsync

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/testenv"
)

var (
	schedules = flag.Int("schedules", 0, "how many schedules of regions to play; as many as the run has by itself if 0")
	firstSeed = flag.Uint64("first", 1, "the seed of the first schedule of regions")
)

var algorithms = []bucket.Algorithm{bucket.SlidingWindow, bucket.SlidingLog, bucket.FixedWindow, bucket.TokenBucket, bucket.LeakyBucket}

// turn is an event in the regions, and the time until the next event.
type turn struct {
	kind, a, b int
	wait       int64
}

const (
	demandTurns = iota
	cutBoth
	cutOneWay
	heal
	healAll
	crash
	crashWholly
	stepBack
	stepForth
	askMuch
	kinds
)

// play runs a schedule of faults, and checks the guarantees of the regions.
func play(w *globe, turns []turn, every int64) {
	n := len(w.regions)
	on := make([]bool, n)
	units := max(1, w.limit.Capacity()/40)
	for i, r := range w.regions {
		on[i] = w.rand.IntN(3) > 0
		r.demand(every, units, 60, func() bool { return on[i] })
	}
	for _, t := range turns {
		a, b := t.a%n, t.b%n
		r := w.regions[a]
		switch t.kind {
		case demandTurns:
			on[a] = !on[a]
		case cutBoth:
			w.cut[a][b], w.cut[b][a] = true, true
		case cutOneWay:
			w.cut[a][b] = true
		case heal:
			w.cut[a][b], w.cut[b][a] = false, false
		case healAll:
			w.cut = [8][8]bool{}
		case crash:
			r.crash(r.copies == nil)
		case crashWholly:
			r.crash(true)
		case stepBack:
			r.ahead -= t.wait
			w.setBack = true
		case stepForth:
			r.ahead += t.wait
			w.stepped = true
		case askMuch:
			r.ask(1 + int64(t.b)*w.limit.Capacity()/8)
		}
		if w.limit.Algorithm == bucket.FixedWindow {
			// Named windows require clocks that differ by at most a second.
			r.ahead = min(max(r.ahead, -sec/2), sec/2)
		}
		w.recordClocks()
		w.run(t.wait)
	}
	w.cut = [8][8]bool{}
	w.run(3 * sec)
	w.checkAdmissions()
}

// drawGlobe returns the regions for a seed.
func drawGlobe(t failer, seed uint64) (w *globe, every int64) {
	draw := rand.New(rand.NewPCG(seed, 0x676c6f6265))
	pick := func(of ...int64) int64 { return of[draw.IntN(len(of))] }
	limit := bucket.Limit{
		Algorithm: algorithms[draw.IntN(len(algorithms))],
		Rate:      pick(2, 5, 20, 100, 300, 1000), Per: time.Duration(pick(200*ms, sec, sec, 5*sec, 20*sec)), Version: 1,
	}
	if limit.IsBucket() {
		limit.Burst = limit.Rate * pick(1, 1, 2, 5) / pick(1, 2)
	}
	net := network{delay: pick(5, 50, 50, 100) * ms, jitter: pick(1, 20, 200) * ms, lose: float64(pick(0, 0, 5, 20)) / 100, repeat: float64(pick(0, 5, 20)) / 100, late: pick(100*ms, 5*sec)}
	w = newGlobe(t, seed, int(pick(2, 3, 3, 3, 4, 5)), limit, net)
	for _, r := range w.regions {
		r.wall = draw.Int64N(sec) - sec/2
		r.ahead = draw.Int64N(sec) - sec/2
		if seed%4 == 0 {
			r.ahead = 0 // so that all clocks agree about the present window
		}
	}
	w.recordClocks()
	return w, pick(20, 40, 200) * ms
}

// The test runs two to five regions with high demand. Messages in their network may be lost, repeated or
// reordered. There are partitions, crashes, and clocks that step. Except for units that crashes lose, the
// admitted units must stay within the definition of the algorithm, and the sum of the holdings within the
// limit. CI plays 1,000 schedules. To play more of them: go test ./sync -run Schedules -schedules 100000
// -first 7
func TestHoldingsSumToTheLimitInRandomSchedules(t *testing.T) {
	t.Parallel()
	n := *schedules
	switch {
	case n > 0:
	case testenv.Race:
		n = 8 // each schedule is played in one goroutine
	default:
		n = testenv.PickFull(t, 80, 250)
	}
	const parts = 4
	for part := range parts {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			for i := part; i < n; i += parts {
				playSeed(t, *firstSeed+uint64(i))
			}
		})
	}
}

// playSeed plays the schedule for a seed.
func playSeed(t *testing.T, seed uint64) {
	w, every := drawGlobe(seeded{t, seed}, seed)
	draw := rand.New(rand.NewPCG(seed, 0x7475726e73))
	crashes := draw.IntN(2) == 0
	var turns []turn
	for range 4 + draw.IntN(12) {
		x := turn{kind: draw.IntN(kinds), a: draw.IntN(60), b: draw.IntN(60), wait: draw.Int64N(3 * sec)}
		if draw.IntN(8) == 0 {
			x.wait += 12 * sec // longer than a term
		}
		if !crashes && (x.kind == crash || x.kind == crashWholly) {
			x.kind = cutBoth
		}
		turns = append(turns, x)
	}
	play(w, turns, every)
}

// seeded fails a test with the command that repeats the schedule.
type seeded struct {
	t    *testing.T
	seed uint64
}

func (s seeded) Fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\ngo test ./sync -run Schedules -schedules 1 -first %d", fmt.Sprintf(format, args...), s.seed)
}
