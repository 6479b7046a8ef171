package rules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRestoreIDDeletesOverride(t *testing.T) {
	node := startNode(t)
	book := staticBook(t, node, overridable)
	require.NoError(t, book.Override("r", "k", Override{Rate: 5000}))
	require.NoError(t, book.Override("r", "other", Override{Rate: 5000}))
	o, ok := book.OverrideOf("r", "k")
	require.True(t, ok)
	require.NoError(t, book.RestoreID(o.Limit, o.ID))
	require.EqualValues(t, 10, rateOf(book))
	require.NoError(t, book.RestoreID(o.Limit, o.ID), "again")
	require.NoError(t, book.RestoreID("none", o.ID))
	require.Len(t, book.Overrides(), 1, "another key's stays")
}

// A member may have published an override with the highest version that other members accept.
func TestRestoreIDDeletesOverrideOfAnyVersion(t *testing.T) {
	node := startNode(t)
	book := staticBook(t, node, overridable)
	require.NoError(t, book.Override("r", "k", Override{Rate: 5000}))
	o, _ := book.OverrideOf("r", "k")
	values, _ := node.Published("")
	require.Len(t, values, 1)
	for _, ahead := range []time.Duration{time.Minute, time.Hour, 24*time.Hour - time.Minute} {
		require.NoError(t, node.Publish(values[0].Name, uint64(time.Now().Add(ahead).UnixNano()), values[0].Value))
		require.NoError(t, book.RestoreID(o.Limit, o.ID))
		require.EqualValues(t, 10, rateOf(book), "%v", ahead)
		require.NoError(t, book.Override("r", "k", Override{Rate: 7000}))
		require.EqualValues(t, 7000, rateOf(book), "%v", ahead)
	}
}
