package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// maxOver is the number of consecutive denied messages after which a connection is
// closed.
const maxOver = 20

// idle is the maximum silence of a connection.
const idle = 5 * time.Minute

// answer is the response to a message of a client.
type answer struct {
	Echo       string `json:"echo,omitempty"`
	Error      string `json:"error,omitempty"`
	RetryAfter int64  `json:"retry_after_ms,omitempty"`
}

// chat returns the handler of connections. A WebSocket begins as a request, so the
// middleware limits how often an address opens a connection. doors limits how many
// connections an address has open. net/http never sees the messages, so serve checks each
// message. A user has a single count for all connections to all replicas.
func chat(limit *httplimit.Middleware, doors *doors) http.Handler {
	return limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		message := limit.Request(r)
		if !doors.enter(message.Client) {
			http.Error(w, "too many open connections from this address: close one", http.StatusTooManyRequests)
			return
		}
		defer doors.leave(message.Client)
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has written the response
		}
		defer conn.CloseNow()
		message.Method = http.MethodPost
		if err := serve(r.Context(), conn, limit, &message); errors.Is(err, errOver) {
			conn.Close(websocket.StatusPolicyViolation, err.Error())
		}
	}))
}

var errOver = errors.New("too many messages")

func serve(ctx context.Context, conn *websocket.Conn, limit *httplimit.Middleware, message *rules.Request) error {
	for over := 0; over < maxOver; {
		text, err := read(ctx, conn)
		if err != nil {
			return err
		}
		a := answer{Echo: text}
		if o := limit.Check(ctx, message); o.Status != 0 {
			a = answer{Error: errOver.Error(), RetryAfter: o.RetryAfter().Milliseconds()}
			over++
		} else {
			over = 0
		}
		if err := wsjson.Write(ctx, conn, a); err != nil {
			return err
		}
	}
	return errOver
}

func read(ctx context.Context, conn *websocket.Conn) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	_, text, err := conn.Read(ctx)
	return string(text), err
}
