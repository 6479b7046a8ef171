package weir

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

// Between a grant and its refund a state may come, which was under way for longer than
// the one before: its windows and entries begin later.
func TestWhatAStandInGrantedIsGivenBackAfterAStateHasCome(t *testing.T) {
	for _, algorithm := range algorithms {
		limit := bucket.Limit{Algorithm: algorithm, Rate: 100, Per: time.Hour, Version: 1}
		if limit.IsBucket() {
			limit.Burst = 100
		}
		for _, stoodIn := range []bool{true, false} {
			n := solo(t, Config{})
			v, id, now := n.view.Load(), bucket.ID{Hi: 1, Lo: 2}, n.now()
			authority, state := bucket.NewStore(1, bucket.Salt{}), new(bucket.Count)
			arrives := func(after time.Duration, onTop int64) {
				authority.Export(id, now, bucket.Mark{}, state)
				now += int64(after)
				n.counts.Import(id, state, now, onTop)
			}
			authority.Take(id, &limit, now, 10)
			arrives(time.Millisecond, 0)
			now += int64(time.Millisecond)
			a, r := ask{id: id, limit: &limit, partition: FailOpen, units: 3}, result{}
			n.spend(v, asStandIn, opTake, 0, &a, now, &r)
			require.True(t, r.Allowed)
			require.True(t, r.stoodIn)
			r.stoodIn = stoodIn
			authority.Take(id, &limit, now, 20)
			arrives(70*time.Millisecond, 3) // what was granted here is in this node's tally
			refund := a.taken(&r)
			n.spend(v, v.standing(id), opRefund, 0, &refund, now, new(result))
			used, _, _ := n.counts.Used(id, now)
			if stoodIn || limit.IsBucket() {
				require.EqualValues(t, 30, used, algorithm)
			} else {
				require.EqualValues(t, 33, used, "%v: a receipt of an authority's is exact", algorithm)
			}
			now += int64(limit.Per) // what is used from now on, the receipt is not of
			n.counts.Take(id, &limit, now, 40)
			before, _, _ := n.counts.Used(id, now)
			n.spend(v, v.standing(id), opRefund, 0, &refund, now, new(result))
			used, _, _ = n.counts.Used(id, now)
			require.Equal(t, before, used, algorithm)
		}
	}
}

func TestWhoPassesAnAnswerOnHasGrantedNothingItself(t *testing.T) {
	answer := appendAnswer(nil, statusDone, 2)
	for _, source := range []Source{StandIn, Budget} {
		r := result{bucket.Result{Allowed: true, Receipt: 7}, source, true, false, wireLease{}, 5, 0}
		answer = r.append(answer)
	}
	require.True(t, parseResult(answer, 1).stoodIn)
	unmarkStoodIn(answer)
	for i, source := range []Source{StandIn, Budget} {
		r := parseResult(answer, i)
		require.Equal(t, result{bucket.Result{Allowed: true, Receipt: 7}, source, false, false, wireLease{}, 5, 0}, r)
	}
	unmarkStoodIn(appendAnswer(nil, statusUnreached, 0))
}
