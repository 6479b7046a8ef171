package weir

import (
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
