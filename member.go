package weir

import (
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/view"
)

// Member is a process in the roster.
type Member struct {
	Name   string // label-incarnation, unique for each start
	Addr   string // "host:port" that other members dial
	Region string
	Self   bool
	State  MemberState
}

// MemberState is the state of a member, as known to this node.
type MemberState = cluster.State

// The states of a member.
const (
	Joining = cluster.Joining // forwards checks to other members, and owns no keys yet
	Serving = cluster.Serving // in the roster and reachable, directly or through other members
	Missing = cluster.Missing // in the roster, but no member on this side is connected to it
	Dead    = cluster.Dead    // died without leaving, and is not yet forgotten
)

// memberOf returns a member of a view.
func memberOf(v *view.View, i int) Member {
	m := &v.Members[i]
	state := m.State
	if state == cluster.Leaving {
		state = Serving // it still answers, and leaves in a moment
	}
	return Member{Name: m.Name, Addr: m.Addr, Region: m.Region, Self: i == v.Self, State: state}
}
