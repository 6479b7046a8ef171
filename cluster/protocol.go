package cluster

import "fmt"

// Version is the newest version of the peer protocol that this release speaks. A release also speaks
// the previous version, so that a rolling upgrade does not split a cluster. docs/upgrades.md states the
// rules for changes of the wire format. Version 1 may change until release 0.1.0.
const Version = 1

// capabilities has the bits of the capabilities of this release, which has no capabilities yet.
const capabilities = 0

// opening is the first byte of handshakes and frames. The opening and the bytes before the hellos never
// change, because both sides send them before they know each other's versions.
const opening = 1

// Protocol is the version and the capabilities that both ends of a connection use. The zero Protocol
// stands for no connection.
type Protocol struct {
	// Version is the newest version that both ends speak. A message is sent in the form
	// of this version.
	Version uint8
	// Capabilities is the set of capabilities that both ends have, as bits. A message that needs a
	// capability is sent only to a node that has that capability.
	Capabilities uint64
}

// versions is the range of versions that a node speaks, and the capabilities of the node.
type versions struct {
	oldest, newest uint8
	capabilities   uint64
}

// ownVersions has the versions and capabilities of this release.
var ownVersions = versions{max(1, Version-1), Version, capabilities}

// withVersions returns h with the versions and capabilities v.
func (h hello) withVersions(v versions) hello {
	h.Oldest, h.Newest, h.Capabilities = v.oldest, v.newest, v.capabilities
	return h
}

// versionText returns the versions of h as text.
func (h hello) versionText() string {
	if h.Oldest == h.Newest {
		return fmt.Sprint(h.Newest)
	}
	return fmt.Sprintf("%d to %d", h.Oldest, h.Newest)
}

// agree returns the protocol of a connection between the nodes of two hellos. The result is
// the same on both ends: each has both hellos, and TLS, if there is any, protects them.
func (h hello) agree(other hello) (Protocol, error) {
	if p := (Protocol{min(h.Newest, other.Newest), h.Capabilities & other.Capabilities}); p.Version >= max(h.Oldest, other.Oldest) {
		return p, nil
	}
	return Protocol{}, h.versionError(other.versionText())
}

// versionError returns the error that a node speaks only the versions theirs.
func (h hello) versionError(theirs string) error {
	return fmt.Errorf("%w: it speaks %s, this node %s", errVersion, theirs, h.versionText())
}
