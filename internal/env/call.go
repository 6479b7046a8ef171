package env

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// ErrUnreached is the error of a request that the receiver passed on to another member, from which
// the receiver got no answer. The receiver has not executed the request.
var ErrUnreached = errors.New("weir: the owner was not reached")

// Call sends a peer a request that is not a check: h, followed by body. It waits for the
// answer for at most the time wait, and returns the body of the answer. The error is an error of
// package cluster, the error of ctx, ErrUnreached, or an error of wire.ParseResponse.
func Call(ctx context.Context, peer cluster.Peer, h wire.Header, body []byte, wait time.Duration) ([]byte, error) {
	answer, err := peer.Ask(ctx, Request(h, body), nil, wait)
	if err != nil {
		return nil, err
	}
	switch s, err := wire.ParseResponse(answer, h.Op, 0); {
	case err != nil:
		return nil, err
	case s == wire.Unreached:
		return nil, ErrUnreached
	}
	return answer[wire.ResponseHeaderBytes:], nil
}

// Request returns h, followed by body.
func Request(h wire.Header, body []byte) []byte {
	return append(h.Append(make([]byte, 0, wire.HeaderBytes+len(body))), body...)
}

// Gather calls f for each number from 0 to n-1, with at most atOnce calls at a time, and returns
// when all calls have returned.
func Gather(n, atOnce int, f func(i int)) {
	var calls errgroup.Group
	calls.SetLimit(atOnce)
	for i := range n {
		calls.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = calls.Wait() // the calls return no errors
}
