package asker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/owner"
	_ "github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// Takes, renewals and returns are delayed, and cross in transit. The owner must always record at
// least the units that borrowers may still spend.
func TestOwnerKnowsAllLentUnits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := &bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 1000, Per: time.Hour}
		counts := bucket.NewStore(10, bucket.Salt{})
		lender := owner.New(env.OneClock(func() int64 { return 0 }), 0, counts, countsync.New(1, counts), nil)
		v := (&view.View{View: &cluster.View{Self: 0}, Complete: true}).ReceiveRanges(countsync.All())
		id := bucket.ID{Hi: 1, Lo: 2}
		type message struct {
			at  int64
			do  func()
			way int
		}
		var (
			nodes = []*leases{newLeases(), newLeases()}
			under []message // the messages that are under way
			now   = int64(time.Hour)
			spent int64
		)
		send := func(way int, do func()) {
			at := now + rapid.SampledFrom([]int64{0, 1e5, 1e6, 2e7, 2e8, 5e8, 1e9}).Draw(t, "delay")
			for _, m := range under {
				if m.way == way {
					at = max(at, m.at) // messages of one direction keep their order
				}
			}
			under = append(under, message{at, do, way})
		}
		giveBack := func(node int, left leaseErrand) {
			send(node, func() {
				before, _, _ := counts.Used(id, now)
				lender.Reclaim(v, &left.ask, now)
				after, _, _ := counts.Used(id, now)
				require.GreaterOrEqual(t, after, before-left.ask.Units)
			})
		}
		ask := func(node int, a wire.Ask, units int64) {
			sent := now
			send(node, func() {
				r := new(wire.Result)
				a.Units = units
				if a.Take.Want.Units > 0 {
					lender.Do(v, view.AsOwner, wire.OpTake, &a, now, r)
				} else {
					counts.TakeInto(id, limit, now, units, &r.Result)
				}
				if r.Allowed {
					spent += units
				}
				if a.Take.Want.Units > 0 {
					send(-node-1, func() { nodes[node].learn(&a, r, 1, instant(sent), instant(now)) })
				}
			})
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 1e5, 1e6, 1e7, 5e7, 2e8}).Draw(t, "elapsed")
			for i := 0; i < len(under); i++ {
				if under[i].at <= now {
					do := under[i].do
					under = append(under[:i], under[i+1:]...)
					do()
					i = -1
				}
			}
			node := rapid.IntRange(0, 1).Draw(t, "node")
			l := nodes[node]
			a := wire.Ask{ID: id, Limit: limit, Units: rapid.SampledFrom([]int64{1, 1, 1, 5}).Draw(t, "units"), Leases: true}
			switch rapid.SampledFrom([]string{"check", "check", "check", "refund", "sweep"}).Draw(t, "op") {
			case "check":
				if l.spend(&a, instant(now), new(wire.Result)) {
					spent += a.Units
					break
				}
				left, over := l.addWant(&a, rapid.SampledFrom([]float64{0, 10, 100, 1000}).Draw(t, "pace"), instant(now), time.Second)
				if over {
					giveBack(node, left)
				}
				ask(node, a, a.Units)
			case "refund":
				done, left, over := l.refund(&a, instant(now))
				if done {
					spent -= a.Units
				}
				if over {
					giveBack(node, left)
				}
			case "sweep":
				if l.sets.Load() == nil {
					break
				}
				renew, _ := l.sweep(int(id.Lo), instant(now), time.Second, nil)
				for _, left := range l.takeReturns(nil) {
					giveBack(node, left)
				}
				for _, a := range renew {
					ask(node, a, 0)
				}
			}
			var unspent int64
			for _, l := range nodes {
				if s := l.set(id); s != nil {
					for i := range s.entries {
						if e := &s.entries[i]; e.age(instant(now)) < e.term() {
							unspent += e.rest
						}
					}
				}
			}
			used, _, _ := counts.Used(id, now)
			require.GreaterOrEqual(t, used, spent+unspent, "the count includes all units that may be spent")
			lent := lender.LentUnits(now)
			require.GreaterOrEqual(t, int64(lent), unspent, "all unspent units are recorded as lent")
		}
	})
}
