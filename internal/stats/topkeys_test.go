package stats

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/wire"
)

func idOf(key uint64) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], key*0x9E3779B97F4A7C15)
	return id
}

func TestCheckDoesNotWaitForTopKeys(t *testing.T) {
	var k TopKeys
	k.Start(10, 0)
	k.mu.Lock()
	for range 5 {
		k.Add(idOf(1), "limit", "key", false, true, 1, 0)
	}
	k.mu.Unlock()
	top := k.Top(0)
	require.Empty(t, top.asked.keys)
	require.Empty(t, top.denied.keys)
}

func TestDisabledTopKeysAreEmpty(t *testing.T) {
	var k TopKeys
	k.Start(-1, 0)
	k.Add(idOf(1), "limit", "secret", false, false, 1, 0)
	top := k.Top(0)
	require.Equal(t, Top{Silent: true}, top)
	require.Equal(t, []byte{0}, top.Append(nil, true))
}

// The bounds also hold for the sum of several nodes.
func TestMergedCountsAreWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []Top
		asks, denials := make(map[[16]byte]uint64), make(map[[16]byte]uint64)
		for range rapid.IntRange(1, 5).Draw(t, "nodes") {
			var k TopKeys
			k.Start(rapid.IntRange(1, 8).Draw(t, "size"), 0)
			for range rapid.IntRange(0, 60).Draw(t, "asks") {
				key := rapid.Uint64Range(0, 12).Draw(t, "key")
				allowed := rapid.Bool().Draw(t, "allowed")
				k.Add(idOf(key), "limit", fmt.Sprint(key), false, allowed, 3, 0)
				asks[idOf(key)] += 3
				if !allowed {
					denials[idOf(key)] += 3
				}
			}
			own := k.Top(0)
			require.False(t, own.Silent)
			got, err := ParseTop(own.Append(nil, true))
			require.NoError(t, err)
			require.Equal(t, own, got)
			all = append(all, got)
		}
		byAsks, byDenials := MergeTop(all, MaxTop)
		require.True(t, slices.IsSortedFunc(byAsks, func(a, b TopKey) int { return int(b.Asks) - int(a.Asks) }))
		require.True(t, slices.IsSortedFunc(byDenials, func(a, b TopKey) int { return int(b.Denials) - int(a.Denials) }))
		for _, k := range slices.Concat(byAsks, byDenials) {
			require.True(t, k.Known)
			require.GreaterOrEqual(t, k.Asks, asks[k.ID])
			require.LessOrEqual(t, k.Asks-k.AsksOver, asks[k.ID])
			require.GreaterOrEqual(t, k.Denials, denials[k.ID])
			require.LessOrEqual(t, k.Denials-k.DenialsOver, denials[k.ID])
		}
	})
}

func TestAnswerWithLongKeysIsTruncated(t *testing.T) {
	var k TopKeys
	k.Start(MaxTop, 0)
	for i := range MaxTop {
		k.Add(idOf(uint64(i)), strings.Repeat("l", wire.MaxNameBytes), strings.Repeat("k", wire.MaxKeyBytes), false, true, uint64(MaxTop-i), 0)
	}
	all := k.Top(0)
	b := all.Append(nil, true)
	require.Less(t, len(b), topBytes)
	top, err := ParseTop(b)
	require.NoError(t, err)
	got := top.asked
	require.Less(t, len(got.keys), MaxTop)
	require.Greater(t, len(got.keys), 10)
	require.Equal(t, all.asked.keys[:len(got.keys)], got.keys)
	require.Equal(t, all.asked.keys[len(got.keys)].count, got.floor, "omitted keys have no higher count")

	hidden := all.Append(nil, false)
	require.NotContains(t, string(hidden), "kkk")
	top, err = ParseTop(hidden)
	require.NoError(t, err)
	require.NotEmpty(t, top.asked.keys)
	for _, e := range top.asked.keys {
		require.False(t, e.known)
	}
}

// An answer of a member is a list that can be merged, or an error.
func FuzzTop(f *testing.F) {
	l := topList{3, []topEntry{{[16]byte{1}, 7, 2, "limit", "key", true}, {[16]byte{2}, 5, 5, "limit", "", false}}}
	f.Add((&Top{asked: l, denied: l}).Append(nil, true))
	f.Add([]byte{0})
	f.Add([]byte{0, 0})
	f.Add([]byte{1, 5, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		top, err := ParseTop(body)
		if err != nil {
			require.Zero(t, top)
			return
		}
		for _, e := range slices.Concat(top.asked.keys, top.denied.keys) {
			require.LessOrEqual(t, e.over, e.count)
		}
		byAsks, byDenials := MergeTop([]Top{top, top}, MaxTop)
		require.LessOrEqual(t, max(len(byAsks), len(byDenials)), MaxTop)
	})
}
