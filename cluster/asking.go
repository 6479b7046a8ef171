package cluster

import "sync/atomic"

// asking is the common part of a link and a region: the session for requests, or nil.
type asking struct {
	session atomic.Pointer[session]
}

// Send implements Peer.
func (a *asking) Send(request []byte) {
	if s := a.session.Load(); s != nil {
		s.queueTell(request)
	}
}

// Protocol implements Peer.
func (a *asking) Protocol() Protocol {
	if s := a.session.Load(); s != nil {
		return s.speaks
	}
	return Protocol{}
}
