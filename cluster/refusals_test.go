package cluster

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefusedAddressIsTextInJSONLog(t *testing.T) {
	for _, c := range []struct {
		name string
		addr net.Addr
		want string
	}{
		{"TCP over IPv4", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:7946")), "192.0.2.1:7946"},
		{"UDP over IPv6", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8::1]:7946")), "[2001:db8::1]:7946"},
		{"no address", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var text strings.Builder
			newRefusals(slog.New(slog.NewJSONHandler(&text, nil))).addAll(reasonGarbage, 3, c.addr, errors.New("some error"))
			var line struct{ Addr, Error any }
			require.NoError(t, json.Unmarshal([]byte(text.String()), &line))
			require.Equal(t, c.want, line.Addr)
			require.Equal(t, "some error", line.Error)
		})
	}
}
