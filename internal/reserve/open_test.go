package reserve

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnsettledReservationsAreCountedAfterExpiry(t *testing.T) {
	var m open
	at := func(d time.Duration) int64 { return int64(1_800_000_000*time.Second + d) }
	require.Zero(t, m.unsettled(at(0)))
	m.remove(at(time.Minute)) // the reservation of another node
	for range 3 {
		m.add(at(time.Minute))
	}
	m.add(at(time.Hour))
	m.remove(at(time.Minute))
	require.Zero(t, m.unsettled(at(time.Minute-1)))
	require.EqualValues(t, 2, m.unsettled(at(time.Minute+2*time.Second)))
	require.EqualValues(t, 2, m.unsettled(at(time.Minute+2*time.Second)))
	require.EqualValues(t, 3, m.unsettled(at(2*time.Hour)))
	require.EqualValues(t, 4, m.made.Load())

	// The counters are not read while the slots are reused.
	m.add(at(3 * time.Hour))
	m.add(at(3*time.Hour + openSlots*time.Second))
	require.EqualValues(t, 4, m.unsettled(at(3*time.Hour)))
	m.remove(at(3*time.Hour + openSlots*time.Second))
	require.EqualValues(t, 4, m.unsettled(at(9*time.Hour)))
}

func TestReservationsAreCountedConcurrently(t *testing.T) {
	var (
		m   open
		all sync.WaitGroup
	)
	for range 8 {
		all.Go(func() {
			for i := range int64(1000) {
				m.add(i % 7 * int64(time.Second))
				if i%2 == 0 {
					m.remove(i % 7 * int64(time.Second))
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 4000, m.unsettled(int64(time.Minute)))
}
