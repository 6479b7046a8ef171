package httplimit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/weirtest"
)

// adminMember is a node of a cluster in virtual time, and its API.
type adminMember struct {
	*adminOf
	host *weirtest.Host
	name string
}

func startMember(t *testing.T, network *weirtest.Network, host string) *adminMember {
	return startMemberOf(t, network, host, adminRules, weir.Config{})
}

// startMemberOf is startMember, by other rules, and with the secrets of cfg.
func startMemberOf(t *testing.T, network *weirtest.Network, host, text string, cfg weir.Config) *adminMember {
	m := &adminMember{adminOf: &adminOf{t: t}, host: network.Host(host)}
	quiet := slog.New(slog.DiscardHandler)
	var err error
	cfg.Cluster, cfg.Logger = m.host.Cluster(cluster.Config{}), quiet
	m.node, err = weir.Start(t.Context(), cfg)
	require.NoError(t, err)
	set, err := rules.Parse("rules.yaml", []byte(text))
	require.NoError(t, err)
	m.book, err = rules.Static(m.node, set)
	require.NoError(t, err)
	m.api, err = Admin(m.node, m.book, AdminOptions{Tokens: [][]byte{[]byte(adminToken)}, Logger: quiet})
	require.NoError(t, err)
	for _, one := range m.node.Members() {
		if one.Self {
			m.name = one.Name
		}
	}
	return m
}

func (m *adminMember) kill() {
	m.host.Kill()
	require.NoError(m.t, m.node.Close())
	require.NoError(m.t, m.book.Close())
}

// take spends units by the rules, as a gateway does.
func (m *adminMember) take(limit, key string, units int64) weir.Decision {
	m.t.Helper()
	now := m.book.Current()
	l, _, ok := now.Limit(limit)
	require.True(m.t, ok)
	d, err := now.Limiter(l, "", key).AllowN(m.t.Context(), key, units)
	require.NoError(m.t, err)
	return d
}

func TestAnOverrideOfOneNodeActsOnAllSurvivesItsRestartAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		a, b, c := startMember(t, network, "a"), startMember(t, network, "b"), startMember(t, network, "c")
		time.Sleep(3 * time.Second)
		limitOn := func(m *adminMember) int64 { return m.statusOf("user", "123").Limits[1].Limit }
		until := time.Now().Add(5 * time.Minute).UTC().Format(time.RFC3339)
		for _, m := range []*adminMember{a, b, c} {
			require.EqualValues(t, 1000, limitOn(m))
		}

		var set overrideAnswer
		a.get("POST", "/v1/overrides", `{"limit":"api/hourly","key":"123","rate":5000,"until":"`+until+`"}`, 200, &set)
		require.EqualValues(t, 5000, limitOn(a), "here at once")
		time.Sleep(time.Second)
		for i, m := range []*adminMember{a, b, c} {
			require.EqualValues(t, 5000, limitOn(m), m.host.Name())
			require.Equal(t, "token 1", m.statusOf("user", "123").Limits[1].Override.By)
			require.True(t, m.take("api/hourly", "123", 1500).Allowed, "%d times 1,500", i+1)
		}
		require.False(t, b.take("api/hourly", "123", 1500).Allowed)
		require.EqualValues(t, 1000, c.statusOf("user", "124").Limits[1].Limit, "another user")

		a.kill()
		time.Sleep(time.Second)
		require.EqualValues(t, 5000, limitOn(b))
		a = startMember(t, network, "a")
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 5000, limitOn(a), "it has it from the others")
		require.EqualValues(t, 500, a.statusOf("user", "123").Limits[1].Remaining, "and so the count")

		time.Sleep(5 * time.Minute)
		for _, m := range []*adminMember{a, b, c} {
			require.EqualValues(t, 1000, limitOn(m), "it has ended on %s", m.host.Name())
			var all overridesAnswer
			m.get("GET", "/v1/overrides", "", 200, &all)
			require.Empty(t, all.Overrides)
		}

		c.get("POST", "/v1/overrides", `{"limit":"api/hourly","key":"123","rate":7}`, 200, &set)
		time.Sleep(time.Second)
		require.EqualValues(t, 7, limitOn(a))
		require.Equal(t, http.StatusNoContent, b.ask("DELETE", "/v1/overrides"+query("limit", "api/hourly", "key", "123"), "").Code)
		time.Sleep(time.Second)
		require.EqualValues(t, 1000, limitOn(a), "taken back on another node than it was set on")
		require.EqualValues(t, 1000, limitOn(c))
		for _, m := range []*adminMember{a, b, c} {
			m.kill()
		}
	})
}

func TestTopKeysMergesMembersAndNamesMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(3, weirtest.Link{Latency: time.Millisecond})
		members := []*adminMember{startMember(t, network, "a"), startMember(t, network, "b"), startMember(t, network, "c")}
		time.Sleep(3 * time.Second)
		for i, m := range members {
			for range 10 {
				m.take("api/hourly", "of all", 100)
			}
			m.take("api/hourly", "of "+m.host.Name(), 1)
			for range i {
				m.take("api/hourly", "of some", 1)
			}
		}
		id := members[0].limiter("api/hourly").ID("of all")
		for _, m := range members {
			var got adminapi.Top
			m.get("GET", "/v1/top?n=2", "", 200, &got)
			require.Empty(t, got.Missing)
			require.Len(t, got.Asked, 2)
			first := got.Asked[0]
			require.Equal(t, "of all", *first.Key, "its text came from those who were asked")
			require.Equal(t, "api/hourly", first.Limit)
			require.Equal(t, hex.EncodeToString(id[:]), first.ID)
			require.EqualValues(t, 30, first.Asks)
			require.EqualValues(t, 20, first.Denials)
			require.Zero(t, first.AsksOver)
			require.Equal(t, "of some", *got.Asked[1].Key)
			require.Len(t, got.Denied, 1)
		}

		members[2].kill()
		var got adminapi.Top
		members[0].get("GET", "/v1/top", "", 200, &got)
		require.Equal(t, []string{members[2].name}, got.Missing)
		require.EqualValues(t, 20, got.Asked[0].Asks)
		time.Sleep(time.Minute)
		members[0].get("GET", "/v1/top", "", 200, &got)
		require.EqualValues(t, 10, got.Asked[0].Asks, "what was asked a minute ago counts half")
		members[0].kill()
		members[1].kill()
	})
}

func TestTotalsAddUpMembersAndNameMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(3, weirtest.Link{Latency: time.Millisecond})
		members := []*adminMember{startMember(t, network, "a"), startMember(t, network, "b"), startMember(t, network, "c")}
		time.Sleep(3 * time.Second)
		for i, m := range members {
			for range i + 1 {
				m.take("api/hourly", "key", 200) // 1000 an hour
			}
		}
		sum := func(of map[string]adminapi.Outcomes) (o adminapi.Outcomes) {
			for _, one := range of {
				o.Allowed, o.Denied = o.Allowed+one.Allowed, o.Denied+one.Denied
			}
			return o
		}
		for _, m := range members {
			var got adminapi.Totals
			m.get("GET", "/v1/totals", "", 200, &got)
			require.Empty(t, got.Missing)
			require.Equal(t, []string{members[0].name, members[1].name, members[2].name}, got.Answered)
			require.Equal(t, adminapi.Outcomes{Allowed: 5, Denied: 1}, sum(got.Decisions))
			require.Equal(t, adminapi.Outcomes{Allowed: 5, Denied: 1}, got.Limits["api/hourly"].Enforced)
		}
		members[2].kill()
		var got adminapi.Totals
		members[0].get("GET", "/v1/totals", "", 200, &got)
		require.Equal(t, []string{members[2].name}, got.Missing)
		require.Equal(t, []string{members[0].name, members[1].name}, got.Answered)
		require.Equal(t, adminapi.Outcomes{Allowed: 3}, sum(got.Decisions))
		members[0].kill()
		members[1].kill()
	})
}

func TestAStatusOfAnyNodeIsTheOwnersAndSpendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(2, weirtest.Link{Latency: time.Millisecond})
		members := []*adminMember{startMember(t, network, "a"), startMember(t, network, "b"), startMember(t, network, "c")}
		time.Sleep(3 * time.Second)
		for i := range 10 {
			members[i%3].take("api/hourly", "u", 10)
		}
		for range 20 {
			for _, m := range members {
				require.EqualValues(t, 900, m.statusOf("user", "u").Limits[1].Remaining, m.host.Name())
			}
		}
		sources := make(map[string]int)
		for _, m := range members {
			sources[m.statusOf("user", "u").Limits[1].Source]++
		}
		require.Equal(t, map[string]int{"owner": 1, "forwarded": 2}, sources)
		sum := 0.0
		var ring adminapi.Ring
		members[1].get("GET", "/v1/ring", "", 200, &ring)
		require.Len(t, ring.Members, 3)
		for _, m := range ring.Members {
			require.InDelta(t, 1.0/3, m.Share, 0.1)
			sum += m.Share
		}
		require.InDelta(t, 1, sum, 1e-9)
		for _, m := range members {
			m.kill()
		}
	})
}

func TestResetNamesUnreachedMembersAndForgetRemovesTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := readAPI(t)
		network := weirtest.NewNetwork(3, weirtest.Link{Latency: time.Millisecond})
		a, b, c := startMember(t, network, "a"), startMember(t, network, "b"), startMember(t, network, "c")
		time.Sleep(3 * time.Second)
		b.take("api/hourly", "u", 100)
		d.exchange(a.adminOf, "DELETE", "/v1/counts?limit=api/hourly&key=u", "", "/v1/counts", 200)
		require.EqualValues(t, 1000, b.statusOf("user", "u").Limits[1].Remaining)

		a.take("api/hourly", "u", 100)
		c.kill()
		time.Sleep(2 * time.Second)
		var reset resetAnswer
		d.exchange(a.adminOf, "DELETE", "/v1/counts?limit=api/hourly&key=u", "", "/v1/counts", 207)
		a.get("DELETE", "/v1/counts?limit=api/hourly&key=u", "", http.StatusMultiStatus, &reset)
		require.Equal(t, []string{c.name}, reset.NotReached)
		a.get("DELETE", "/v1/counts?limit=address&key=u", "", http.StatusMultiStatus, &reset)
		require.Equal(t, []string{c.name}, reset.NotReached, "once, though the overrun is not reached either")

		dead := func(m *adminMember) bool {
			var members adminapi.Members
			m.get("GET", "/v1/members", "", 200, &members)
			for _, one := range members.Members {
				if one.Name == c.name {
					return one.State == "dead"
				}
			}
			return false
		}
		for i := 0; !dead(a); i++ {
			require.Less(t, i, 120)
			time.Sleep(time.Second)
		}
		d.exchange(a.adminOf, "DELETE", "/v1/members/"+c.name, "", "/v1/members/{name}", 204)
		time.Sleep(2 * time.Second)
		d.exchange(a.adminOf, "DELETE", "/v1/members/"+c.name, "", "/v1/members/{name}", 404)
		d.exchange(b.adminOf, "DELETE", "/v1/members/"+c.name, "", "/v1/members/{name}", 404)
		d.exchange(b.adminOf, "DELETE", "/v1/counts?limit=api/hourly&key=u", "", "/v1/counts", 200)
		a.kill()
		b.kill()
	})
}

// certificateOf makes a certificate, signed by a root, or a root if there is none.
func certificateOf(t *testing.T, name string, root *tls.Certificate) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, any(key)
	if root == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		parent, signer = root.Leaf, root.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestMutualTLSOverRealSockets(t *testing.T) {
	a := newAdmin(t)
	var err error
	a.api, err = Admin(a.node, a.book, AdminOptions{MutualTLS: true, Certificate: func(c *x509.Certificate) bool { return c.Subject.CommonName == "ops" }})
	require.NoError(t, err)
	root := certificateOf(t, "root", nil)
	roots := x509.NewCertPool()
	roots.AddCert(root.Leaf)
	server := httptest.NewUnstartedServer(a.api)
	server.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	foreign := certificateOf(t, "another root", nil)
	for _, c := range []struct {
		about        string
		certificates []tls.Certificate
		status       int
	}{
		{"none", nil, 403},
		{"its own", []tls.Certificate{certificateOf(t, "ops", &root)}, 200},
		{"another name", []tls.Certificate{certificateOf(t, "gateway", &root)}, 403},
	} {
		client := server.Client()
		transport := client.Transport.(*http.Transport).Clone()
		transport.TLSClientConfig.Certificates = c.certificates
		response, err := (&http.Client{Transport: transport}).Get(server.URL + "/v1/members")
		require.NoError(t, err, c.about)
		require.NoError(t, response.Body.Close())
		require.Equal(t, c.status, response.StatusCode, c.about)
		transport.CloseIdleConnections()
	}
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		forged := certificateOf(t, "ops", &foreign)
		return &forged, nil
	}
	_, err = (&http.Client{Transport: transport}).Get(server.URL + "/v1/members")
	require.Error(t, err, "signed by another root")
}
