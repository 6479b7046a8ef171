package cluster

import "sync/atomic"

// asking is the common part of a link and a region.
type asking struct {
	session atomic.Pointer[session] // the session that sends requests, or nil
}

// Send implements Peer for a region. A link has its own Send.
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
