//go:build unix

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

const (
	floodMembers = 3
	floodMaxKeys = 500_000
	floodLoad    = 3_000 // checks a second of normal traffic on each member
	floodPace    = 200_000
	floodFor     = 10 * time.Second
	floodCallers = 512
	floodDenied  = 10_000
)

// BenchmarkKeyFlood is one of three members that is asked for 200,000 keys a second that
// nobody has asked for before, each used up by one ask for a month, while all three have
// normal traffic, and 10,000 keys that another limit denies. N is the number of floods,
// each in a new cluster.
func BenchmarkKeyFlood(b *testing.B) {
	for b.Loop() {
		members := startMembers(b, floodMembers, MemberConfig{MaxKeys: floodMaxKeys})
		call[int](b, members[1:2], "Member.Deny", floodDenied)
		call[int](b, members, "Member.Load", floodLoad)
		lap := func(members []*member) (l Lap, cpu time.Duration) {
			for _, took := range call[time.Duration](b, members, "Member.CPU", 0) {
				cpu += took
			}
			return merge(call[Lap](b, members, "Member.Lap", 0)), cpu
		}
		report := func(name string, l Lap, cpu time.Duration, of int) {
			b.ReportMetric(milliseconds(l.Latencies[len(l.Latencies)/2]), name+"-p50-ms")
			b.ReportMetric(milliseconds(l.p99()), name+"-p99-ms")
			b.ReportMetric(100*float64(l.Strays)/float64(len(l.Latencies)), name+"-%strays")
			b.ReportMetric(cpu.Seconds()/floodFor.Seconds()/float64(of), name+"-cpus")
		}
		for _, name := range []string{"before", "during"} {
			time.Sleep(time.Second)
			lap(members)
			asking := func() []Flooded { return nil }
			if name == "during" {
				asking = calling[Flooded](b, members[:1], "Member.Flood", floodPace)
			}
			time.Sleep(floodFor)
			l, cpu := lap(members[:1])
			report(name, l, cpu, 1)
			l, cpu = lap(members[1:])
			report("peers-"+name, l, cpu, floodMembers-1)
			for _, f := range asking() {
				b.ReportMetric(float64(f.Keys)/f.Took.Seconds(), "keys/s")
				b.ReportMetric(100*float64(f.Strays)/float64(f.Keys), "%keys-strays")
			}
		}
		again := call[int](b, members[2:], "Member.Again", floodDenied)[0]
		b.ReportMetric(float64(again), "denied-again")
		b.ReportMetric(0, "ns/op")
		endMembers(b, members)
	}
}

// Deny uses up so many keys' limit of 10 an hour.
func (s *service) Deny(keys int, _ *int) error {
	l, err := s.node.Limiter(deniedLimit)
	if err != nil {
		return err
	}
	return s.all(keys, func(key string) error {
		_, err := l.AllowN(context.Background(), key, deniedLimit.Rate)
		return err
	})
}

// Again answers with how many of those keys are denied no more.
func (s *service) Again(keys int, again *int) error {
	l, err := s.node.Limiter(deniedLimit)
	if err != nil {
		return err
	}
	var n atomic.Int64
	err = s.all(keys, func(key string) error {
		d, err := l.Peek(context.Background(), key)
		if d.Allowed {
			n.Add(1)
		}
		return err
	})
	*again = int(n.Load())
	return err
}

var deniedLimit = weir.Limit{Name: "denied", Rate: 10, Per: time.Hour}

// Flooded is what a flood came to.
type Flooded struct {
	Keys, Strays int
	Took         time.Duration
}

// Flood asks for so many new keys a second, once each.
func (s *service) Flood(perSecond int, f *Flooded) error {
	l, err := s.node.Limiter(weir.Limit{Name: "minted", Rate: 1, Per: 30 * 24 * time.Hour})
	if err != nil {
		return err
	}
	var asking sync.WaitGroup
	var keys, strays atomic.Int64
	begun := time.Now()
	for time.Since(begun) < floodFor {
		// In a burst each millisecond, as a timer of less has no use.
		due := int64(time.Since(begun).Seconds()*float64(perSecond)) - keys.Load()
		for c := range min(int64(floodCallers), due) {
			from, to := keys.Load()+c*due/floodCallers, keys.Load()+(c+1)*due/floodCallers
			if due < floodCallers {
				from, to = keys.Load()+c, keys.Load()+c+1
			}
			asking.Go(func() {
				for i := from; i < to; i++ {
					d, err := l.Allow(context.Background(), fmt.Sprint("minted ", i))
					if err != nil || !byAuthority(d.Source) {
						strays.Add(1)
					}
				}
			})
		}
		asking.Wait()
		keys.Add(max(0, due))
		time.Sleep(time.Millisecond)
	}
	*f = Flooded{int(keys.Load()), int(strays.Load()), time.Since(begun)}
	return nil
}

// CPU answers with the processor time of the process.
func (s *service) CPU(_ int, took *time.Duration) error {
	*took = lab.CPU()
	return nil
}

// The harness has members that can be asked for all of it.
func TestAFloodOfKeysIsCounted(t *testing.T) {
	s := new(service)
	var addr string
	require.NoError(t, s.Start(MemberConfig{}, &addr))
	defer s.node.Close()
	require.NoError(t, s.Deny(20, nil))
	var again int
	require.NoError(t, s.Again(30, &again))
	require.Equal(t, 10, again)
	var took time.Duration
	require.NoError(t, s.CPU(0, &took))
	require.Positive(t, took)
}
