package identity

import (
	"strings"
	"testing"

	"github.com/dchest/siphash"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	_ "github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/wire"
)

func TestIDsOfDifferentNamesOrKeysDiffer(t *testing.T) {
	h := New(nil)
	require.NotEqual(t, h.ID(Prefix("a_b"), "c"), h.ID(Prefix("a"), "b_c"))
	require.NotEqual(t, h.ID(Prefix("ab"), "c"), h.ID(Prefix("a"), "bc"))
	require.NotEqual(t, h.ID(Prefix("a"), ""), h.ID(Prefix("b"), ""))
}

func TestSeedChangesTheID(t *testing.T) {
	one, other := New([]byte("one")), New([]byte("other"))
	require.NotEqual(t, one.ID(Prefix("a"), "k"), other.ID(Prefix("a"), "k"))
	require.NotEqual(t, one.Fingerprint(), other.Fingerprint())
	require.Equal(t, one, New([]byte("one")))
}

// The id of a name and a key of any lengths is the SipHash-128 of the length of the name, the
// name, zeros up to a multiple of 8 bytes, and the key, with the bit of Global limits cleared.
func TestIDIsHashOfNameAndKey(t *testing.T) {
	h := New(nil)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, -1, wire.MaxNameBytes).Draw(t, "name")
		key := rapid.StringN(0, -1, wire.MaxKeyBytes).Draw(t, "key")
		text := append([]byte{byte(len(name)), byte(len(name) >> 8)}, name...)
		for len(text)%8 != 0 {
			text = append(text, 0)
		}
		hi, lo := siphash.Hash128(h.k0, h.k1, append(text, key...))
		if h.ID(Prefix(name), key) != (bucket.ID{Hi: hi &^ wire.GlobalIDBit, Lo: lo}) {
			t.Fatal("another id")
		}
	})
}

func TestHashingAllocatesNothing(t *testing.T) {
	h, p := New(nil), Prefix("per user")
	for _, key := range []string{"203.0.113.7", strings.Repeat("k", wire.MaxKeyBytes)} {
		require.Zero(t, testing.AllocsPerRun(100, func() { h.ID(p, key) }))
	}
}
