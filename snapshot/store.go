package snapshot

import (
	"context"
	"io"
)

// Store keeps the snapshots of nodes. Its methods are safe for concurrent use. No check of
// a limit waits for them, so they may be slow, and may return any error: the node logs it,
// counts it, and tries again at its next interval.
type Store interface {
	// Save keeps what write writes as the newest snapshot of the node of this name: whole
	// or not at all. It calls write once. An error of write, or of the writer that write
	// was given, is returned, and then nothing has changed. So is that of ctx, which bounds
	// Save. A node calls Save for one snapshot at a time.
	Save(ctx context.Context, node string, write func(w io.Writer) error) error

	// Load calls read with the newest snapshot of each node, one after the other. Where
	// read returns an error, Load calls it once more with the snapshot before, if the store
	// has one. Of a store that several processes share, it reads only the nodes for which
	// mine reports true. It returns the errors of read joined, with those of the second
	// calls and its own, and nil where the store is empty. Once ctx is done it reads no
	// further.
	Load(ctx context.Context, mine func(node string) bool, read func(node string, r io.Reader) error) error
}
