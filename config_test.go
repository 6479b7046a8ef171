package weir

import (
	"bytes"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
)

func TestZeroConfigIsValid(t *testing.T) {
	require.NoError(t, Config{}.Validate())
}

func TestConfigErrorNamesEveryInvalidField(t *testing.T) {
	c := Config{
		Name: "a b", Bind: "nowhere", Advertise: "10.0.0.1:x", Join: []string{""}, Expect: -1, Region: strings.Repeat("r", 65),
		Secrets: [][]byte{make([]byte, 5)}, TLS: &tls.Config{}, Timeout: -1, Forget: time.Millisecond, MaxKeys: -3, JoinTimeout: -1,
	}
	before := c
	err := c.Validate()
	require.ErrorIs(t, err, ErrInvalid)
	for _, field := range []string{"Name", "Bind", "Advertise", "Join[0]", "Expect", "Region", "Secrets[0]", "TLS", "Timeout", "JoinTimeout", "Forget", "MaxKeys"} {
		require.ErrorContains(t, err, "Config: "+field)
	}
	require.Equal(t, before, c, "Validate changes nothing")
	require.Equal(t, err.Error(), c.Validate().Error(), "in the same order")
	require.NoError(t, Config{Bind: "nowhere", Cluster: cluster.NewSolo("x", "")}.Validate(), "a Cluster's own affair")
	_, err = Start(t.Context(), c)
	require.ErrorIs(t, err, ErrInvalid)
}

func TestNonLoopbackBindRequiresSecrets(t *testing.T) {
	c := Config{Bind: "0.0.0.0:0", Advertise: "127.0.0.1:0", Logger: quiet}
	_, err := Start(t.Context(), c)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, `Config: Secrets is empty and Bind "0.0.0.0:0"`)
	require.ErrorContains(t, err, "go run github.com/weir-go/weir/cmd/weir secret")
	for name, change := range map[string]func(*Config){
		"with a secret":  func(c *Config) { c.Secrets = [][]byte{make([]byte, 32)} },
		"on a loopback":  func(c *Config) { c.Bind = "127.0.0.1:0" },
		"without a port": func(c *Config) { c.Bind, c.Advertise = "", "" },
		"with a Cluster": func(c *Config) { c.Cluster = cluster.NewSolo("x", "") },
	} {
		t.Run(name, func(t *testing.T) {
			open := c
			change(&open)
			n, err := Start(t.Context(), open)
			require.NoError(t, err)
			require.NoError(t, n.Close())
		})
	}
}

func TestJoinTimeoutHasARange(t *testing.T) {
	for _, good := range []time.Duration{0, time.Millisecond, 24 * time.Hour} {
		require.NoError(t, Config{JoinTimeout: good}.Validate())
	}
	for _, bad := range []time.Duration{-1, 1, 24*time.Hour + 1} {
		require.ErrorContains(t, Config{JoinTimeout: bad}.Validate(), "use 0 for 10s, or 1ms to 24h")
	}
}

// The secrets and certificates of regions are validated like the secrets of a node, and are refused
// without a port.
func TestRegionSecretsAndCertificatesAreValidated(t *testing.T) {
	good := Config{
		Bind: "127.0.0.1:7946", Region: "near", Regions: map[string][]string{"far": {"far.example:7946"}},
		Secrets: [][]byte{make([]byte, 32)}, RegionSecrets: map[string][][]byte{"far": {bytes.Repeat([]byte{1}, 32)}},
	}
	require.NoError(t, good.Validate())
	same := good
	same.RegionSecrets = map[string][][]byte{"far": {make([]byte, 32)}, "farther": {bytes.Repeat([]byte{1}, 32)}}
	same.CertificateNames = map[string][]string{"near": {"near.example"}}
	err := same.Validate()
	require.ErrorIs(t, err, ErrInvalid)
	for _, says := range []string{
		`RegionSecrets["far"][0] is in Secrets too`, `RegionSecrets["farther"] is not one of Regions`,
		"CertificateNames is set and TLS is nil", `CertificateNames has no names of "far"`,
	} {
		require.ErrorContains(t, err, says)
	}
	portless := Config{RegionSecrets: good.RegionSecrets, CertificateNames: same.CertificateNames}
	require.ErrorContains(t, portless.Validate(), "RegionSecrets is set and Bind is empty")
	require.ErrorContains(t, portless.Validate(), "CertificateNames is set and Bind is empty")
}

func TestRegionsRequireNamesAndAddresses(t *testing.T) {
	good := Config{Bind: "127.0.0.1:7946", Region: "near", Regions: map[string][]string{"far": {"far.example:7946", "10.0.0.1:1"}, "farther": {"[::1]:1"}}}
	require.NoError(t, good.Validate())
	made := good.cluster("x-1", [16]byte{})
	require.NotNil(t, made.Region("far"))
	require.Nil(t, made.Region("near"))
	good.Bind, good.Cluster = "", cluster.NewSolo("x", "near")
	require.NoError(t, good.Validate())

	wrong := map[string][]string{"": {"a:1"}, "near": {"a:1"}, "far": nil, "farther": {"a:1", "far.example"}}
	for name, c := range map[string]Config{
		"on a port":                  {Bind: "127.0.0.1:7946", Region: "near", Regions: wrong},
		"with a Cluster of its own":  {Cluster: cluster.NewSolo("x", "near"), Region: "near", Regions: wrong},
		"without a port":             {Region: "near", Regions: wrong},
		"without a port or a Region": {Regions: wrong},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Validate()
			require.ErrorIs(t, err, ErrInvalid)
			says := []string{"without a name", `Regions["far"] has no addresses`, `Regions["farther"][1]: "far.example" is not host:port`}
			if c.Region != "" {
				says = append(says, `Regions["near"] is this node's own Region`)
			} else {
				says = append(says, "Regions is set and Region is empty")
			}
			if c.Bind == "" && c.Cluster == nil {
				says = append(says, "Regions is set and Bind is empty")
			}
			for _, word := range says {
				require.ErrorContains(t, err, "Config: Regions")
				require.ErrorContains(t, err, word)
			}
			require.Len(t, strings.Split(err.Error(), "\n"), len(says), "and nothing else")
		})
	}
}

func TestNetworkFieldsRequireBind(t *testing.T) {
	err := Config{Join: []string{"a:1"}, Secrets: [][]byte{make([]byte, 16)}}.Validate()
	require.ErrorContains(t, err, "Join is set and Bind is empty")
	require.ErrorContains(t, err, "Secrets is set and Bind is empty")
}

func TestLimitErrorNamesEveryInvalidField(t *testing.T) {
	err := Limit{Algorithm: 99, Rate: -1, Per: 1, Burst: -1, Scope: 7, Partition: 9}.Validate()
	require.ErrorIs(t, err, ErrInvalid)
	for _, field := range []string{"Name", "Algorithm", "Rate", "Per", "Burst", "Scope", "Partition"} {
		require.ErrorContains(t, err, field)
	}
}

func TestLimitValidation(t *testing.T) {
	good := Limit{Name: "x", Rate: 1, Per: time.Second}
	for _, c := range []struct {
		name  string
		wrong string // the field, "" if the limit is good
		edit  func(*Limit)
	}{
		{"the least", "", func(l *Limit) { l.Per = time.Millisecond }},
		{"the most", "", func(l *Limit) { l.Rate, l.Per = 1e12, 366*24*time.Hour }},
		{"no name", "Name", func(l *Limit) { l.Name = "" }},
		{"a name that is too long", "Name", func(l *Limit) { l.Name = strings.Repeat("x", 256) }},
		{"a rate of nothing", "Rate", func(l *Limit) { l.Rate = 0 }},
		{"a rate above the most", "Rate", func(l *Limit) { l.Rate = 1e12 + 1 }},
		{"no period", "Per", func(l *Limit) { l.Per = 0 }},
		{"a period above the most", "Per", func(l *Limit) { l.Per = 366*24*time.Hour + 1 }},
		{"a burst for a window", "Burst", func(l *Limit) { l.Burst = 5 }},
		{"a burst for a bucket", "", func(l *Limit) { l.Algorithm, l.Burst = TokenBucket, 5 }},
		{"a log above 100,000 units", "Rate", func(l *Limit) { l.Algorithm, l.Rate = SlidingLog, 100_001 }},
		{"a scope", "Scope", func(l *Limit) { l.Scope = Global + 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := good
			c.edit(&l)
			err := l.Validate()
			if c.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.wrong)
			require.True(t, errors.Is(err, ErrInvalid))
		})
	}
}

func TestRegionSharesCoverEachRegion(t *testing.T) {
	good := Config{
		Bind: "127.0.0.1:7946", Region: "near", Regions: map[string][]string{"far": {"far.example:7946"}},
		RegionShares: map[string]int64{"near": 7, "far": 3},
	}
	require.NoError(t, good.Validate())
	for name, c := range map[string]struct {
		shares map[string]int64
		says   []string
	}{
		"one too few":        {map[string]int64{"near": 1}, []string{`no share of "far"`}},
		"one too many":       {map[string]int64{"near": 1, "far": 1, "mars": 1}, []string{`names "mars"`}},
		"nothing for one":    {map[string]int64{"near": 1, "far": 0}, []string{`of "far" is 0`}},
		"more than a number": {map[string]int64{"near": 1_000_001, "far": 1}, []string{`of "near" is 1000001`}},
		"none at all":        {map[string]int64{}, []string{`no share of "far"`, `no share of "near"`}},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			bad.RegionShares = c.shares
			err := bad.Validate()
			require.ErrorIs(t, err, ErrInvalid)
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
}
