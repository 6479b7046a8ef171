package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

// Without this, the way of a record over connections would end at the members to which gossip is faster.
func TestRecordsFromGossipArePassedOn(t *testing.T) {
	inCrowd(t, nil, func(t *testing.T, a, _ *testPeer, _ *cut) {
		g := &gossipCluster{peers: a.peers, roster: detect.NewRoster(detect.Record{Name: "p00", Addr: "p00:1"}, time.Hour), passing: passing{wake: make(chan struct{}, 1)}}
		x := detect.Record{Name: "x", Addr: "x:1", Born: 1}
		g.step(func(r *detect.Roster) detect.Change { return r.RecordAlive(x, "x:1", time.Now()) })
		now := time.Now()
		due, _ := g.passing.takeDue(now)
		require.Len(t, due, 1)
		require.Equal(t, "x", due[0].about)
		g.stepFrom("p01", func(r *detect.Roster) detect.Change { return r.Merge([]detect.Record{x}, now) })
		due, more := g.passing.takeDue(now)
		require.Empty(t, due, "the record is not new")
		require.True(t, more)
		require.Len(t, g.passing.freshRecords("p01"), 1)
		require.Empty(t, g.passing.freshRecords("x"), "x knows its record")
		time.Sleep(freshTime)
		require.Empty(t, g.passing.freshRecords("p01"))
		_, more = g.passing.takeDue(time.Now())
		require.False(t, more)
	})
}

func TestFreshRecordsAreSentWithFirstRows(t *testing.T) {
	inMemory(t, func(t *testing.T, lo *loopback) {
		var mu sync.Mutex
		var received []string
		a := lo.peer(t, "a", nil, func(cfg *peersConfig) {
			cfg.FreshRecords = func(to string) [][]byte { return [][]byte{[]byte("fresh for " + to)} }
		})
		b := lo.peer(t, "b", nil, func(cfg *peersConfig) {
			cfg.HandleRecord = func(_ string, body []byte) []byte {
				mu.Lock()
				defer mu.Unlock()
				received = append(received, string(body))
				return nil
			}
		})
		a.set([]Member{b.member()})
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"fresh for b"}, received)
	})
}

// If records were not sent together, each record would be a separate message to each neighbor when
// hundreds of members start.
func TestPassedRecordsAreSentTogether(t *testing.T) {
	for name, c := range map[string]struct {
		pause    time.Duration // from one record to the next
		messages int           // maximum number of messages
	}{
		"records that arrive at once":  {0, 2},
		"a record in each millisecond": {time.Millisecond, 7},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, lo *loopback) {
				var mu sync.Mutex
				records, times := map[string]int{}, map[time.Time]bool{}
				receive := func(name string) func(*peersConfig) {
					return func(cfg *peersConfig) {
						cfg.HandleRecord = func(string, []byte) []byte {
							mu.Lock()
							defer mu.Unlock()
							records[name]++
							times[time.Now()] = true
							return nil
						}
					}
				}
				a, b, sender := lo.peer(t, "a", nil), lo.peer(t, "b", nil, receive("b")), lo.peer(t, "sender", nil, receive("sender"))
				a.set([]Member{b.member(), sender.member()})
				time.Sleep(time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				g := &gossipCluster{ctx: ctx, peers: a.peers, passing: passing{wake: make(chan struct{}, 1)}}
				g.wg.Go(g.keepPassing)
				for i := range 300 {
					g.passing.add("sender", time.Now(), detect.Record{Name: fmt.Sprint("m", i), Addr: "m:1", Born: 1})
					time.Sleep(c.pause)
				}
				time.Sleep(2 * passPace)
				cancel()
				g.wg.Wait()
				synctest.Wait()
				require.Equal(t, map[string]int{"b": 300}, records, "no record goes back to its sender")
				require.LessOrEqual(t, len(times), c.messages)
			})
		})
	}
}
