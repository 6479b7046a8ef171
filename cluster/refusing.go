package cluster

import (
	"errors"
	"io"
	"syscall"
)

// With Config.ForgetRefused the members of a side spend the shares of a member that has ended
// without a goodbye. Its process has ended if its kernel answers for it: the kernel closed all
// connections, and refuses new ones. Silence is no answer, as behind a cut or while a process is
// frozen. A firewall that answers with resets looks the same, so that each side of such a split
// spends the whole limit.
//
// Each member reports in its row which hosts refuse its connections, as connectivity is reported.
// A member counts as gone while all others report this of it. So one that any other member is
// connected to, or waits for in silence, does not.

// closedByPeer reports whether a read or a write failed because the other side has closed the
// connection.
func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// dialRefused reports whether a dial failed because the host answered that no process listens. No
// error on Windows does.
func dialRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// setRefused records the outcome of an attempt to connect to the member, which failed with err.
// silent reports whether the connection before it ended for another reason than that the member
// closed it. It returns whether the member has yet to close a connection of its own.
func (l *link) setRefused(err error, silent bool) (calling bool) {
	refused := dialRefused(err) && !silent
	if refused && l.peers.calling(l.name) {
		refused, calling = false, true
	}
	l.peers.step(l, func(h *hearing) bool { return h.setRefused(l.name, refused) })
	return calling
}
