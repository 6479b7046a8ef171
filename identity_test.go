package weir

import (
	"strings"
	"testing"
	"time"

	"github.com/dchest/siphash"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
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

// The id is SipHash-128 of the length of the name, the name, zeros up to whole
// words, and the key, whatever their lengths.
func TestTheIDIsTheHashOfNameAndKey(t *testing.T) {
	h := newIdentity(nil)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, -1, maxNameBytes).Draw(t, "name")
		key := rapid.StringN(0, -1, maxKeyBytes).Draw(t, "key")
		text := append([]byte{byte(len(name)), byte(len(name) >> 8)}, name...)
		for len(text)%8 != 0 {
			text = append(text, 0)
		}
		hi, lo := siphash.Hash128(h.k0, h.k1, append(text, key...))
		if h.id(prefix(name), key) != (bucket.ID{Hi: hi, Lo: lo}) {
			t.Fatal("another id")
		}
	})
}

func TestTheLongestNameAndKeyAreHashed(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Name: strings.Repeat("n", maxNameBytes), Rate: 1, Per: time.Second})
	require.True(t, allow(t, l, strings.Repeat("k", maxKeyBytes), 1).Allowed)
	require.True(t, l.Owner(strings.Repeat("k", maxKeyBytes)).Self)
	require.Zero(t, l.Owner(strings.Repeat("k", maxKeyBytes+1)))
}

func TestHashingAllocatesNothing(t *testing.T) {
	h, p := newIdentity(nil), prefix("per user")
	for _, key := range []string{"203.0.113.7", strings.Repeat("k", maxKeyBytes)} {
		require.Zero(t, testing.AllocsPerRun(100, func() { h.id(p, key) }))
	}
}
