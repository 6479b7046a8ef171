package cluster

import (
	"errors"
	"io"
	"syscall"

	"github.com/weir-go/weir/cluster/detect"
)

// A process has ended if its kernel closed all connections and refuses new connections. A process that
// is frozen or cut off is silent instead. A firewall may answer with resets, so Config.ForgetRefused is
// off by default.
//
// The row of a member lists the members whose hosts refuse the connections of this member. View.Ended
// requires that the reports agree: a member may be alive if any member of this side is connected to it,
// or finds it silent.

// closedByPeer reports whether a read, a write or a handshake failed because the other side has closed
// the connection. A TLS handshake that ends with an alert is no such failure.
func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// dialRefused reports whether a dial failed because the host answered that no process listens. On
// Windows it is always false.
func dialRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// setRefused records that an attempt to connect to the member has failed with err. silent reports that
// the last session has not ended, or has ended without being closed by the member. calling reports that
// the host of the member refused the attempt although a connection from the member is still open.
func (l *link) setRefused(err error, silent bool) (calling bool) {
	refused := dialRefused(err) && !silent
	if refused && l.peers.isCalling(l.name) {
		refused, calling = false, true
	}
	l.peers.step(l, func(c *detect.Connectivity) bool { return c.SetRefused(l.name, refused) })
	return calling
}
