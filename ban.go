package weir

import "time"

// Bans are bans in the whole cluster.
type Bans struct {
	Bans    []BannedKey // the last to end first
	Missing []string    // names of members that did not answer, or run a release without bans
}

// BannedKey is a key that is banned.
type BannedKey struct {
	Limit  string
	ID     [16]byte  // the ID that Limiter.ID returns, and ResetID accepts
	Key    string    // the key as callers passed it, or its masked text; empty if Known is false
	Known  bool      // a node that answered has the text of the key, and may send it (Node.TopKeys)
	Masked bool      // Key is a masked text, because the key is a secret (Limit.SecretKeys)
	Since  time.Time // zero if the node that began the ban has ended
	Until  time.Time
}
