package weir

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/snapshots"
)

// SnapshotStats are about Config.Snapshots. They are zero without it.
type SnapshotStats struct {
	Loading  bool          // what is there is being loaded, and the node is not Ready
	Loaded   int           // counts that were loaded
	LoadTook time.Duration // that it took
	Refused  int           // snapshots that were not loaded, or not to their end; the log has the reasons

	Saved    uint64        // snapshots that were written
	Failures uint64        // that were not
	Error    string        // of the last that was not, if none was written since; else empty
	Age      time.Duration // since the writing of the last one began; zero if none was written
	Took     time.Duration // that its writing took
	Bytes    int64         // of it
	Counts   int           // in it
}

func (n *Node) snapshotStats() SnapshotStats {
	s := n.joining.snapshots.Stats()
	return SnapshotStats{
		Loading: s.Loading, Loaded: s.Loaded, LoadTook: s.LoadTook, Refused: s.Refused,
		Saved: s.Saved, Failures: s.Failures, Error: s.Error, Age: s.Age, Took: s.Took, Bytes: s.Bytes, Counts: s.Counts,
	}
}

// snapshotKeys are what snapshots are sealed under.
func (c *Config) snapshotKeys() snapshots.Keys {
	keys := snapshots.NewKeys(c.Secrets)
	if c.PlainSnapshots {
		keys = keys.Plain()
	}
	return keys
}

// load loads what all nodes have written before they stopped, and then has snapshots
// written. It waits for the loading until ctx is done; then that goes on, and the node is
// not Ready until it is over.
func (n *Node) load(ctx context.Context) {
	if n.cfg.Snapshots == nil {
		return
	}
	n.handover.Track()
	loaded := make(chan struct{})
	n.env.Go(func() {
		n.joining.snapshots.Load(n.env.Context())
		close(loaded)
		n.joining.snapshots.Run()
	})
	select {
	case <-loaded:
	case <-ctx.Done():
	}
}
