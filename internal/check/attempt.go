package check

import (
	"errors"
	"math"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// attempt is the choice of the member that executes a check, and of the time to wait for this member.
// It is a state machine: the inputs are errors and the time.
//
// A check asks the owner, and at most once more by another way. Then the check asks a stand-in, and
// a further stand-in only if the previous one has failed at once. A check whose route begins at a
// stand-in does not ask the owner. If an answer is late, both members count the units, and the node
// refunds the units of the late answer if it still arrives, except those of a debit that left a debt.
type attempt struct {
	View     *view.View // the view of the check, without members that have failed to answer
	Member   int        // index in Members of the member that is asked to decide; this node if this node stands in
	Hop      int        // index in Members of the member to send the request to
	Flags    uint8      // flags of the request
	Wait     time.Duration
	way      view.Route    // route of the first attempt
	flags0   uint8         // flags of the check, without FlagStandIn
	timeout  time.Duration // time of the check, without its extension
	extended time.Duration // extension of timeout, for the delay that a member has reported
	used     time.Duration // the total time of the attempts that have ended, at most Wait for each attempt
	sent     int64         // the time at which this attempt began, on the monotonic clock
	reserve  time.Duration // the part of timeout that keepReserve has set aside
}

// firstAttempt returns the first attempt of a check that begins at the monotonic time now. The check waits for
// timeout in total. If an asked member has reported a delay, the check waits longer by the extension for
// that delay.
func firstAttempt(v *view.View, way view.Route, flags uint8, timeout time.Duration, now int64) attempt {
	a := attempt{View: v, way: way, flags0: flags, timeout: timeout, sent: now, Member: way.To, Hop: way.Hop, Flags: flags}
	all := a.extend()
	a.Wait = all / 2
	switch way.Way {
	case view.Direct:
		a.Wait = firstWait(all)
	case view.StandIn:
		a.Flags |= wire.FlagStandIn
	}
	return a
}

// firstWait returns how long a check that waits for the time all in total waits for an owner to which this
// node is connected.
func firstWait(all time.Duration) time.Duration { return all * 3 / 4 }

// keepReserve sets time aside in which this node asks other members before it stands in: the rest
// of the check's time after a first attempt at the owner. It must be called before advance.
func (a *attempt) keepReserve() { a.reserve = a.timeout - firstWait(a.timeout) }

// advance sets a to the next attempt after a has failed with err. If there is no other member to ask,
// it returns false, and Member is this node if this node stands in.
func (a *attempt) advance(err error, id bucket.ID, now int64) bool {
	soon := now-a.sent < int64(a.Wait/4) // a relay that gets no response answers after a larger part of Wait
	// A second stand-in is asked only if the first has failed at once, because the first has just died or
	// stalled. A stand-in has replicas of the counts, whereas this node would grant a share in
	// addition to the counted units. If the first stand-in was late, both stand-ins could count the units.
	if a.Flags&wire.FlagStandIn != 0 && !soon {
		return false
	}
	// If an attempt took longer than Wait, this process did not run in the meantime.
	a.used += min(time.Duration(now-a.sent), a.Wait)
	again := a.choose(err, id, a.timeout+a.extended-a.used)
	all := a.timeout + a.extended
	if again {
		all = a.extend()
	}
	a.sent, a.Wait = now, min(all-a.used, all/2)
	if again && a.Flags&wire.FlagStandIn == 0 && a.View.StandIn(id, a.Member) == a.View.Self {
		a.Wait = min(a.Wait, all-a.used-a.reserve)
	}
	return again
}

// timeLeft returns the remaining time of the check. The present attempt counts with at most Wait,
// even if this process noticed the end of the attempt later.
func (a *attempt) timeLeft(now int64) time.Duration {
	return a.timeout + a.extended - a.used - min(time.Duration(now-a.sent), a.Wait)
}

// choose chooses the member for the next attempt, and reports whether there is another attempt.
func (a *attempt) choose(err error, id bucket.ID, remaining time.Duration) bool {
	s := a.View.StandIn(id, a.Member)
	switch {
	case remaining <= 0: // no answer would be in time, but the member would count the units
		if s == a.View.Self {
			a.Member = s
		}
		return false
	case s == a.View.Self && remaining <= a.reserve:
		a.Member = s
		return false
	case a.way.Way == view.Relay && a.Hop == a.way.Hop && !errors.Is(err, env.ErrUnreached) && a.detours():
		return true // the relay did not answer, but the owner may
	case s < 0:
		return false
	case s != a.View.Self:
		a.View = a.View.WithoutMember(a.Member)
		a.Member, a.Hop, a.Flags = s, a.View.Next[s], a.flags0|wire.FlagStandIn
		return true
	case a.way.Way == view.Direct && a.Member == a.way.To && a.Hop == a.way.Hop && a.detours():
		return true
	}
	a.Member = a.View.Self
	return false
}

// extend extends the check by the delay that the next hop has reported, and returns the maximum
// duration of the check.
func (a *attempt) extend() time.Duration {
	// This node does not know the current delay of a member behind a relay.
	if p := a.View.Members[a.Hop].Peer; p != nil {
		a.extended = max(a.extended, extension(a.timeout, p.Delay()))
	}
	return a.timeout + a.extended
}

// LongestCheck returns the longest time of a check with the given timeout, with its extension.
func LongestCheck(timeout time.Duration) time.Duration {
	return timeout + extension(timeout, math.MaxInt64)
}

// extension returns the additional time of a check whose next hop has reported the given scheduling
// delay: at most timeout, and 0 if the delay is short.
func extension(timeout, delay time.Duration) time.Duration {
	return min(timeout, detect.ExtraTime(0, delay))
}

// detours reports whether there is another way to the member, and sets Hop to that way.
func (a *attempt) detours() bool {
	hop := a.View.Detour(a.way.To, a.way.Hop)
	if hop >= 0 {
		a.Hop = hop
	}
	return hop >= 0
}

// isUnanswered reports whether the member did not answer, or could not pass the request on, so that
// another member can be asked.
func isUnanswered(err error) bool {
	return errors.Is(err, cluster.ErrTimeout) || isDisconnected(err) || errors.Is(err, env.ErrUnreached)
}

// isDisconnected reports whether the request was not sent because this node is not connected to the member, or
// because the member has stalled.
func isDisconnected(err error) bool {
	return errors.Is(err, cluster.ErrDisconnected) || errors.Is(err, cluster.ErrStalled)
}

// isUnsent reports whether the request was not sent to any member.
func isUnsent(err error) bool { return isDisconnected(err) || errors.Is(err, cluster.ErrBusy) }
