package weir

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/wire"
)

func TestTheTopKeysAreThoseAskedForAndDeniedMost(t *testing.T) {
	n := solo(t, Config{})
	free, tight := limiter(t, n, Limit{Name: "free", Rate: 1e6, Per: time.Hour}), limiter(t, n, Limit{Name: "tight", Rate: 5, Per: time.Hour})
	for i := range 30 {
		for range 30 - i {
			_, err := free.Allow(t.Context(), fmt.Sprint("user ", i))
			require.NoError(t, err)
		}
	}
	for range 12 {
		_, err := tight.Allow(t.Context(), "greedy")
		require.NoError(t, err)
		_, err = tight.Peek(t.Context(), "looked at")
		require.NoError(t, err)
	}
	top, err := n.TopKeys(t.Context(), 3)
	require.NoError(t, err)
	require.Len(t, top.Asked, 3)
	for i, k := range top.Asked {
		key := fmt.Sprint("user ", i)
		require.Equal(t, TopKey{Limit: "free", ID: free.ID(key), Key: key, Known: true, Asks: uint64(30 - i)}, k)
	}
	require.Equal(t, []TopKey{{Limit: "tight", ID: tight.ID("greedy"), Key: "greedy", Known: true, Asks: 12, Denials: 7}}, top.Denied)
	require.Empty(t, top.Missing)
	require.Equal(t, TopKeyStats{Asked: 31, Denied: 1}, n.Stats().TopKeys)
}

func TestTopKeysThatAreSwitchedOffAreNeitherKeptNorTold(t *testing.T) {
	n := solo(t, Config{TopKeys: -1})
	l := limiter(t, n, Limit{Name: "limit", Rate: 1, Per: time.Hour})
	for range 3 {
		_, err := l.Allow(t.Context(), "secret")
		require.NoError(t, err)
	}
	top, err := n.TopKeys(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, TopKeys{Silent: []string{n.Members()[0].Name}}, top)
	require.Zero(t, n.Stats().TopKeys)
	var got []byte
	n.serveTop(env.Sender{}, nil, func(body []byte) { got = body })
	require.NoError(t, n.Close())
	require.Equal(t, append(wire.AppendAnswer(nil, wire.Done, 0), 0), got)
}

func TestTopKeysWantsANumberItCanAnswer(t *testing.T) {
	n := solo(t, Config{})
	for _, most := range []int{-1, 0, maxTop + 1} {
		_, err := n.TopKeys(t.Context(), most)
		require.ErrorIs(t, err, ErrInvalid)
	}
	require.NoError(t, n.Close())
	_, err := n.TopKeys(t.Context(), 1)
	require.ErrorIs(t, err, ErrClosed)
}

func TestACheckDoesNotWaitForTheTopKeys(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Name: "limit", Rate: 100, Per: time.Hour})
	n.topKeys.mu.Lock()
	for range 5 {
		_, err := l.Allow(t.Context(), "key")
		require.NoError(t, err)
	}
	n.topKeys.mu.Unlock()
	require.Equal(t, TopKeyStats{Dropped: 5}, n.Stats().TopKeys)
}

// What several nodes say is merged so that the bounds hold of the sum.
func TestMergedTopKeysHoldTheTrueCountsWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var asked, denied []topList
		asks, denials := make(map[[16]byte]uint64), make(map[[16]byte]uint64)
		for range rapid.IntRange(1, 5).Draw(t, "nodes") {
			var k topKeys
			k.start(rapid.IntRange(1, 8).Draw(t, "size"), 0)
			for range rapid.IntRange(0, 60).Draw(t, "asks") {
				id := bucket.ID{Lo: rapid.Uint64Range(0, 12).Draw(t, "key")}
				allowed := rapid.Bool().Draw(t, "allowed")
				k.add(id, "limit", fmt.Sprint(id.Lo), allowed, 3, 0)
				asks[bytesOf(id)] += 3
				if !allowed {
					denials[bytesOf(id)] += 3
				}
			}
			a, d, silent := k.lists(0)
			require.False(t, silent)
			body := d.append(a.append([]byte{1}, topBytes, true), topBytes, true)
			a, d, silent, err := parseTop(body)
			require.NoError(t, err)
			require.False(t, silent)
			asked, denied = append(asked, a), append(denied, d)
		}
		byAsks, byDenials := topOf(asked, denied, maxTop)
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

func TestAnAnswerWithLongKeysIsCutAndSaysSo(t *testing.T) {
	var k topKeys
	k.start(maxTop, 0)
	for i := range maxTop {
		k.add(bucket.ID{Lo: uint64(i)}, strings.Repeat("l", maxNameBytes), strings.Repeat("k", maxKeyBytes), true, uint64(maxTop-i), 0)
	}
	all, denied, _ := k.lists(0)
	b := denied.append(all.append([]byte{1}, topBytes/2, true), topBytes/2, true)
	require.Less(t, len(b), topBytes)
	got, _, _, err := parseTop(b)
	require.NoError(t, err)
	require.Less(t, len(got.top), maxTop)
	require.Greater(t, len(got.top), 10)
	require.Equal(t, all.top[:len(got.top)], got.top)
	require.Equal(t, all.top[len(got.top)].count, got.floor, "what is left out has no more")

	hidden := append([]byte{1}, all.append(nil, topBytes/2, false)...)
	require.NotContains(t, string(hidden), "kkk")
	got, _, _, err = parseTop(denied.append(hidden, topBytes/2, false))
	require.NoError(t, err)
	require.NotEmpty(t, got.top)
	for _, e := range got.top {
		require.False(t, e.known)
	}
}

func TestKeysTextIsToldWhereMembersAreAuthenticated(t *testing.T) {
	require.False(t, (&Config{Bind: "127.0.0.1:0"}).tellsKeys())
	require.False(t, (&Config{Bind: ":1", Insecure: true}).tellsKeys())
	require.True(t, (&Config{Bind: ":1", Secrets: [][]byte{make([]byte, 16)}}).tellsKeys())
}

// Whatever a member answers, it is a list that can be merged.
func FuzzTop(f *testing.F) {
	l := topList{3, []topEntry{{[16]byte{1}, 7, 2, "limit", "key", true}, {[16]byte{2}, 5, 5, "limit", "", false}}}
	f.Add(l.append(l.append([]byte{1}, topBytes, true), topBytes, true))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, body []byte) {
		asked, denied, silent, err := parseTop(body)
		if err != nil || silent {
			return
		}
		byAsks, byDenials := topOf([]topList{asked, asked}, []topList{denied, denied}, maxTop)
		require.LessOrEqual(t, max(len(byAsks), len(byDenials)), maxTop)
	})
}
