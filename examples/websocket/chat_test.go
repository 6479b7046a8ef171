package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// serveChat serves by a rules file.
func serveChat(t *testing.T, file string) (url string) {
	node, err := weir.Start(t.Context(), weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { node.Close() })
	set, err := rules.Parse("rules.yaml", []byte(file))
	require.NoError(t, err)
	book, err := rules.Static(node, set)
	require.NoError(t, err)
	t.Cleanup(func() { book.Close() })
	limit, err := httplimit.New(node, book, httplimit.Options{User: httplimit.HeaderValue("X-User")})
	require.NoError(t, err)
	server := httptest.NewServer(chat(limit))
	t.Cleanup(server.Close)
	return server.URL + "/chat"
}

func dial(t *testing.T, url, user string) (*websocket.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: http.Header{"X-User": {user}}})
}

func connect(t *testing.T, url, user string) *websocket.Conn {
	conn, _, err := dial(t, url, user)
	require.NoError(t, err)
	t.Cleanup(func() { conn.CloseNow() })
	return conn
}

// say sends a message, and returns what came back.
func say(t *testing.T, conn *websocket.Conn, text string) (a answer) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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

func TestAnAddressOpensSoManyConnections(t *testing.T) {
	url := serveChat(t, few)
	for range 3 {
		connect(t, url, "ada")
	}
	_, denied, err := dial(t, url, "bob")
	require.Error(t, err)
	require.Equal(t, http.StatusTooManyRequests, denied.StatusCode)
	require.NotEmpty(t, denied.Header.Get("Retry-After"))
}

func TestAUserSendsSoManyMessagesOverAllConnections(t *testing.T) {
	url := serveChat(t, few)
	one, two, other := connect(t, url, "ada"), connect(t, url, "ada"), connect(t, url, "bob")
	for range 2 {
		require.Equal(t, answer{Echo: "hello"}, say(t, one, "hello"))
		require.Equal(t, answer{Echo: "hello"}, say(t, two, "hello"))
	}
	for _, conn := range []*websocket.Conn{one, two} {
		a := say(t, conn, "hello")
		require.Equal(t, "too many messages", a.Error)
		require.Positive(t, a.RetryAfter)
	}
	require.Equal(t, answer{Echo: "hello"}, say(t, other, "hello"))
}

func TestWhoGoesOnInVainIsDisconnected(t *testing.T) {
	conn := connect(t, serveChat(t, few), "ada")
	for range 4 + maxOver {
		say(t, conn, "hello")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, _, err := conn.Read(ctx)
	require.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err))
}

func TestTheRulesOfTheExampleAreGood(t *testing.T) {
	text, err := os.ReadFile("rules.yaml")
	require.NoError(t, err)
	_, err = rules.Parse("rules.yaml", text)
	require.NoError(t, err)
}
