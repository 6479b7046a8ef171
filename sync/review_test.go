package countsync

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

// Between two parts of a review the tally that an id was first heard of with can be
// forgotten, while another stands in a place that was gone through.
func TestAReviewMissesNoTallyThoughOneIsForgottenMeanwhile(t *testing.T) {
	s := New(1, bucket.NewStore(100))
	id, gone := bucket.ID{Hi: 1}, bucket.ID{Hi: 2}
	s.ledger.add(gone, tally{origin: 2})
	s.ledger.add(bucket.ID{Hi: 3}, tally{origin: 2})
	s.ledger.add(id, tally{origin: 2}) // the first that is heard of it
	s.ledger.drop(gone)
	s.ledger.add(id, tally{origin: 3}) // in the place that came free
	require.EqualValues(t, 2, s.ledger.of(id))

	var at review
	seen := make(map[bucket.ID]int)
	for step := 0; ; step++ {
		kind, id, ok := s.nextBeside(&at)
		if !ok {
			break
		}
		if kind == ofTally {
			seen[id]++
		}
		if step == 0 {
			s.ledger.remove(2)
		}
	}
	require.Equal(t, map[bucket.ID]int{id: 1, {Hi: 3}: 1}, seen)
}
