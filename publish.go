package weir

import (
	"fmt"

	"github.com/weir-go/weir/internal/publish"
)

// Published is a small value that all nodes have.
type Published struct {
	Name    string
	Version uint64
	Value   []byte // not to be changed
}

// Publish gives all nodes a small value under a name: rules that change while
// running, an override for one key. Of two values of a name the one with the
// higher version holds on every node, and of the same version the one whose bytes
// are greater. A nil or empty value takes the name back. It returns when this node
// has the value. The nodes to which it is connected have the value a packet's way later, and the other
// nodes when they meet a node that has it, also after a split or a restart of all but one.
//
// Version 0 stands for one above what this node knows of the name, and at least the
// time of day in nanoseconds since 1970: the last writer wins. With an empty value it
// deletes what holds, whatever version that has. No node takes a version that is more than
// a day ahead of its own time of day: a member could leave a value of the highest version,
// and nothing would ever replace it.
//
// A name has 1 to 256 bytes, a value at most 4 KiB; there are at most 16,384
// values, with 8 MiB in all. What was taken back is remembered for a day: a node
// that was cut off for longer brings it back. Values do not expire.
//
// The error is ErrInvalid and names what is wrong, among that a version that is not
// above the one that holds or is too far ahead, and a value that there is no more room
// for; or it is ErrClosed. To publish again what holds is no error.
func (n *Node) Publish(name string, version uint64, value []byte) error {
	if n.env.Ended() {
		return ErrClosed
	}
	if err := n.published.Put(name, version, value); err != nil {
		return fmt.Errorf("%w %w", ErrInvalid, err)
	}
	return nil
}

// Published is the values whose names begin with prefix, sorted by name, and the
// revision of all values, which rises with each change that comes to this node:
// a caller that polls need not look at the values while it stays. The slice and the
// values are shared, and must not be changed. What was taken back is not among
// them.
func (n *Node) Published(prefix string) (values []Published, revision uint64) {
	return publish.Values[Published](&n.published.Store, prefix)
}
