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
	"github.com/weir-go/weir/internal/realtime"
)

// load is what an order has a node ask for: so many callers, each of which checks
// a key of one of the limits at random and rests, for so long.
type load struct {
	Limits  []keyed
	Callers int
	Rest    time.Duration
	For     time.Duration
}

// keyed is a limit and how many keys of it are asked for.
type keyed struct {
	Limit weir.Limit
	Keys  int
}

// loaded is what the node has seen of its load.
type loaded struct {
	Sources map[string]int // how many checks each has decided, by its name
	Asked   [][]int64      // of each limit's keys
	Granted [][]int64
	Took    lab.Histogram // each check
	Slowest time.Duration // of all checks, without what this process was late meanwhile
	Late    time.Duration // how much later than asked this process was woken at worst
	Gone    []absence     // of members, as this node knew them: the first maxAbsences
	Errors  []string      // of checks, at most one of each caller
}

// absence is a while for which a member was taken for unheard or dead.
type absence struct {
	Addr     string
	From, To time.Duration // since the load's begin
}

const maxAbsences = 1000

// putThrough has a node carry out a load.
func putThrough(n *node, l load) *loaded {
	all := &loaded{Sources: make(map[string]int)}
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
	late := realtime.MeasureLateness()
	var (
		callers sync.WaitGroup
		mu      sync.Mutex // of what all of them write to
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

// watchMembers reports the members that the node took for gone, and when.
func watchMembers(n *node, stop <-chan struct{}) (gone []absence) {
	begun := time.Now()
	missing := make(map[string]int) // their places in gone, by address
	look := func() {
		now := time.Since(begun)
		for _, m := range n.Members() {
			at, missed := missing[m.Addr]
			switch {
			case m.State != weir.Unheard && m.State != weir.Dead:
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
