package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
func TestAttackerAbilitiesMatchThreatsTable(t *testing.T) {
	t.Parallel()
	certs := NewAuthority(t)
	own := certs.Config(t)
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
				var as, cfg Config // the attacker uses the configured protection with the credentials that it holds
				if set.secrets {
					cfg.Secrets = secrets("0123456789abcdef")
				}
				if holds.secret {
					as.Secrets = cfg.Secrets
				}
				if set.tls {
					cfg.TLS, as.TLS = own, &tls.Config{RootCAs: certs.Pool}
					if holds.certificate {
						as.TLS = own
					}
				}
				g := startLive(t, cfg.Secrets, cfg.TLS)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				bySecret := holds.secret || !set.secrets
				byBoth := bySecret && (holds.certificate || !set.tls)
				written := senderOf(as)

				packets, err := net.Dial("udp", g.addr())
				require.NoError(t, err)
				defer packets.Close()
				send := func() { packets.Write(written.Packet(gossiptest.Alive("phantom-1", as.Seed))) } // a busy machine loses packets
				if bySecret {
					eventually(t, time.Minute, func() bool { send(); return isMissing(g, "phantom-1") }, "the packet is not accepted")
				} else {
					eventually(t, time.Minute, func() bool { send(); return g.Stats().Refused[gossip.ReasonPacket] > 0 }, "the packet is not refused")
				}

				answered := false
				if conn, err := openStream(ctx, systemNetwork{}.Dial, as.TLS, g.addr(), firstByteGossip); err == nil {
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

				members := map[bool]int{false: 1, true: 2}[bySecret]
				require.Len(t, g.View().Members, members, "a node that is not the phantom was added")
			})
		}
	}
}

// isMissing reports whether g has the named member in its roster and is not connected to it.
func isMissing(g *gossipCluster, name string) bool {
	return slices.ContainsFunc(g.View().Members, func(m Member) bool { return m.Name == name && m.State == Missing })
}
