package stats

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReservationsThatNobodySettlesAreCountedOnceTheyExpire(t *testing.T) {
	var m Reservations
	at := func(d time.Duration) int64 { return int64(1_800_000_000*time.Second + d) }
	require.Zero(t, m.Unsettled(at(0)))
	m.Close(at(time.Minute)) // of another node's
	for range 3 {
		m.Make(at(time.Minute))
	}
	m.Make(at(time.Hour))
	m.Close(at(time.Minute))
	require.Zero(t, m.Unsettled(at(time.Minute-1)))
	require.EqualValues(t, 2, m.Unsettled(at(time.Minute+2*time.Second)))
	require.EqualValues(t, 2, m.Unsettled(at(time.Minute+2*time.Second)))
	require.EqualValues(t, 3, m.Unsettled(at(2*time.Hour)))
	require.EqualValues(t, 4, m.Made.Load())

	// Nobody reads them while the seconds go round.
	m.Make(at(3 * time.Hour))
	m.Make(at(3*time.Hour + reservationSlots*time.Second))
	require.EqualValues(t, 4, m.Unsettled(at(3*time.Hour)))
	m.Close(at(3*time.Hour + reservationSlots*time.Second))
	require.EqualValues(t, 4, m.Unsettled(at(9*time.Hour)))
}

func TestReservationsAreCountedByManyAtOnce(t *testing.T) {
	var (
		m   Reservations
		all sync.WaitGroup
	)
	for range 8 {
		all.Go(func() {
			for i := range int64(1000) {
				m.Make(i % 7 * int64(time.Second))
				if i%2 == 0 {
					m.Close(i % 7 * int64(time.Second))
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 4000, m.Unsettled(int64(time.Minute)))
}
