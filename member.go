package weir

import (
	"fmt"
	"math"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/view"
)

// Member is one process in the roster.
type Member struct {
	Name   string // label-incarnation, unique for each start
	Addr   string // "host:port" that others dial
	Region string
	Self   bool
	State  MemberState
}

// MemberState is how a member stands, as this node knows it.
type MemberState = cluster.State

// The states of a member.
const (
	Joining = cluster.Joining // answers through the others, and owns nothing yet
	Serving = cluster.Serving // in the roster and heard, directly or through others
	Missing = cluster.Missing // in the roster, but no member on this side is connected to it
	Dead    = cluster.Dead    // died without saying goodbye, and is not yet forgotten
)

// memberOf returns one of a view's Members.
func memberOf(v *view.View, i int) Member {
	m := &v.Members[i]
	state := m.State
	if state == cluster.Leaving {
		state = Serving // it answers still, and says goodbye in a moment
	}
	return Member{Name: m.Name, Addr: m.Addr, Region: m.Region, Self: i == v.Self, State: state}
}

// Members is the roster as this node knows it, sorted by name: every member that
// is alive, or that died without saying goodbye and is not yet forgotten.
func (n *Node) Members() []Member {
	v := n.env.View()
	members := make([]Member, len(v.Members))
	for i := range members {
		members[i] = memberOf(v, i)
	}
	return members
}

// Ring is the part of all keys that the ring gives to each member, by its name:
// above 0, with a sum of 1. A node that owns nothing is left out: a member that joins, or
// leaves. It costs some 10 µs for each member.
func (n *Node) Ring() map[string]float64 {
	r := n.env.View().Ring
	type part struct{ hashes, arcs uint64 } // hashes without the last of each arc: all of them would not fit
	parts := make([]part, len(r.Members()))
	r.Arcs(func(first, last uint64) {
		p := &parts[r.Owner(last)]
		p.hashes += last - first
		p.arcs++
	})
	shares := make(map[string]float64, len(parts))
	for i, p := range parts {
		shares[r.Members()[i]] = (float64(p.hashes) + float64(p.arcs)) / math.Exp2(64)
	}
	return shares
}

// Forget takes a dead member off the roster at once, because it will not come
// back. It is ErrInvalid if member is not in the roster or not Dead.
func (n *Node) Forget(member string) error {
	if n.env.Ended() {
		return ErrClosed
	}
	if err := n.cluster.Forget(member); err != nil {
		return fmt.Errorf("%w member: %w", ErrInvalid, err)
	}
	return nil
}
