package cluster

import "sync/atomic"

// asking is what a link and a region have in common: the session by which they ask, nil
// if there is none.
type asking struct {
	session atomic.Pointer[session]
}

// Tell implements Peer.
func (a *asking) Tell(request []byte) {
	if s := a.session.Load(); s != nil {
		s.tell(request)
	}
}

// Protocol implements Peer.
func (a *asking) Protocol() Protocol {
	if s := a.session.Load(); s != nil {
		return s.speaks
	}
	return Protocol{}
}
