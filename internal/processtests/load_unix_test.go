//go:build unix

package processtests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// load is a list of limits that a node checks with concurrent callers. Each caller checks a
// random key of a random limit and then sleeps for Rest, until the duration For has elapsed.
type load struct {
	Limits  []keyed
	Callers int
	Rest    time.Duration
	For     time.Duration
}

// keyed is a limit and the number of its keys.
type keyed struct {
	Limit weir.Limit
	Keys  int
}

// loadResult is the result of a load on a node.
type loadResult struct {
	Sources map[string]int // number of checks by the name of the source
	Asked   [][]int64      // number of checks, by limit and key
	Granted [][]int64      // number of allowed checks, by limit and key
	Took    lab.Histogram  // durations of the checks
	Slowest time.Duration  // the longest check, without the lateness of this process during the check
	Late    time.Duration  // the longest delay between the time of a timer and its wakeup
	Gone    []absence      // the first maxAbsences absences of members, as the node saw them
	Errors  []string       // errors of the checks, at most an error of each caller
}

// absence is an interval during which the node listed a member as Missing or Dead.
type absence struct {
	Addr     string
	From, To time.Duration // times since the start of the load
}

const maxAbsences = 1000

// runLoad runs a load on a node.
func runLoad(n *node, l load) *loadResult {
	all := &loadResult{Sources: make(map[string]int)}
	var limiters []*weir.Limiter
	for _, k := range l.Limits {
		limiter, err := n.Limiter(k.Limit)
		if err != nil {
			all.Errors = append(all.Errors, err.Error())
			return all
		}
		limiters = append(limiters, limiter)
		all.Asked, all.Granted = append(all.Asked, make([]int64, k.Keys)), append(all.Granted, make([]int64, k.Keys))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		all.Gone = watchMembers(n, stop)
	}()
	late := lab.MeasureDelay()
	var (
		callers sync.WaitGroup
		mu      sync.Mutex // guards the fields of all, except Gone
	)
	for end := time.Now().Add(l.For); l.Callers > 0; l.Callers-- {
		callers.Go(func() {
			for time.Now().Before(end) {
				i := rand.IntN(len(limiters))
				k := rand.IntN(l.Limits[i].Keys)
				begun, before := time.Now(), late.Total()
				d, err := limiters[i].Allow(context.Background(), fmt.Sprint("key ", k))
				took := time.Since(begun)
				own := took - (late.Total() - before)
				mu.Lock()
				all.Took.Add(took)
				all.Slowest = max(all.Slowest, own)
				all.Sources[d.Source.String()]++
				all.Asked[i][k]++
				if d.Allowed {
					all.Granted[i][k]++
				}
				if err != nil {
					all.Errors = append(all.Errors, err.Error())
				}
				mu.Unlock()
				if err != nil {
					return
				}
				time.Sleep(l.Rest)
			}
		})
	}
	callers.Wait()
	close(stop)
	<-stopped
	late.Stop()
	all.Late = late.Worst()
	return all
}

// watchMembers returns the absences of members until stop is closed.
func watchMembers(n *node, stop <-chan struct{}) (gone []absence) {
	begun := time.Now()
	missing := make(map[string]int) // indexes into gone, by address
	look := func() {
		now := time.Since(begun)
		for _, m := range n.Members() {
			at, missed := missing[m.Addr]
			switch {
			case m.State != weir.Missing && m.State != weir.Dead:
				delete(missing, m.Addr)
			case missed:
				gone[at].To = now
			case len(gone) < maxAbsences:
				missing[m.Addr] = len(gone)
				gone = append(gone, absence{m.Addr, now, now})
			}
		}
	}
	for {
		look()
		select {
		case <-stop:
			return gone
		case <-time.After(time.Millisecond):
		}
	}
}
