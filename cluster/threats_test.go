package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/gossip"
	"github.com/weir-go/weir/cluster/gossip/gossiptest"
)

// The table of THREATS.md states the abilities of a host that reaches the port. Packets of gossip need
// the secret, if there is one. Connections need the secret and, with TLS, a certificate.
func TestConfiguredProtectionDecidesAbilities(t *testing.T) {
	t.Parallel()
	own, leaf := certificate(t)
	secret := []byte("0123456789abcdef")
	for _, set := range []struct {
		name         string
		secrets, tls bool
	}{{"nothing", false, false}, {"Secrets", true, false}, {"TLS", false, true}, {"both", true, true}} {
		for _, holds := range []struct {
			name                string
			secret, certificate bool
		}{{"nothing", false, false}, {"a secret", true, false}, {"a certificate", false, true}, {"both", true, true}} {
			t.Run(fmt.Sprint(set.name, " is set, the attacker has ", holds.name), func(t *testing.T) {
				t.Parallel()
				cfg := Config{Name: "live-1", Bind: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}
				if set.secrets {
					cfg.Secrets = [][]byte{secret}
				}
				if set.tls {
					cfg.TLS = &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool(leaf)}
				}
				g := NewGossip(cfg).(*gossipCluster)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				t.Cleanup(func() { require.NoError(t, g.Close()) })
				require.NoError(t, g.Start(ctx, &testHandler{}))

				// The attacker uses the configured protection with the credentials that it holds.
				as := Config{Name: "stranger-1", Bind: "127.0.0.1:0", Logger: cfg.Logger}
				if holds.secret {
					as.Secrets = cfg.Secrets
				}
				if set.tls {
					as.TLS = &tls.Config{RootCAs: pool(leaf)}
					if holds.certificate {
						as.TLS.Certificates = []tls.Certificate{own}
					}
				}
				bySecret := holds.secret || !set.secrets
				byBoth := bySecret && (holds.certificate || !set.tls)
				written := senderOf(as)

				packets, err := net.Dial("udp", g.addr())
				require.NoError(t, err)
				defer packets.Close()
				send := func() { packets.Write(written.Packet(gossiptest.Alive("phantom-1", as.Seed))) } // a busy machine loses packets
				if bySecret {
					eventually(t, time.Minute, func() bool { send(); return isMissing(g, "phantom-1") }, "the packet is not taken")
				} else {
					eventually(t, time.Minute, func() bool { send(); return g.Stats().Refused[gossip.ReasonPacket] > 0 }, "the packet is not refused")
				}

				answered := false
				if conn, err := openStream(ctx, new(tcp).Dial, as.TLS, g.addr(), firstByteGossip); err == nil {
					conn.Write(written.Stream(gossiptest.Ping("live-1")))
					conn.SetReadDeadline(time.Now().Add(time.Minute))
					n, _ := conn.Read(make([]byte, 1))
					answered = n > 0
					conn.Close()
				}
				require.Equal(t, byBoth, answered, "a stream of gossip")

				peer := startPeer(t, "stranger", nil, func(c *peersConfig) {
					c.Secrets, c.TLS, c.Self.Region = as.Secrets, as.TLS, ""
				})
				for range 10 { // a probe that times out shows no refusal
					if _, err = peer.probe(ctx, g.addr()); !errors.Is(err, errSilent) {
						break
					}
				}
				require.Equal(t, byBoth, err == nil, "a connection for checks: %v", err)

				names := []string{"live-1"}
				if bySecret {
					names = append(names, "phantom-1")
				}
				require.Equal(t, names, rosterNames(g), "nobody else got in")
			})
		}
	}
}

// isMissing reports whether g has the named member in its roster and is not connected to it.
func isMissing(g *gossipCluster, name string) bool {
	return slices.ContainsFunc(g.View().Members, func(m Member) bool { return m.Name == name && m.State == Missing })
}

func rosterNames(g *gossipCluster) (names []string) {
	for _, m := range g.View().Members {
		names = append(names, m.Name)
	}
	return names
}
