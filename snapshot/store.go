package snapshot

import (
	"context"
	"io"
)

// Store stores the snapshots of nodes. Its methods must be safe for concurrent use. No check
// waits for them, so that they may be slow, and may return any error. The node logs and counts an
// error of Save, and tries again after its next interval. The node loads counts only at its start:
// it logs and counts an error of that Load, and continues without the counts that were not read.
// Before each Save, the node also calls Load to read headers, and an error of this Load does not
// prevent the Save.
type Store interface {
	// Save stores the bytes that write writes as the newest snapshot of the named node,
	// completely or not at all. Save calls write once. If write or its writer returns an
	// error, Save returns the error and changes nothing. The same applies to the error of
	// ctx, which bounds Save. A node does not call Save concurrently.
	Save(ctx context.Context, node string, write func(w io.Writer) error) error

	// Load calls read sequentially, with the newest snapshot of each node. If read
	// returns an error, Load calls read once more with the previous snapshot, if there is
	// one. If several processes share the Store, Load only reads the snapshots of nodes
	// for which mine returns true. Load returns its own errors joined with all errors of
	// read, and nil for an empty Store. After ctx is done, Load stops reading.
	Load(ctx context.Context, mine func(node string) bool, read func(node string, r io.Reader) error) error
}
