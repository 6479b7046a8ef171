package weir

import (
	"time"

	"github.com/weir-go/weir/cluster"
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
	Unheard = cluster.Unheard // in the roster, but nobody on this side hears it
	Dead    = cluster.Dead    // died without saying goodbye, and is not yet forgotten
)

func (v *view) member(i int) Member {
	m := &v.Members[i]
	state := m.State
	if state == cluster.Leaving {
		state = Serving // it answers still, and says goodbye in a moment
	}
	return Member{Name: m.Name, Addr: m.Addr, Region: m.Region, Self: i == v.Self, State: state}
}

// unheard is the members of the roster that nobody on this side hears, and for how long
// this node has not.
func (v *view) unheard(now int64) map[string]time.Duration {
	unheard := make(map[string]time.Duration)
	for i := range v.Members {
		if i != v.Self && v.next[i] < 0 {
			unheard[v.Members[i].Name] = time.Duration(max(0, now-v.lost[i]))
		}
	}
	return unheard
}
