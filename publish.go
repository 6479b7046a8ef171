package weir

// Published is a small value that all nodes have.
type Published struct {
	Name    string
	Version uint64
	Value   []byte // not to be changed
}

// Publish gives all nodes a small value, by its name: rules that were changed
// while running, an override for one key. Of two values of a name the one with
// the higher version holds on every node, and of the same version the one whose
// bytes are greater. A nil or empty value takes the name back.
//
// Version 0 stands for one above what this node knows of the name, at least the
// time of day in nanoseconds: the last writer wins.
//
// A name has 1 to 256 bytes, a value at most 4 KiB; there are at most 16,384
// values, with 8 MiB in all. The error is ErrInvalid and names what is wrong, among
// that a version that is not above the one that holds; ErrFull if there is no more
// room; or ErrClosed.
func (n *Node) Publish(name string, version uint64, value []byte) error { return ErrClosed }

// Published is the values whose names begin with prefix, sorted by name, and the
// revision of all values, which rises with each change that comes here: whoever
// polls need not look at the values while it stays. The slice and the values are
// shared, and must not be changed. Without changes it costs a binary search.
func (n *Node) Published(prefix string) (values []Published, revision uint64) { return nil, 0 }
