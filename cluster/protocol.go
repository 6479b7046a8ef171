package cluster

import "fmt"

// Version is the newest version of the peer protocol that this release speaks. A release also speaks
// the previous version, so that a rolling upgrade does not split a cluster. Version 1 may change until
// release 0.1.0.
//
// The hello of each end of a connection states a range of versions and a set of capabilities. The
// connection speaks the newest common version, and has the common capabilities.
//
// A node ignores unknown fields of a hello, of metadata and of the records of a roster, unknown bytes
// after a ping or pong, unknown kinds of frame up to 64 KiB, and unknown capabilities. An unknown op of a
// request has no effect (wire.Unknown). An unknown status of the handshake closes the connection.
//
// A change of the wire format observes these rules:
//
//   - A change of a form that nodes already send raises Version by one, once for each release. An
//     optional new message takes a bit of the capabilities instead.
//   - The sender writes the older form if the peer or the batch has the older version, or lacks the
//     capability. The receiver reads both forms. Two versions later, the older form is removed.
//   - A request that other members pass on is in the oldest form, because its sender does not know the
//     version of the destination. A new form is sent two versions later.
//   - The bytes before the hellos, the header of a frame, and the meaning of a known field do not
//     change in a single release. A release first accepts both forms, and the next release sends the
//     new form.
//   - Gossip has no connection whose ends could agree. Metadata and records get new fields, and never
//     a new "version" (gossip/wire.go). A new field is an optional number, a text of at most 1 KiB, or
//     a flat list. The metadata of a member has at most 512 bytes. The protocol version of memberlist
//     stays.
//   - Each number on the wire keeps its bound, and unknown input costs no memory before it is read.
//   - TestNodesSpeakTheNewestCommonVersion gets the new pairs of versions, and
//     TestGossipOfTwoVersionsConforms the new cluster. A test sends both forms of each changed message.
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

// versionError returns the error for a node that speaks only the versions in theirs.
func (h hello) versionError(theirs string) error {
	return fmt.Errorf("%w: it speaks %s, this node %s", errVersion, theirs, h.versionText())
}
