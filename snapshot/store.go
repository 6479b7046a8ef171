package snapshot

import (
	"context"
	"io"
)

// Store stores the snapshots of nodes. Its methods must be safe for concurrent use. They may be slow
// and may return any error, because no check waits for them. The node logs and counts an error of
// Save, and saves again after the next interval. The node loads counts only at its start: it logs and
// counts an error of that Load, and continues without the counts that were not read. Before each
// Save, the node also calls Load to read headers, and an error of this Load does not prevent the Save.
type Store interface {
	// Save calls the function write once, and stores the written bytes as the newest snapshot of
	// the named node, completely or not at all. If write or its writer returns an error, or ctx is
	// done first, Save returns the error and changes nothing. A node does not call Save
	// concurrently.
	Save(ctx context.Context, node string, write func(w io.Writer) error) error

	// Load calls the function read sequentially, with the newest snapshot of each node. If read
	// returns an error, Load calls read once more, with the previous snapshot of that node, if
	// there is one. If several processes share the Store, Load reads only the snapshots of nodes
	// for which the function mine returns true. Load returns its own errors joined with all
	// errors of read, and nil for an empty Store. After ctx is done, Load stops reading.
	Load(ctx context.Context, mine func(node string) bool, read func(node string, r io.Reader) error) error
}
