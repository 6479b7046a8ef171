package owner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

func TestOnlyDenialsOfTheOwnerAreFirm(t *testing.T) {
	n, _ := newOwner()
	l := bucket.Limit{Rate: 10, Per: time.Minute}
	a := wire.Ask{ID: bucket.ID{Hi: 4, Lo: 9}, Limit: &l, Units: 1}
	for s := wire.Source(0); s < wire.Sources; s++ {
		for _, allowed := range []bool{true, false} {
			r := wire.Result{Source: s}
			r.Allowed = allowed
			require.Equal(t, s == wire.Owner && !allowed, n.Firm(&a, &r, 0), "%v, %v", s, allowed)
		}
	}
}

func TestTentativeTakePreventsFirmDenials(t *testing.T) {
	const span = 20 * time.Millisecond
	var s tentative
	id, now := bucket.ID{Lo: 5}, 1000*int64(span)+7
	none := func(at time.Duration) bool { return s.isEmpty(id, now+int64(at), span) }
	s.conclude(id)
	require.True(t, none(0))
	s.begin(id, now, span)
	require.False(t, none(1))
	s.conclude(id)
	require.True(t, none(1))
	s.conclude(id)
	s.begin(id, now, span)
	require.False(t, none(1), "an extra conclude has no effect")
	require.False(t, none(span), "an open take counts for at least one span")
	require.True(t, none(2*span), "an open take counts for at most two spans")
	s.begin(id, now+int64(2*span), span)
	s.begin(id, now+int64(3*span), span)
	s.conclude(id)
	require.False(t, none(3*span+1))
	require.False(t, none(4*span))
	require.True(t, none(5*span))
	require.True(t, s.isEmpty(bucket.ID{Lo: 6}, now, span))
	s.begin(id, now+int64(6*span), span)
	require.True(t, none(60*span), "a take from long ago does not count")
}
