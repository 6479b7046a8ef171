package weir

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

func TestSecretsAreReadAsPrinted(t *testing.T) {
	for _, c := range []struct {
		text    string
		secrets []string
		seed    string
		wrong   string
	}{
		{"secret: 6e6577\nseed: 736565640a\nsecret: 6f6c64\n", []string{"new", "old"}, "seed\n", ""},
		{"secret: 6E6577", []string{"new"}, "", ""},
		{"seed:73656564\r\n", nil, "seed", ""},
		{"secret: 6e6577; secret: 6f6c64, seed: 73656564", []string{"new", "old"}, "seed", ""},
		{"# of May: secret: 00\n\n  secret: 6e6577\n", []string{"new"}, "", ""},
		{"", nil, "", "line 1 has no secret and no seed"},
		{"# nothing", nil, "", "line 1 has no secret and no seed"},
		{"6e6577", nil, "", "line 1 begins with neither"},
		{"secret: 6e6577\nsecrets: 6f6c64", nil, "", "line 2 begins with neither"},
		{"secret: new", nil, "", "line 1 has a secret that is not in hexadecimal"},
		{"secret:", nil, "", "line 1 has a secret that is not in hexadecimal"},
		{"secret: 6e6577\n\nseed: 7", nil, "", "line 3 has a seed that is not in hexadecimal"},
		{"seed: 00\nseed: 00", nil, "", "line 2 has a second seed"},
	} {
		file := filepath.Join(t.TempDir(), "weir.secret")
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
		for from, read := range map[string]func() ([][]byte, []byte, error){
			"a text": func() ([][]byte, []byte, error) { return ParseSecrets(c.text) },
			"a file": func() ([][]byte, []byte, error) { return ReadSecrets(file) },
		} {
			secrets, seed, err := read()
			if c.wrong != "" {
				require.ErrorIs(t, err, ErrInvalid)
				require.ErrorContains(t, err, c.wrong)
				require.ErrorContains(t, err, "write the lines that weir secret prints")
				require.Equal(t, from == "a file", strings.Contains(err.Error(), file))
				require.NotContains(t, err.Error(), "6e6577", "the error contains a part of a secret")
				continue
			}
			require.NoError(t, err, "%q from %s", c.text, from)
			var got []string
			for _, secret := range secrets {
				got = append(got, string(secret))
			}
			require.Equal(t, c.secrets, got, "%q from %s", c.text, from)
			require.Equal(t, c.seed, string(seed))
			require.Equal(t, c.seed == "", seed == nil)
		}
	}
	for _, name := range []string{t.TempDir(), os.DevNull, filepath.Join(t.TempDir(), "none")} {
		_, _, err := ReadSecrets(name)
		require.ErrorContains(t, err, name)
	}
}

// Hexadecimal text that ParseSecrets would decode must not be used as it is in a Config. Validate
// refuses it.
func TestHexadecimalSecretsAreRefused(t *testing.T) {
	const digits = "000102030405060708090A0b0c0d0e0f"
	good := []byte("0123456789abcdeg") // 16 bytes that are not all hexadecimal digits
	for field, cfg := range map[string]Config{
		"Secrets[1]": {Bind: "127.0.0.1:0", Secrets: [][]byte{good, []byte(digits)}},
		"Seed":       {Bind: "127.0.0.1:0", Seed: []byte(digits)},
		`RegionSecrets["us"][0]`: {Bind: "127.0.0.1:0", Region: "eu", Regions: map[string][]string{"us": {"127.0.0.1:1"}},
			Secrets: [][]byte{good}, RegionSecrets: map[string][][]byte{"us": {[]byte(digits)}}},
	} {
		err := cfg.Validate()
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, field+" is hexadecimal text")
		require.NotContains(t, err.Error(), digits)
	}
	require.NoError(t, Config{Bind: "127.0.0.1:0", Secrets: [][]byte{[]byte("0123456789abcdef"), []byte("0123456789abcdef01234567")}}.Validate(),
		"too few digits for a secret of 16 bytes")
}

// Any text is read as secrets and a Seed, or is refused with an error that does not contain its
// words of 20 bytes or more.
func FuzzParseSecrets(f *testing.F) {
	f.Add("secret: 000102030405060708090a0b0c0d0e0f\nseed: 0001")
	f.Add("# May\nsecret: 00; seed: 01, secret: 02")
	f.Add("secret: hush-hush-hush-hush-hush")
	f.Fuzz(func(t *testing.T, text string) {
		secrets, seed, err := ParseSecrets(text)
		require.Equal(t, err == nil, len(secrets)+len(seed) > 0)
		for _, secret := range secrets {
			require.NotEmpty(t, secret)
		}
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			for word := range strings.FieldsSeq(text) {
				require.True(t, len(word) < 20 || !strings.Contains(err.Error(), word))
			}
		}
	})
}

func TestSeedHasSixteenBytesOrMore(t *testing.T) {
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

func TestReachableNodeWarnsAboutPublicSeed(t *testing.T) {
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

func TestLongestNameAndKeyAreHashed(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Name: strings.Repeat("n", wire.MaxNameBytes), Rate: 1, Per: time.Second})
	require.True(t, allow(t, l, strings.Repeat("k", wire.MaxKeyBytes), 1).Allowed)
	require.True(t, l.Owner(strings.Repeat("k", wire.MaxKeyBytes)).Self)
	require.Zero(t, l.Owner(strings.Repeat("k", wire.MaxKeyBytes+1)))
}
