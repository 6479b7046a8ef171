package weir

import (
	"errors"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// attempt is which member is asked to carry out a check, and for how long. An error and
// the time make the next one of it; it asks nothing itself, and reads no clock.
//
// A check is asked for at one owner and one stand-in at most, as each may carry it out
// though its answer is late: what both have done counts twice until one is refunded.
type attempt struct {
	v       *view.View // without the members that have just not answered
	way     view.Route // of the first attempt
	flags0  uint8      // of the check
	timeout time.Duration
	begun   int64 // when the check began, by the steady clock
	sent    int64 // when this attempt did

	member int // index in Members of the one that is to answer; this node if it is to stand in
	hop    int // of the one that the request is sent to
	flags  uint8
	wait   time.Duration
}

func firstAttempt(v *view.View, way view.Route, flags uint8, timeout time.Duration, begun int64) attempt {
	a := attempt{v: v, way: way, flags0: flags, timeout: timeout, begun: begun, sent: begun, member: way.To, hop: way.Hop, flags: flags, wait: timeout / 2}
	switch way.Way {
	case view.Direct:
		a.wait = timeout * 3 / 4
	case view.StandIn:
		a.flags |= wire.FlagStandIn
	}
	return a
}

// next makes the attempt that follows one which ended with err, now. It reports false if
// no other member is to be asked; member is this node then if it is to stand in itself.
func (a *attempt) next(err error, id bucket.ID, now int64) bool {
	soon := now-a.sent < int64(a.wait/4) // a relay gives up after a larger part of it
	// Of those that stand in, a second one is asked only where the first has just
	// died, or answers nothing now: it has the counts, and a share of this node's
	// own would come on top of them. After one that was late it might count twice
	// what is asked.
	if a.flags&wire.FlagStandIn != 0 && !soon {
		return false
	}
	left := a.timeout - time.Duration(now-a.begun)
	a.sent, a.wait = now, min(left, a.timeout/2)
	s := a.v.StandIn(id, a.member)
	switch {
	case left <= 0: // nobody else could answer in time, and might do it all the same
		if s == a.v.Self {
			a.member = s
		}
		return false
	case a.way.Way == view.Relay && a.hop == a.way.Hop && !errors.Is(err, env.ErrUnreached) && a.detours():
		return true // the member that was to relay has not answered, which says nothing of the owner
	case s < 0:
		return false
	case s != a.v.Self:
		a.v = a.v.Without(a.member)
		a.member, a.hop, a.flags = s, a.v.Next[s], a.flags0|wire.FlagStandIn
		return true
	case a.way.Way == view.Direct && a.member == a.way.To && a.hop == a.way.Hop && a.detours():
		return true
	}
	a.member = a.v.Self
	return false
}

// detours reports whether there is another way to the member, and takes it.
func (a *attempt) detours() bool {
	hop := a.v.Detour(a.way.To, a.way.Hop)
	if hop >= 0 {
		a.hop = hop
	}
	return hop >= 0
}
