//go:build unix

package httplimit

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// overSocket starts a server with h on a Unix socket, and returns a client.
func overSocket(t *testing.T, h http.Handler) *http.Client {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := &http.Server{Handler: h}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestTrustUnixTrustsProxyOnSocket(t *testing.T) {
	private := netip.MustParsePrefix("10.0.0.0/8")
	for _, c := range []struct {
		about, field string
		client       ClientAddress
		sent         string
		want         string
		warns        int
	}{
		{"by name alone", "X-Forwarded-For", RightmostUntrusted("X-Forwarded-For").TrustUnix(), "192.0.2.1", "192.0.2.1", 0},
		{"the rightmost counts", "X-Forwarded-For", RightmostUntrusted("X-Forwarded-For").TrustUnix(), "198.51.100.9, 192.0.2.1", "192.0.2.1", 0},
		{"with networks of proxies behind it", "X-Forwarded-For", RightmostUntrusted("X-Forwarded-For", private).TrustUnix(), "192.0.2.1, 10.1.2.3", "192.0.2.1", 0},
		{"by Forwarded", "Forwarded", RightmostUntrusted("Forwarded").TrustUnix(), `for="[2001:db8::1]:80"`, "2001:db8::1", 0},
		{"a field that is not there", "X-Other", RightmostUntrusted("X-Forwarded-For").TrustUnix(), "192.0.2.1", "", 1},
		{"an entry that is no address", "X-Forwarded-For", RightmostUntrusted("X-Forwarded-For").TrustUnix(), "192.0.2.1, unknown", "", 1},
		{"not trusted", "X-Forwarded-For", RightmostUntrusted("X-Forwarded-For", private), "192.0.2.1", "", 1},
		{"the connection's address", "X-Forwarded-For", RemoteAddr(), "192.0.2.1", "", 1},
		{"the field of the only proxy", "X-Real-Ip", Header("X-Real-IP"), "192.0.2.1", "192.0.2.1", 0},
		{"the same from the right", "X-Forwarded-For", FromRight("X-Forwarded-For", 1), "192.0.2.1", "192.0.2.1", 0},
	} {
		t.Run(c.about, func(t *testing.T) {
			seen := make(chan string, 3)
			m := newLimiter(t, "rules:\n- {name: r, key: ip, limit: {rate: 9, per: 1h}}\n", Options{Client: c.client}, weir.Config{})
			log := new(lab.Text)
			m.o.Logger = slog.New(slog.NewTextHandler(log, nil))
			client := overSocket(t, m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				a := m.o.Client.FromRequest(r)
				if !a.IsValid() {
					seen <- ""
					return
				}
				seen <- a.String()
			})))
			for range 3 {
				r, err := http.NewRequest(http.MethodGet, "http://localhost/", nil)
				require.NoError(t, err)
				r.Header.Set(c.field, c.sent)
				w, err := client.Do(r)
				require.NoError(t, err)
				w.Body.Close()
				require.Equal(t, http.StatusOK, w.StatusCode)
				require.Equal(t, c.want, <-seen)
			}
			require.Equal(t, c.warns, len(log.Lines("TrustUnix")), "once")
			require.Equal(t, c.warns, len(log.Lines("network=unix")))
		})
	}
}

// An earlier middleware may set RemoteAddr to a value that the client has sent. Such a value must not
// be read as the address of a Unix socket.
func TestRequestCannotForgeUnixSocket(t *testing.T) {
	client := RightmostUntrusted("X-Forwarded-For").TrustUnix()
	for _, remote := range []string{"", "@", "/run/proxy.sock", "unix", "192.0.2.7:1", "x"} {
		r := get("/", "", "X-Forwarded-For", "198.51.100.1")
		r.RemoteAddr = remote
		require.NotEqual(t, "198.51.100.1", client.FromRequest(r).String(), remote)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}))
		require.NotEqual(t, "198.51.100.1", client.FromRequest(r).String(), "%s over TCP", remote)
	}
}

func TestTrustUnixIsRefusedWithoutEffect(t *testing.T) {
	for _, c := range []ClientAddress{RemoteAddr().TrustUnix(), Header("X-Real-IP").TrustUnix(), FromRight("X-Forwarded-For", 1).TrustUnix()} {
		require.ErrorIs(t, c.Validate(), weir.ErrInvalid)
		require.ErrorContains(t, c.Validate(), "TrustUnix has no effect here")
	}
	c := RightmostUntrusted("X-Forwarded-For").TrustUnix()
	require.NoError(t, c.Validate())
	c = RightmostUntrusted("X-Forwarded-For")
	require.ErrorContains(t, c.Validate(), "TrustUnix for a proxy on a Unix socket")
}

// There is no warning about requests whose key does not need an address.
func TestMissingAddressIsLoggedOnlyIfUsed(t *testing.T) {
	m := newLimiter(t, "rules:\n- {name: r, key: user, limit: {rate: 9, per: 1h}}\n- {name: g, key: global, limit: {rate: 9, per: 1h}}\n", Options{User: HeaderValue("X-User")}, weir.Config{})
	log := new(lab.Text)
	m.o.Logger = slog.New(slog.NewTextHandler(log, nil))
	client := overSocket(t, m.Handler(hello))
	for _, user := range []string{"ada", ""} { // without a user, the address is the key
		r, err := http.NewRequest(http.MethodGet, "http://localhost/", nil)
		require.NoError(t, err)
		r.Header.Set("X-User", user)
		before := len(log.Lines("TrustUnix"))
		w, err := client.Do(r)
		require.NoError(t, err)
		w.Body.Close()
		require.Equal(t, user == "", len(log.Lines("TrustUnix")) > before, user)
	}
}
