// Package snapshot keeps what a node of Weir writes of its counts, so that they survive a
// stop of all nodes. A [Store] is given to weir.Config.Snapshots. [OpenDir] returns one
// that keeps files in a directory of this machine:
//
//	dir, err := snapshot.OpenDir("/var/lib/weir", snapshot.DirOptions{})
//	...
//	node, err := weir.Start(ctx, weir.Config{Snapshots: dir})
//	...
//	node.Leave(ctx) // saves once more
//	dir.Close()
//
// A store moves bytes. It knows nothing of what is in a snapshot: the node encrypts,
// authenticates and checks it.
package snapshot
