package weir

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

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

func TestTheLongestNameAndKeyAreHashed(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Name: strings.Repeat("n", wire.MaxNameBytes), Rate: 1, Per: time.Second})
	require.True(t, allow(t, l, strings.Repeat("k", wire.MaxKeyBytes), 1).Allowed)
	require.True(t, l.Owner(strings.Repeat("k", wire.MaxKeyBytes)).Self)
	require.Zero(t, l.Owner(strings.Repeat("k", wire.MaxKeyBytes+1)))
}
