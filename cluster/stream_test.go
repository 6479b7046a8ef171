package cluster

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/gossip"
)

// endless is a connection that returns any number of zeros.
type endless struct{ net.Conn }

func (endless) Read(b []byte) (int, error)  { clear(b); return len(b), nil }
func (endless) Close() error                { return nil }
func (endless) SetDeadline(time.Time) error { return nil }

// A sender without a secret can make gossip hold the bytes of a message until the message is whole.
func TestHeldGossipIsBoundedWhileShortMessagesPass(t *testing.T) {
	var held atomic.Int64
	open := func() *stream {
		return &stream{Conn: endless{}, left: maxStreamBytes, held: &held, closed: func() {}}
	}
	var total int64
	var streams []*stream
	for range maxStreams {
		s := open()
		n, err := io.Copy(io.Discard, unread{s})
		require.ErrorIs(t, err, gossip.ErrOversized)
		total += n
		streams = append(streams, s)
	}
	require.LessOrEqual(t, total, int64(maxGossipBytes+maxStreams*(shortStreamBytes+64<<10)))

	short := open()
	_, err := io.ReadFull(unread{short}, make([]byte, 64<<10))
	require.NoError(t, err, "a short message passes")

	for _, s := range append(streams, short) {
		require.NoError(t, s.Close())
		require.NoError(t, s.Close(), "again")
	}
	require.Zero(t, held.Load())
	_, err = io.Copy(new(bytes.Buffer), io.LimitReader(unread{open()}, maxStreamBytes))
	require.NoError(t, err, "a long one passes when there is room")
}
