package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

// serveChat starts a server with the given rules. The argument open is the maximum number of
// open connections of an address.
func serveChat(t *testing.T, file string, open int) (url string) {
	node := testnode.Start(t, weir.Config{})
	limit, err := httplimit.New(node, testnode.Book(t, node, file), httplimit.Options{User: httplimit.HeaderValue("X-User")})
	require.NoError(t, err)
	server := httptest.NewServer(chat(limit, newDoors(open)))
	t.Cleanup(server.Close)
	return server.URL + "/chat"
}

func dial(t *testing.T, url, user string) (*websocket.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: http.Header{"X-User": {user}}})
}

func connect(t *testing.T, url, user string) *websocket.Conn {
	conn, _, err := dial(t, url, user)
	require.NoError(t, err)
	t.Cleanup(func() { conn.CloseNow() })
	return conn
}

// sendMessage sends a message, and returns the response.
func sendMessage(t *testing.T, conn *websocket.Conn, text string) (a answer) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, conn.Write(ctx, websocket.MessageText, []byte(text)))
	require.NoError(t, wsjson.Read(ctx, conn, &a))
	return a
}

const few = `
rules:
- {name: connections, match: {method: GET, path: /chat}, key: ip, limit: {algorithm: fixed_window, rate: 3, per: 1h}}
- {name: messages, match: {method: POST, path: /chat}, key: user, limit: {algorithm: fixed_window, rate: 4, per: 1h}}
`

func TestConnectionRateOfAddressIsLimited(t *testing.T) {
	url := serveChat(t, few, 10)
	for range 3 {
		connect(t, url, "ada")
	}
	_, denied, err := dial(t, url, "bob")
	require.Error(t, err)
	require.Equal(t, http.StatusTooManyRequests, denied.StatusCode)
	require.NotEmpty(t, denied.Header.Get("Retry-After"))
}

func TestOpenConnectionsOfAddressAreLimited(t *testing.T) {
	url := serveChat(t, strings.ReplaceAll(few, "rate: 3", "rate: 1000"), 2)
	first := connect(t, url, "ada")
	connect(t, url, "bob")
	_, denied, err := dial(t, url, "cleo")
	require.Error(t, err)
	require.Equal(t, http.StatusTooManyRequests, denied.StatusCode)
	first.CloseNow()
	require.Eventually(t, func() bool {
		conn, _, err := dial(t, url, "cleo")
		if err != nil {
			return false
		}
		t.Cleanup(func() { conn.CloseNow() })
		return true
	}, time.Minute, 5*time.Millisecond, "who closes one may open another")
	_, _, err = dial(t, url, "ada")
	require.Error(t, err)
}

func TestDoorsCountOpenConnectionsByNetwork(t *testing.T) {
	d := newDoors(1)
	for _, c := range []struct {
		from string
		in   bool
	}{{"192.0.2.1", true}, {"::ffff:192.0.2.1", false}, {"192.0.2.2", true}, {"2001:db8::1", true}, {"2001:db8::2", false}, {"2001:db8:0:1::1", true}} {
		require.Equal(t, c.in, d.enter(netip.MustParseAddr(c.from)), c.from)
	}
	require.True(t, d.enter(netip.Addr{}), "an address that is not known is one, too")
	require.False(t, d.enter(netip.Addr{}))
	for _, from := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::2", "2001:db8:0:1::7"} {
		d.leave(netip.MustParseAddr(from))
	}
	d.leave(netip.Addr{})
	require.Empty(t, d.open)
}

func TestMessageLimitCoversAllConnectionsOfUser(t *testing.T) {
	url := serveChat(t, few, 10)
	one, two, other := connect(t, url, "ada"), connect(t, url, "ada"), connect(t, url, "bob")
	for range 2 {
		require.Equal(t, answer{Echo: "hello"}, sendMessage(t, one, "hello"))
		require.Equal(t, answer{Echo: "hello"}, sendMessage(t, two, "hello"))
	}
	for _, conn := range []*websocket.Conn{one, two} {
		a := sendMessage(t, conn, "hello")
		require.Equal(t, "too many messages", a.Error)
		require.Positive(t, a.RetryAfter)
	}
	require.Equal(t, answer{Echo: "hello"}, sendMessage(t, other, "hello"))
}

func TestClientIgnoringDenialsIsDisconnected(t *testing.T) {
	conn := connect(t, serveChat(t, few, 10), "ada")
	for range 4 + maxOver {
		sendMessage(t, conn, "hello")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, _, err := conn.Read(ctx)
	require.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err))
}

func TestExampleRulesAreValid(t *testing.T) {
	text, err := os.ReadFile("rules.yaml")
	require.NoError(t, err)
	_, err = rules.Parse("rules.yaml", text)
	require.NoError(t, err)
}
