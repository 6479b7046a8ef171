package conformance

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

// quiet is a logger that discards all messages.
var quiet = slog.New(slog.DiscardHandler)

var algorithms = []weir.Algorithm{weir.SlidingWindow, weir.SlidingLog, weir.FixedWindow, weir.TokenBucket, weir.LeakyBucket}

// op is an operation on a count.
type op int

const (
	take op = iota
	refund
	peek
)

// A count behaves like a single register that every node sees at once. A pushback denies
// only if the register would deny, except after refunds on another node. A pushback
// reports the units that were left when the pushback arrived. On a busy machine a
// stand-in may decide instead of a stalled owner. The test ignores such a run.
func TestChecksAreLinearizable(t *testing.T) {
	for _, refunds := range []bool{true, false} {
		t.Run(fmt.Sprint("refunds ", refunds), func(t *testing.T) { testLinearizable(t, refunds) })
	}
}

func testLinearizable(t *testing.T, refunds bool) {
	type question struct {
		op    op
		units int64
	}
	const rate = 20
	model := porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			used, in, d := state.(int64), input.(question), output.(weir.Decision)
			switch in.op {
			case take:
				if d.Source == weir.Pushback {
					return !d.Allowed && (refunds || used+in.units > rate && d.Remaining >= rate-used), used
				}
				if used+in.units > rate {
					return !d.Allowed && d.Remaining == rate-used, used
				}
				used += in.units
				return d.Allowed && d.Remaining == rate-used, used
			case refund:
				return true, max(0, used-in.units)
			default:
				return d.Remaining == rate-used, used
			}
		},
	}
	nodes := testnode.Fleet(t, 3, func(_ int, cfg *weir.Config) { cfg.Timeout = time.Minute })
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			ls := testnode.Limiters(t, nodes, weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: rate, Per: time.Hour})
			const runs, attempts = 10, 30
			judged := 0
			for run := 0; judged < runs; run++ {
				require.Less(t, run, attempts, "members stall in most runs")
				key := fmt.Sprint("run ", run)
				var (
					mu      sync.Mutex
					history []porcupine.Operation
					wait    sync.WaitGroup
					stalled atomic.Bool
				)
				begun := time.Now()
				for g := range 9 {
					wait.Go(func() {
						for i := range 12 {
							in := question{take, int64(1 + (g+i)%3)}
							var d weir.Decision
							var err error
							call := time.Since(begun).Nanoseconds()
							switch ask := (g + i) % 5; {
							case ask == 3 && refunds:
								in.op = refund
								err = ls[g%3].Refund(t.Context(), key, in.units)
							case ask == 4:
								in.op = peek
								d, err = ls[g%3].Peek(t.Context(), key)
							default:
								d, err = ls[g%3].AllowN(t.Context(), key, in.units)
							}
							back := time.Since(begun).Nanoseconds()
							if err != nil {
								t.Error(err)
								return
							}
							if d.Source == weir.StandIn || d.Source == weir.Budget {
								stalled.Store(true)
							}
							mu.Lock()
							history = append(history, porcupine.Operation{ClientId: g, Input: in, Call: call, Output: d, Return: back})
							mu.Unlock()
						}
					})
				}
				wait.Wait()
				if stalled.Load() {
					continue
				}
				judged++
				require.True(t, porcupine.CheckOperations(model, history), "run %d: %v", run, history)
			}
		})
	}
}
