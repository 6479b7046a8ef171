package cluster

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/cluster/gossip"
	"github.com/weir-go/weir/cluster/gossip/gossiptest"
)

// The secrets of three regions, r, s and t, and the secrets that each pair of regions shares.
const (
	secretR, secretS, secretT    = "of members of r.", "of members of s.", "of members of t."
	secretRS, secretRT, secretST = "of r and s......", "of r and t......", "of s and t......"
)

// threeNodes has a node of each region.
func threeNodes() (r, s, t identity) {
	node := func(region, own string, others map[string][][]byte) identity {
		return identity{self: hello{Name: region + "-1", Addr: "10.0.0.1:1", Region: region}, secrets: secrets(own), regions: others}
	}
	return node("r", secretR, map[string][][]byte{"s": secrets(secretRS), "t": secrets(secretRT)}),
		node("s", secretS, map[string][][]byte{"r": secrets(secretRS), "t": secrets(secretST)}),
		node("t", secretT, map[string][][]byte{"r": secrets(secretRT), "s": secrets(secretST)})
}

// The secret of a node determines the region of the node, whatever the hello states. Only a node with a
// secret of members is a member. The dialler verifies the listener likewise.
func TestSecretDeterminesRegionOfNode(t *testing.T) {
	r, s, third := threeNodes()
	says := func(id identity, region string) identity { // returns id with the given region in its hello, and the secrets that it shares with s among its Secrets
		id.self.Region = region
		id.secrets = append(id.secrets, id.regions["s"]...)
		return id
	}
	with := func(id identity, region string, all ...string) identity {
		id.regions = map[string][][]byte{region: secrets(all...)}
		return id
	}
	const next = "the next of both"
	for name, c := range map[string]struct {
		dialler, listener identity
		to                string
		dialled, accepted error // the errors of the two sides; nil if the side accepts the other
		reason            string
	}{
		"a member":                                    {r, r, "r", nil, nil, ""},
		"a node of another region":                    {r, s, "s", nil, nil, ""},
		"a rotation, the listener first":              {r, with(s, "r", secretRS, next), "s", nil, nil, ""},
		"a rotation, the dialler first":               {with(r, "s", secretRS, next), s, "s", nil, nil, ""},
		"a rotation, the listener last":               {with(r, "s", next), with(s, "r", secretRS, next), "s", nil, nil, ""},
		"a rotation, the dialler last":                {with(r, "s", secretRS, next), with(s, "r", next), "s", nil, nil, ""},
		"no secret in common":                         {with(r, "s", next), s, "s", errSecret, errSecret, reasonAuthentication},
		"no secret of the dialled region":             {with(r, "t", secretRT), s, "s", errSecret, io.EOF, ""},
		"a node of t that states region r":            {says(third, "r"), s, "s", errUnproven, errIdentity, reasonIdentity},
		"a node of t that states region s":            {says(third, "s"), s, "s", errUnproven, errIdentity, reasonIdentity},
		"a listener of t that states region s":        {r, says(third, "s"), "s", errSecret, errSecret, reasonAuthentication},
		"a node of t with the secret of members of t": {with(says(third, "r"), "s", secretT), s, "s", errSecret, errSecret, reasonAuthentication},
		"a node of r that states region s":            {says(identity{self: r.self, secrets: secrets(secretRS)}, "s"), s, "s", errUnproven, errIdentity, reasonIdentity},
		"a member of s that states region r":          {identity{self: r.self, secrets: secrets(secretS)}, s, "s", errUnproven, errIdentity, reasonIdentity},
		"no secret at all":                            {identity{self: r.self}, s, "s", errSecret, errSecret, reasonAuthentication},
		"a listener of r that is dialled for s":       {r, identity{self: r.self, secrets: r.secrets, regions: r.regions}, "s", errUnproven, errIdentity, reasonIdentity},
		"a listener of t that is dialled for s":       {r, third, "s", errSecret, errSecret, reasonAuthentication},

		// If regions have no secrets of their own, a holder can state any region.
		"without RegionSecrets: a node that states region r": {identity{self: r.self, secrets: secrets(secretS)}, identity{self: s.self, secrets: secrets(secretS)}, "s", nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dialled, accepted := shakeHands(t, c.dialler, c.listener, c.to)
				require.Equal(t, c.reason, accepted.reason)
				require.ErrorIs(t, dialled.err, c.dialled)
				require.ErrorIs(t, accepted.err, c.accepted)
				if c.accepted == errIdentity {
					require.ErrorContains(t, accepted.err, "claims region "+`"`+c.dialler.self.Region+`"`, "the error has the stated region")
				}
			})
		})
	}
}

// The common secrets of two regions must not be accepted for gossip.
func TestGossipDoesNotAcceptRegionSecret(t *testing.T) {
	_, s, _ := threeNodes()
	cfg := Config{Region: "s", Secrets: s.secrets}
	roster := detect.NewRoster(detect.Record{Name: "s-1", Addr: "s:1"}, time.Minute)
	inspector, err := gossip.New(t.Context(), gossip.Config{
		Name: "s-1", Region: cfg.Region, Keys: gossipKeys(s.secrets), Addr: netip.MustParseAddrPort("127.0.0.1:1"),
		Step: func(event func(*detect.Roster) detect.Change) { event(roster) },
	})
	require.NoError(t, err)
	by := func(secret []byte) error {
		cfg.Secrets = [][]byte{secret}
		_, err := inspector.ReadMessage(bytes.NewReader(senderOf(cfg).Stream(gossiptest.Ping("s-1"))), true)
		return err
	}
	require.NoError(t, by(s.secrets[0]))
	for region := range s.regions {
		require.ErrorIs(t, by(s.regions[region][0]), gossip.ErrSealed)
	}
}

// connShowing returns a connection whose other end has presented a certificate with the given names.
func (s Authority) connShowing(t *testing.T, names certificateNames, certificate ...string) (net.Conn, error) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	server := tls.Server(there, serverTLS(s.Config(t, certificate...)))
	go server.Handshake()
	client := newTLSConn(here, clientTLS(names.clientTLS(s.Config(t, "dialler")), "10.0.0.1:1"), tls.Client)
	return client, client.Handshake()
}

func TestCertificateProvesRegionAndName(t *testing.T) {
	s := NewAuthority(t)
	names := certificateNames{
		"eu": {"spiffe://example.org/eu/gateway", "{name}.eu.gateways.internal", "*.frankfurt.example"},
		"us": {"spiffe://example.org/us/*", "spiffe://us.example.org/gateway/{name}"},
	}
	for about, c := range map[string]struct {
		certificate  []string
		region, name string
		says         string // words of the error; empty if the certificate proves region and name
	}{
		"a SPIFFE id":                      {[]string{"spiffe://example.org/eu/gateway"}, "eu", "any-1", ""},
		"a SPIFFE id among other names":    {[]string{"spiffe://other/x", "www.example.org", "spiffe://example.org/eu/gateway"}, "eu", "any-1", ""},
		"a SPIFFE id of another region":    {[]string{"spiffe://example.org/us/gateway"}, "eu", "any-1", `region "eu", but its certificate of ["spiffe://example.org/us/gateway"] matches CertificateNames of ["us"]`},
		"any last part":                    {[]string{"spiffe://example.org/us/any"}, "us", "any-1", ""},
		"no last part":                     {[]string{"spiffe://example.org/us/"}, "us", "any-1", "of []"},
		"a part more":                      {[]string{"spiffe://example.org/us/any/more"}, "us", "any-1", "of []"},
		"another trust domain":             {[]string{"spiffe://example.com/eu/gateway"}, "eu", "any-1", "of []"},
		"a name in a URI":                  {[]string{"spiffe://us.example.org/gateway/gw-7"}, "us", "gw-7-00ff", ""},
		"another node's name in a URI":     {[]string{"spiffe://us.example.org/gateway/gw-8"}, "us", "gw-7-00ff", `the name "gw-7-00ff", but its certificate is of ["spiffe://us.example.org/gateway/gw-8"]`},
		"a name in a DNS name":             {[]string{"GW-7.eu.gateways.internal"}, "eu", "gw-7-00ff", ""},
		"another node's DNS name":          {[]string{"gw-7.eu.gateways.internal"}, "eu", "gw-8-00ff", `but its certificate is of ["gw-7.eu.gateways.internal"]`},
		"a wildcard for a name":            {[]string{"*.eu.gateways.internal"}, "eu", "gw-7-00ff", `but its certificate is of ["*.eu.gateways.internal"]`},
		"one of two names":                 {[]string{"gw-7.eu.gateways.internal", "gw-8.eu.gateways.internal"}, "eu", "gw-8-00ff", ""},
		"a wildcard for a wildcard":        {[]string{"*.frankfurt.example"}, "eu", "gw-7-00ff", ""},
		"a DNS name with a part more":      {[]string{"a.b.frankfurt.example"}, "eu", "gw-7-00ff", "of []"},
		"two regions":                      {[]string{"spiffe://example.org/eu/gateway", "spiffe://example.org/us/gateway"}, "eu", "any-1", `of ["eu" "us"]`},
		"a DNS name that looks like a URI": {[]string{"example.org"}, "eu", "any-1", "of []"},
		"no names":                         {nil, "eu", "any-1", "of []"},
	} {
		t.Run(about, func(t *testing.T) {
			conn, err := s.connShowing(t, names, c.certificate...)
			require.NoError(t, err)
			err = names.checkCertificate(conn, c.region, c.name)
			if c.says == "" {
				require.NoError(t, err)
				require.NoError(t, names.checkCertificate(conn, c.region, ""), "gossip states no name")
				return
			}
			require.ErrorIs(t, err, errIdentity)
			require.ErrorContains(t, err, c.says)
		})
	}
	conn, err := s.connShowing(t, names, "spiffe://example.org/us/gateway")
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second))) // no goroutine reads from the other end
	_, _, err = identity{self: hello{Name: "a-1", Region: "eu"}, names: names}.dial(conn, "eu")
	require.ErrorIs(t, err, errIdentity, "before the dialler sends a byte")
	require.ErrorIs(t, names.checkCertificate(new(net.TCPConn), "eu", "any-1"), errIdentity, "no TLS")
	require.NoError(t, certificateNames(nil).checkCertificate(new(net.TCPConn), "eu", "any-1"), "no names are required")
}

// The certificate of a dialled member need not contain the host. A trusted authority must have
// signed it, and the verification of the caller still applies.
func TestCertificateNamesReplaceOnlyHostVerification(t *testing.T) {
	s, other := NewAuthority(t), NewAuthority(t)
	names := certificateNames{"eu": {"spiffe://example.org/eu/gateway"}}
	const id = "spiffe://example.org/eu/gateway"
	dial := func(c *tls.Config, by Authority) error {
		_, _, err := shakeTLS(by.Config(t, id), c, "10.0.0.1:1")
		return err
	}
	require.ErrorContains(t, dial(s.Config(t, id), s), "10.0.0.1", "without CertificateNames, the certificate needs the host")
	require.NoError(t, dial(names.clientTLS(s.Config(t, id)), s))
	require.Error(t, dial(names.clientTLS(s.Config(t, id)), other), "an untrusted authority")

	late := s.Config(t, id)
	late.Time = func() time.Time { return time.Now().Add(24 * time.Hour) }
	require.ErrorContains(t, dial(names.clientTLS(late), s), "expired")

	own := s.Config(t, id)
	own.VerifyConnection = func(tls.ConnectionState) error { return errGarbage }
	require.ErrorIs(t, dial(names.clientTLS(own), s), errGarbage)
	hosts := s.Config(t, id)
	hosts.ServerName = "gateways.internal"
	require.ErrorContains(t, dial(names.clientTLS(hosts), s), "gateways.internal")
	for _, c := range []*tls.Config{nil, hosts} {
		require.Same(t, c, names.clientTLS(c))
	}
	require.Same(t, own, certificateNames(nil).clientTLS(own))
}

// The certificates on both ends of a stream of gossip must be those of members.
func TestGossipStreamsNeedMemberCertificates(t *testing.T) {
	s := NewAuthority(t)
	names := certificateNames{"eu": {"spiffe://example.org/eu/{name}"}, "us": {"spiffe://example.org/us/{name}"}}
	var log lines
	open := func(id string) (m *mux, addr string, dial func(addr string) (net.Conn, error)) {
		listener, udp, err := systemNetwork{}.Listen(t.Context(), "127.0.0.1:0")
		require.NoError(t, err)
		member := func(conn net.Conn) error { return names.checkCertificate(conn, "eu", "") }
		inspect := func(r io.Reader, _ bool) ([]byte, error) { return io.ReadAll(r) }
		c := s.Config(t, id)
		m = newMux(listener, c, member, inspect, slog.New(slog.NewTextHandler(&log, nil)), newPending(pendingSize, 1<<20),
			func(conn net.Conn, _ *pendingConn) { conn.Close() })
		addr = listener.Addr().String()
		t.Cleanup(func() { require.NoError(t, errors.Join(m.close(), udp.Close())) })
		return m, addr, func(addr string) (net.Conn, error) {
			return m.dial(t.Context(), systemNetwork{}, names.clientTLS(c), addr)
		}
	}
	near, nearAddr, ofNear := open("spiffe://example.org/eu/a")
	_, _, ofMember := open("spiffe://example.org/eu/b")
	_, farAddr, ofFar := open("spiffe://example.org/us/c")

	conn, err := ofMember(nearAddr)
	require.NoError(t, err)
	select {
	case got := <-near.streams:
		require.NoError(t, got.Close())
	case <-time.After(5 * time.Second):
		require.FailNow(t, "the stream of a member is not passed to gossip")
	}
	conn.Close()
	require.Zero(t, near.refused.snapshot()[reasonIdentity])

	_, err = ofNear(farAddr)
	require.ErrorIs(t, err, errIdentity)
	conn, err = ofFar(nearAddr) // far accepts the certificate of near, but near does not accept that of far
	require.NoError(t, err)
	defer conn.Close()
	requireClosed(t, conn, 5*time.Second)
	eventually(t, 5*time.Second, func() bool { return near.refused.snapshot()[reasonIdentity] >= 1 }, "%v", near.refused.snapshot())
	require.NotZero(t, log.countLines("refused a peer", "reason=identity", "spiffe://example.org/us/c"), log.String())
	select {
	case <-near.streams:
		require.FailNow(t, "the stream of a node of another region was passed to gossip")
	default:
	}
}
