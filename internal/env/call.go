package env

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// ErrUnreached is the error where the member that a request was handed to could not hand it on.
var ErrUnreached = errors.New("weir: the owner was not reached")

// Call asks a peer for what is no check: h, and after it body. It returns what follows the
// header of the answer. The error is one of package cluster's, ErrUnreached, or that the
// answer is malformed.
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

// Request returns h, and after it body.
func Request(h wire.Header, body []byte) []byte {
	return append(h.Append(make([]byte, 0, wire.HeaderBytes+len(body))), body...)
}

// Gather calls f for each of 0 to n-1, at most so many at once, and returns when all have.
func Gather(n, atOnce int, f func(i int)) {
	var calls errgroup.Group
	calls.SetLimit(atOnce)
	for i := range n {
		calls.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = calls.Wait() // they return no errors
}
