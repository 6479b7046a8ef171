package cluster

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

func validConfig() Config { return Config{Name: "a-1", Bind: "127.0.0.1:7946"} }

// threeRegions sets the region of c to r, and adds the regions s and t.
func threeRegions(c *Config) {
	c.Region, c.Regions = "r", map[string][]string{"s": {"s.example:7946"}, "t": {"t.example:7946"}}
}

// secretOf returns a secret of 16 bytes b.
func secretOf(b byte) []byte { return bytes.Repeat([]byte{b}, 16) }

func TestValidateReportsEachInvalidField(t *testing.T) {
	certificate := tls.Certificate{}
	forServers := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
	forClients := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	forAny := func(*tls.ClientHelloInfo) (*tls.Config, error) { return new(tls.Config), nil }
	verify := func(tls.ConnectionState) error { return nil }
	own, roots, one := []tls.Certificate{certificate}, x509.NewCertPool(), [][]byte{secretOf(1)}
	withTLS := func(t *tls.Config) func(*Config) { return func(c *Config) { c.TLS = t } }
	bySecrets := func(own [][]byte, regions map[string][][]byte) func(*Config) {
		return func(c *Config) {
			threeRegions(c)
			c.Secrets, c.RegionSecrets = own, regions
		}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		says   []string // words of the errors; empty if the configuration is valid
	}{
		"nothing but a name and a port": {func(*Config) {}, nil},
		"no name":                       {func(c *Config) { c.Name = "" }, []string{"Name is empty"}},
		"a name too long":               {func(c *Config) { c.Name = strings.Repeat("n", detect.MaxName+1) }, []string{"Name", "129", "128"}},
		"a region too long":             {func(c *Config) { c.Region = strings.Repeat("r", detect.MaxRegion+1) }, []string{"Region", "65", "64"}},
		"other regions": {func(c *Config) {
			c.Region, c.Regions = "r", map[string][]string{"s": {"s.example:7946", "10.0.0.1:7946", "[::1]:1"}, "t": {"t:1"}}
		}, nil},
		"other regions without an own Region": {func(c *Config) { c.Regions = map[string][]string{"s": {"s:1"}} }, []string{"Regions is set and Region is empty"}},
		"a region without addresses": {func(c *Config) { c.Region, c.Regions = "r", map[string][]string{"s": nil} },
			[]string{`Regions["s"] has no addresses`}},
		"its own region in Regions": {func(c *Config) { c.Region, c.Regions = "r", map[string][]string{"r": {"s:1"}} },
			[]string{`Regions["r"] is this node's own Region`}},
		"every problem with regions at once": {func(c *Config) {
			c.Region, c.Regions = "r", map[string][]string{
				"": {"s:1"}, strings.Repeat("s", 65): {"s:1"}, "r": {"x"}, "t": {"t:1", "t.example", "", ":7946", "t:0", "t:x", "http://t:1", "10.0.0.1"},
			}
		}, []string{
			"Regions has a region without a name", "a name of 65 bytes", `Regions["r"] is`, `Regions["r"][0]: "x"`, `Regions["t"][1]: "t.example" is not host:port`,
			`Regions["t"][2]`, `Regions["t"][3]: ":7946" has no host`, `Regions["t"][4]: "t:0" has port 0`, `Regions["t"][5]: "t:x" has port "x"`,
			`Regions["t"][6]: "http://t:1"`, `Regions["t"][7]: "10.0.0.1" is not host:port`,
		}},
		"no port to bind":                 {func(c *Config) { c.Bind = "10.0.0.1" }, []string{"Bind", "10.0.0.1", "host:port"}},
		"a port out of range":             {func(c *Config) { c.Bind = ":65536" }, []string{"Bind", "65536"}},
		"an advertised name":              {func(c *Config) { c.Advertise = "a.example:0" }, nil},
		"an advertised port without host": {func(c *Config) { c.Advertise = ":7946" }, []string{"Advertise", ":7946", "host"}},
		"an advertised wildcard":          {func(c *Config) { c.Advertise = "[::]:7946" }, []string{"Advertise", "[::]:7946", "dial"}},
		"an advertised host without port": {func(c *Config) { c.Advertise = "a.example" }, []string{"Advertise", "a.example", "host:port"}},
		"every form of an entry of Join":  {func(c *Config) { c.Join = []string{"a", "a:1", "10.0.0.1", "10.0.0.1:1", "::1", "[::1]", "[::1]:1"} }, nil},
		"two ports to join":               {func(c *Config) { c.Join = []string{"a:b:c"} }, []string{"Join[0]", "a:b:c"}},
		"a URL to join":                   {func(c *Config) { c.Join = []string{"a", "http://x"} }, []string{"Join[1]", "http://x"}},
		"a URL with a port to join":       {func(c *Config) { c.Join = []string{"http://x:80"} }, []string{"Join[0]", "http://x:80"}},
		"a path to join":                  {func(c *Config) { c.Join = []string{"x/y"} }, []string{"Join[0]", "x/y"}},
		"two hosts in one entry":          {func(c *Config) { c.Join = []string{"a,b"} }, []string{"Join[0]", "a,b"}},
		"an empty entry of Join":          {func(c *Config) { c.Join = []string{""} }, []string{"Join[0]"}},
		"only a port to join":             {func(c *Config) { c.Join = []string{":7946"} }, []string{"Join[0]", ":7946"}},
		"secrets of every length":         {func(c *Config) { c.Secrets = [][]byte{make([]byte, 16), make([]byte, 24), make([]byte, 32)} }, nil},
		"no secret, reachable by others":  {func(c *Config) { c.Bind = ":7946" }, []string{`Secrets is empty and Bind ":7946"`, "go run github.com/weir-go/weir/cmd/weir secret"}},
		"a secret, reachable by others":   {func(c *Config) { c.Bind, c.Secrets = ":7946", [][]byte{make([]byte, 32)} }, nil},
		"TLS alone, reachable by others": {func(c *Config) {
			c.Bind, c.TLS = ":7946", &tls.Config{Certificates: own, RootCAs: roots}
		}, []string{"Secrets is empty", "UDP"}},
		"more secrets than a rotation":             {func(c *Config) { c.Secrets = slices.Repeat([][]byte{make([]byte, 16)}, 17) }, []string{"Secrets has 17", "at most 16"}},
		"a secret of another length":               {func(c *Config) { c.Secrets = [][]byte{make([]byte, 16), []byte("hush")} }, []string{"Secrets[1]", "4 bytes"}},
		"a time to forget below zero":              {func(c *Config) { c.Forget = -time.Second }, []string{"Forget", "-1s"}},
		"TLS without a certificate":                {withTLS(new(tls.Config)), []string{"TLS", "certificate"}},
		"TLS with a certificate and roots":         {withTLS(&tls.Config{Certificates: own, RootCAs: roots}), nil},
		"TLS with a server certificate only":       {withTLS(&tls.Config{RootCAs: roots, GetCertificate: forServers}), []string{"TLS", "GetClientCertificate"}},
		"TLS with certificates that are looked up": {withTLS(&tls.Config{RootCAs: roots, GetCertificate: forServers, GetClientCertificate: forClients}), nil},
		"TLS with a config that is looked up": {withTLS(&tls.Config{
			GetConfigForClient: forAny, GetClientCertificate: forClients, InsecureSkipVerify: true, VerifyConnection: verify,
		}), nil},
		"TLS with the roots of the machine":     {withTLS(&tls.Config{Certificates: own}), []string{"TLS", "RootCAs"}},
		"TLS with roots for listening only":     {withTLS(&tls.Config{Certificates: own, ClientCAs: roots}), []string{"TLS", "RootCAs"}},
		"TLS with a function for one side only": {withTLS(&tls.Config{Certificates: own, InsecureSkipVerify: true, VerifyConnection: verify}), []string{"TLS", "RootCAs"}},
		"TLS with a function that verifies": {withTLS(&tls.Config{
			Certificates: own, InsecureSkipVerify: true, VerifyConnection: verify, ClientAuth: tls.RequireAnyClientCert,
		}), nil},
		"TLS that trusts any server": {withTLS(&tls.Config{Certificates: own, RootCAs: roots, InsecureSkipVerify: true}), []string{"InsecureSkipVerify", "VerifyConnection"}},
		"secrets by region":          {bySecrets(one, map[string][][]byte{"s": {secretOf(2), secretOf(3)}, "t": {secretOf(4)}}), nil},
		"secrets of a region that is not in Regions": {bySecrets(one, map[string][][]byte{"s": {secretOf(2)}, "t": {secretOf(4)}, "u": {secretOf(5)}, "r": {secretOf(6)}}),
			[]string{`RegionSecrets["u"] is not one of Regions`, `RegionSecrets["r"] is this node's own Region`}},
		"a region without its secrets": {bySecrets(one, map[string][][]byte{"s": {}}),
			[]string{`RegionSecrets["s"] has no secrets`, `RegionSecrets has no secrets of "t"`}},
		"secrets by region and none for members": {bySecrets(nil, map[string][][]byte{"s": {secretOf(2)}, "t": {secretOf(4)}}),
			[]string{"RegionSecrets is set and Secrets is empty"}},
		"a secret in two lists": {bySecrets(one, map[string][][]byte{"s": {secretOf(2), secretOf(1)}, "t": {secretOf(4), secretOf(2)}}),
			[]string{`RegionSecrets["s"][1] is in Secrets too`, `RegionSecrets["t"][1] is in RegionSecrets["s"] too`}},
		"a region's secret of another length": {bySecrets(one, map[string][][]byte{"s": {[]byte("hush")}, "t": slices.Repeat([][]byte{secretOf(4)}, 17)}),
			[]string{`RegionSecrets["s"][0] has 4 bytes`, `RegionSecrets["t"] has 17`}},
		"more secrets than a handshake tries": {func(c *Config) {
			c.Region, c.Regions, c.Secrets, c.RegionSecrets = "r", map[string][]string{}, one, map[string][][]byte{}
			for i := range byte(8) {
				name := string('s' + rune(i))
				c.Regions[name] = []string{"s:1"}
				for j := range byte(8) {
					c.RegionSecrets[name] = append(c.RegionSecrets[name], secretOf(2+8*i+j))
				}
			}
		}, []string{"have 65 secrets together: use at most 64"}},
		"names in certificates": {func(c *Config) {
			threeRegions(c)
			c.TLS = &tls.Config{Certificates: own, RootCAs: roots}
			c.CertificateNames = map[string][]string{"r": {"spiffe://x/r/{name}", "*.r.x"}, "s": {"spiffe://x/s/*"}, "t": {"{name}.t.x"}}
		}, nil},
		"names in certificates without regions": {func(c *Config) {
			c.TLS = &tls.Config{Certificates: own, RootCAs: roots}
			c.CertificateNames = map[string][]string{"": {"{name}.gateways.internal"}}
		}, nil},
		"names in certificates of unknown regions": {func(c *Config) {
			threeRegions(c)
			c.CertificateNames = map[string][]string{"r": {"r.x"}, "s": {}, "u": {"u.x"}}
		}, []string{"CertificateNames is set and TLS is nil", `CertificateNames["s"] has no names`, `CertificateNames["u"] is neither`, `no names of "t"`}},
		"names in certificates without verification": {func(c *Config) {
			c.TLS = &tls.Config{Certificates: own, InsecureSkipVerify: true}
			c.CertificateNames = map[string][]string{"": {"x"}}
		}, []string{"InsecureSkipVerify"}},
		"invalid names in certificates": {func(c *Config) {
			c.TLS = &tls.Config{Certificates: own, RootCAs: roots}
			c.CertificateNames = map[string][]string{"": {"", "a..x", "gw-*.x", "spiffe://x//y", "{region}.x"}}
		}, []string{`[0] is empty`, `[1] "a..x" has an empty part`, `[2] "gw-*.x" has a part "gw-*"`, `[3] "spiffe://x//y"`, `[4] "{region}.x"`}},
		"names that two regions share": {func(c *Config) {
			threeRegions(c)
			c.TLS = &tls.Config{Certificates: own, RootCAs: roots}
			c.CertificateNames = map[string][]string{"r": {"spiffe://x/r/*", "{name}.x"}, "s": {"spiffe://x/{name}/gateway"}, "t": {"T.X"}}
		}, []string{
			`CertificateNames["s"][0] "spiffe://x/{name}/gateway" and "spiffe://x/r/*" of CertificateNames["r"] match the same name`,
			`CertificateNames["t"][0] "T.X" and "{name}.x" of CertificateNames["r"]`,
		}},
		"problems of all fields at once": {func(c *Config) {
			*c = Config{Bind: "x", Advertise: ":1", Join: []string{"a:b:c", "http://x"}, Secrets: [][]byte{{1}}, Forget: -1, TLS: new(tls.Config), Region: strings.Repeat("r", 65)}
		},
			[]string{"Name", "Bind", "Advertise", "Join[0]", "Join[1]", "Secrets[0]", "Forget", "TLS", "Region"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := validConfig()
			c.change(&cfg)
			err := cfg.validate()
			if c.says == nil {
				require.NoError(t, err)
			}
			for _, word := range c.says {
				require.ErrorContains(t, err, word)
			}
			if err != nil {
				require.NotContains(t, err.Error(), "hush")
			}
		})
	}
}

func TestBindNeedsLoopbackWithoutSecrets(t *testing.T) {
	for bind, loopback := range map[string]bool{
		"127.0.0.1:7946": true, "127.255.0.9:0": true, "[::1]:7946": true, "localhost:7946": true, "[::ffff:127.0.0.1]:1": true,
		":7946": false, "0.0.0.0:7946": false, "[::]:7946": false, "10.0.0.1:7946": false, "[fe80::1%lo]:7946": false,
		"localhost.:7946": false, "localhost.example:7946": false, "limits:7946": false, "128.0.0.1:1": false,
	} {
		c := Config{Name: "a-1", Bind: bind}
		require.Equal(t, loopback, c.validate() == nil, bind)
		c.Advertise = "a.example:7946"
		require.Equal(t, loopback, c.validate() == nil, "%s, with any Advertise", bind)
		c.Network = systemNetwork{}
		require.NoError(t, c.validate(), "%s on a Network of the caller", bind)
	}
}
