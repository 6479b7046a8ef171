package rules

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestAnOverrideIsTakenBackByItsID(t *testing.T) {
	node, err := weir.Start(t.Context(), weir.Config{})
	require.NoError(t, err)
	defer node.Close()
	book, err := Static(node, mustParse(t, overridable))
	require.NoError(t, err)
	defer book.Close()
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
