package weir

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// Whatever ranges a member names, they are in order, apart and no more than it named.
func FuzzHashes(f *testing.F) {
	f.Add(handover.AppendRanges(nil, countsync.NewRanges(countsync.Range{First: 1, Last: 9}, countsync.Range{First: 20, Last: 1 << 63})))
	f.Add(handover.AppendRanges(nil, countsync.Ranges{{First: 5, Last: 9}, {First: 1, Last: 6}, {First: 10, Last: 10}}))
	f.Add(handover.AppendRanges(nil, countsync.Ranges{{First: 9, Last: 1}}))
	f.Add(make([]byte, 15))
	f.Fuzz(func(t *testing.T, body []byte) {
		ranges, err := handover.ParseRanges(body)
		if err != nil {
			require.Empty(t, ranges)
			return
		}
		require.LessOrEqual(t, len(ranges), len(body)/16)
		for i, r := range ranges {
			require.LessOrEqual(t, r.First, r.Last)
			require.True(t, i == 0 || ranges[i-1].Last < r.First)
		}
		again, err := handover.ParseRanges(handover.AppendRanges(nil, ranges))
		require.NoError(t, err)
		require.Equal(t, ranges, again)
	})
}

// A lease is whatever ten bytes a member sends, for LongestLease at most.
func FuzzLease(f *testing.F) {
	f.Add(wire.Lease{Units: 1<<32 - 1, Term: 500, Until: 7}.Append(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) != 10 {
			return // a request or an answer of another length is refused before: FuzzServe, FuzzAnswer
		}
		lease := wire.ParseLease(body)
		require.LessOrEqual(t, lease.Term, uint16(wire.LongestLease/time.Millisecond))
		again := lease.Append(nil)
		require.Equal(t, body[:8], again[:8])
		require.Equal(t, lease, wire.ParseLease(again))
	})
}
