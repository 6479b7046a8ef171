package cluster

import "fmt"

// Version is the newest version of the peer protocol that this release speaks. A release
// speaks its own version and the one before, so that a rolling upgrade never splits a
// cluster. docs/upgrades.md states what a change of the wire has to observe. Version 1 may change
// until release 0.1.0.
const Version = 1

// capabilities are those that this release has: none yet.
const capabilities = 0

// opening is the first byte of greetings and frames. It never changes, and neither does
// what comes before the hellos, as both sides speak before they know each other's
// versions.
const opening = 1

// Protocol is what both ends of one connection speak. The zero Protocol is that of no
// connection.
type Protocol struct {
	// Version is the newest version that both ends speak. A message is sent in the form
	// of this version.
	Version uint8
	// Capabilities are the bits of the capabilities that both ends have. What a capability
	// stands for is sent only to a node that has it.
	Capabilities uint64
}

// versions is the range of versions that one node speaks, and its capabilities.
type versions struct {
	oldest, newest uint8
	capabilities   uint64
}

// spoken is what this release speaks.
var spoken = versions{max(1, Version-1), Version, capabilities}

// speaking returns h with what its node speaks.
func (h hello) speaking(v versions) hello {
	h.Oldest, h.Newest, h.Capabilities = v.oldest, v.newest, v.capabilities
	return h
}

// spoken returns h's versions as text.
func (h hello) spoken() string {
	if h.Oldest == h.Newest {
		return fmt.Sprint(h.Newest)
	}
	return fmt.Sprintf("%d to %d", h.Oldest, h.Newest)
}

// agree returns what a connection between the nodes of two hellos speaks. The result is
// the same on both ends: each has both hellos, and the handshake's MACs cover them.
func (h hello) agree(other hello) (Protocol, error) {
	if p := (Protocol{min(h.Newest, other.Newest), h.Capabilities & other.Capabilities}); p.Version >= max(h.Oldest, other.Oldest) {
		return p, nil
	}
	return Protocol{}, h.apart(other.spoken())
}

// apart is the error that another node speaks only these versions.
func (h hello) apart(theirs string) error {
	return fmt.Errorf("%w: it speaks %s, this node %s", errVersion, theirs, h.spoken())
}
