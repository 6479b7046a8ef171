package weir

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dchest/siphash"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
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

func TestASeedIsNoneOrSixteenBytesAndMore(t *testing.T) {
	for _, good := range []int{0, 16, 17, 32, 1000} {
		require.NoError(t, Config{Seed: make([]byte, good)}.Validate(), "%d bytes", good)
	}
	for bad := 1; bad < 16; bad++ {
		err := Config{Seed: make([]byte, bad)}.Validate()
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, "Config: Seed has")
		_, err = Start(t.Context(), Config{Seed: make([]byte, bad)})
		require.ErrorIs(t, err, ErrInvalid)
	}
}

func TestWhereOthersReachANodeAPublicSeedIsWarnedOf(t *testing.T) {
	own := []byte("sixteen bytes...")
	for name, test := range map[string]struct {
		cfg   Config
		warns int
	}{
		"an address of others":         {Config{Bind: "127.0.0.1:0", Advertise: "192.0.2.1:7946"}, 1},
		"an address of others, a Seed": {Config{Bind: "127.0.0.1:0", Advertise: "192.0.2.1:7946", Seed: own}, 0},
		"a loopback":                   {Config{Bind: "127.0.0.1:0"}, 0},
		"no network":                   {Config{}, 0},
		"a Cluster of the caller's":    {Config{Cluster: cluster.NewSolo("far.example:1", "")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			test.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			if test.cfg.Bind != "" {
				test.cfg.Secrets = [][]byte{make([]byte, 32)}
			}
			n, err := Start(t.Context(), test.cfg)
			require.NoError(t, err)
			require.NoError(t, n.Close())
			require.Equal(t, test.warns, strings.Count(log.String(), "no Seed is set"), log.String())
		})
	}
}

func TestOnlyALoopbackIsOnThisMachine(t *testing.T) {
	for _, addr := range []string{"", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1"} {
		require.True(t, onThisMachine(addr), addr)
	}
	for _, addr := range []string{"10.0.0.1:1", "[2001:db8::1]:1", "0.0.0.0:1", "[::]:1", "limits.example:1", "localhost.example:1"} {
		require.False(t, onThisMachine(addr), addr)
	}
}

// The id is SipHash-128 of the length of the name, the name, zeros up to whole
// words, and the key, whatever their lengths, but for the bit that Global limits have.
func TestTheIDIsTheHashOfNameAndKey(t *testing.T) {
	h := newIdentity(nil)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, -1, wire.MaxNameBytes).Draw(t, "name")
		key := rapid.StringN(0, -1, wire.MaxKeyBytes).Draw(t, "key")
		text := append([]byte{byte(len(name)), byte(len(name) >> 8)}, name...)
		for len(text)%8 != 0 {
			text = append(text, 0)
		}
		hi, lo := siphash.Hash128(h.k0, h.k1, append(text, key...))
		if h.id(prefix(name), key) != (bucket.ID{Hi: hi &^ wire.GlobalIDBit, Lo: lo}) {
			t.Fatal("another id")
		}
	})
}

func TestTheLongestNameAndKeyAreHashed(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Name: strings.Repeat("n", wire.MaxNameBytes), Rate: 1, Per: time.Second})
	require.True(t, allow(t, l, strings.Repeat("k", wire.MaxKeyBytes), 1).Allowed)
	require.True(t, l.Owner(strings.Repeat("k", wire.MaxKeyBytes)).Self)
	require.Zero(t, l.Owner(strings.Repeat("k", wire.MaxKeyBytes+1)))
}

func TestHashingAllocatesNothing(t *testing.T) {
	h, p := newIdentity(nil), prefix("per user")
	for _, key := range []string{"203.0.113.7", strings.Repeat("k", wire.MaxKeyBytes)} {
		require.Zero(t, testing.AllocsPerRun(100, func() { h.id(p, key) }))
	}
}
