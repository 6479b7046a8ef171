package weir

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
)

func TestWhatCameTooLateForItsAskerIsNotCarriedOut(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Name: "test", Rate: 10, Per: time.Hour})
	var a, other ask
	require.NoError(t, l.ask(t.Context(), "key", 1, &a))
	require.NoError(t, l.ask(t.Context(), "other key", 1, &other))
	v := n.view.Load()
	request := func(op op, wait time.Duration) []byte {
		return a.append(header{op, 0, maxHops, 1, wait, v.hashes[v.Self]}.append(nil))
	}
	got := make(answers, 4)
	b := cluster.NewBatch("other", got)
	b.Read = time.Now().Add(-50 * time.Millisecond)
	b.Requests = [][]byte{
		request(opTake, 20*time.Millisecond), // dropped
		request(opTake, time.Hour),
		request(opDebit, 0), // told: it waits for nothing
		other.append(header{opReset, 0, maxHops, 1, 20 * time.Millisecond, v.hashes[v.Self]}.append(nil)), // it holds all the same
	}
	inbound{n}.Serve(b)

	s, err := parseAnswer(got[0], 1)
	require.NoError(t, err)
	require.Equal(t, statusUnreached, s)
	for _, i := range []int{1, 2, 3} {
		s, err := parseAnswer(got[i], 1)
		require.NoError(t, err)
		require.Equal(t, statusDone, s)
	}
	d, err := l.Peek(t.Context(), "key")
	require.NoError(t, err)
	require.EqualValues(t, 8, d.Remaining)
	require.EqualValues(t, 1, n.Stats().Overdue)
	require.EqualValues(t, 3, n.Stats().Served)
}
