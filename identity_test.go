package weir

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNamesAndKeysAreKeptApart(t *testing.T) {
	h := newIdentity(nil)
	require.NotEqual(t, h.id(prefix("a_b"), "c"), h.id(prefix("a"), "b_c"))
	require.NotEqual(t, h.id(prefix("ab"), "c"), h.id(prefix("a"), "bc"))
	require.NotEqual(t, h.id(prefix("a"), ""), h.id(prefix("b"), ""))
}

func TestTheSeedKeysTheID(t *testing.T) {
	one, other := newIdentity([]byte("one")), newIdentity([]byte("other"))
	require.NotEqual(t, one.id(prefix("a"), "k"), other.id(prefix("a"), "k"))
	require.NotEqual(t, one.fingerprint(), other.fingerprint())
	require.Equal(t, one, newIdentity([]byte("one")))
}

func TestLongAndShortTextsHashAlike(t *testing.T) {
	h := newIdentity(nil)
	rapid.Check(t, func(t *rapid.T) {
		name := strings.Repeat("n", rapid.IntRange(1, maxNameBytes).Draw(t, "name"))
		key := strings.Repeat("k", rapid.IntRange(0, maxKeyBytes).Draw(t, "key"))
		if h.id(prefix(name), key) != h.longID(prefix(name), key) {
			t.Fatal("two ids for one text")
		}
	})
}

func TestHashingAllocatesNothing(t *testing.T) {
	h, p := newIdentity(nil), prefix("per user")
	for _, key := range []string{"203.0.113.7", strings.Repeat("k", maxKeyBytes)} {
		require.Zero(t, testing.AllocsPerRun(100, func() { h.id(p, key) }))
	}
}
