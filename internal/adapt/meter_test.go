package adapt

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMeterSumsTimeOfOpenRequests(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	var m Meter
	m.RecordStart(at(0))
	m.RecordStart(at(100))
	m.RecordDone(at(0), at(200), 200*time.Millisecond, false)
	m.RecordDenial()
	require.Equal(t, Sample{Started: 2, Done: 1, Denied: 1, Busy: 600 * time.Millisecond}, m.TakeSample(at(500)))
	m.RecordDone(at(100), at(600), 200*time.Millisecond, true)
	m.RecordFailure()
	require.Equal(t, Sample{Done: 1, Slow: 1, Failed: 2, Busy: 100 * time.Millisecond}, m.TakeSample(at(1000)))
	m.RecordStart(at(900))
	m.RecordDone(at(900), at(1001), time.Second, false)
	require.Equal(t, Sample{Started: 1, Done: 1, Busy: time.Millisecond}, m.TakeSample(at(1001)), "a late report")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		m.RecordStart(at(2000))
		m.RecordDone(at(2000), at(2000), 0, false)
	}))
}
