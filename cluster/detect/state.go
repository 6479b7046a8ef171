package detect

// State is the state of a member, as a node knows it.
type State uint8

const (
	Joining State = iota // does not own keys yet, and forwards checks to other members
	Serving              // owns keys, and is reachable from this side
	Missing              // in the roster and not reachable from this side
	Dead                 // died without a goodbye, and is not forgotten yet
	Leaving              // does not own keys any more, and transfers its authority
)

// IsAnnounced reports whether s is a state that a member announces of itself.
func (s State) IsAnnounced() bool { return s == Joining || s == Serving || s == Leaving }

func (s State) String() string {
	if s > Leaving {
		return "unknown"
	}
	return [...]string{"joining", "serving", "missing", "dead", "leaving"}[s]
}
