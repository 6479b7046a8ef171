package weir

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/realtime"
	"github.com/weir-go/weir/internal/wire"
)

func TestWhatCameTooLateForItsAskerIsNotCarriedOut(t *testing.T) {
	n := solo(t, Config{Timeout: realtime.GiveUp})
	l := limiter(t, n, Limit{Name: "test", Rate: 10, Per: time.Hour})
	var a, other wire.Ask
	require.NoError(t, l.ask(t.Context(), "key", 1, &a))
	require.NoError(t, l.ask(t.Context(), "other key", 1, &other))
	v := n.handover.View()
	request := func(op wire.Op, wait time.Duration) []byte {
		return a.Append(wire.Header{Op: op, Flags: 0, Hops: wire.MaxHops, Asks: 1, Wait: wait, To: v.Hashes[v.Self]}.Append(nil))
	}
	got := make(answers, 5)
	b := cluster.NewBatch("other", got)
	b.Read = time.Now().Add(-50 * time.Millisecond)
	b.Requests = [][]byte{
		request(wire.OpTake, 20*time.Millisecond), // dropped
		request(wire.OpTake, 40*time.Millisecond), // its asker may not have run all of that time
		request(wire.OpDebit, 0),                  // told: it waits for nothing
		other.Append(wire.Header{Op: wire.OpReset, Flags: 0, Hops: wire.MaxHops, Asks: 1, Wait: 20 * time.Millisecond, To: v.Hashes[v.Self]}.Append(nil)), // it holds all the same
		request(wire.OpRefund, 20*time.Millisecond), // is sent once only
	}
	inbound{n}.Serve(b)

	s, err := wire.ParseAnswer(got[0], 1)
	require.NoError(t, err)
	require.Equal(t, wire.Unreached, s)
	for _, i := range []int{1, 2, 3, 4} {
		s, err := wire.ParseAnswer(got[i], 1)
		require.NoError(t, err)
		require.Equal(t, wire.Done, s)
	}
	d, err := l.Peek(t.Context(), "key")
	require.NoError(t, err)
	require.EqualValues(t, 9, d.Remaining)
	require.EqualValues(t, 1, n.Stats().Overdue)
	require.EqualValues(t, 4, n.Stats().Served)
}
