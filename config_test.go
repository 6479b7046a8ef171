package weir

import (
	"crypto/tls"
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
		Regions: map[string][]string{"far": nil}, RegionSecrets: map[string][][]byte{"mars": {make([]byte, 16)}}, CertificateNames: map[string][]string{"mars": nil},
	}
	before := c
	err := c.Validate()
	require.ErrorIs(t, err, ErrInvalid)
	for _, field := range []string{"Name", "Bind", "Advertise", "Join[0]", "Expect", "Region", "Secrets[0]", "TLS", "Timeout", "JoinTimeout", "Forget", "MaxKeys", "Regions", "RegionSecrets", "CertificateNames"} {
		require.ErrorContains(t, err, "Config: "+field)
	}
	require.Equal(t, before, c, "Validate changes nothing")
	require.Equal(t, err.Error(), c.Validate().Error(), "in the same order")
	require.NoError(t, Config{Bind: "nowhere", Cluster: cluster.NewSolo("x", "")}.Validate(), "Bind is not used with a Cluster")
	require.ErrorContains(t, Config{Cluster: cluster.NewSolo("x", ""), Regions: c.Regions}.Validate(), "Config: Regions")
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

func TestJoinTimeoutOutsideRangeIsRefused(t *testing.T) {
	for _, good := range []time.Duration{0, time.Millisecond, 24 * time.Hour} {
		require.NoError(t, Config{JoinTimeout: good}.Validate())
	}
	for _, bad := range []time.Duration{-1, 1, 24*time.Hour + 1} {
		require.ErrorContains(t, Config{JoinTimeout: bad}.Validate(), "use 0 for 10s, or 1ms to 24h")
	}
}

func TestNetworkFieldsRequireBind(t *testing.T) {
	for field, c := range map[string]Config{
		"Join":             {Join: []string{"a:1"}},
		"Secrets":          {Secrets: [][]byte{make([]byte, 16)}},
		"Regions":          {Region: "near", Regions: map[string][]string{"far": {"a:1"}}},
		"RegionSecrets":    {RegionSecrets: map[string][][]byte{"far": {make([]byte, 32)}}},
		"CertificateNames": {CertificateNames: map[string][]string{"far": {"far.example"}}},
	} {
		require.ErrorContains(t, c.Validate(), field+" is set and Bind is empty")
	}
}

func TestLimitErrorNamesEveryInvalidField(t *testing.T) {
	err := Limit{Algorithm: 99, Rate: -1, Per: 1, Burst: -1, Scope: Global + 1, Partition: 9, Durable: NotDurable + 1}.Validate()
	require.ErrorIs(t, err, ErrInvalid)
	for _, field := range []string{"Name", "Algorithm", "Rate", "Per", "Burst", "Scope", "Partition", "Durable"} {
		require.ErrorContains(t, err, field)
	}
	named := Limit{Name: strings.Repeat("x", 255), Rate: 1, Per: time.Second}
	require.NoError(t, named.Validate())
	named.Name += "x"
	require.ErrorContains(t, named.Validate(), "Name has 256 bytes")
}

func TestRegionSharesMustCoverEachRegion(t *testing.T) {
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
