// Package snapshot stores the counts of nodes, so that they survive a stop of all nodes.
// weir.Config.Snapshots has the [Store] of a node. [OpenDir] returns a Store that keeps files in
// a directory of this machine:
//
//	dir, err := snapshot.OpenDir("/var/lib/weir", snapshot.DirOptions{})
//	...
//	node, err := weir.Start(ctx, weir.Config{Snapshots: dir})
//	...
//	node.Leave(ctx) // writes a last snapshot
//	dir.Close()
//
// A service needs only OpenDir and [Dir.Close]. The node calls [Dir.Save] and [Dir.Load], the
// methods of a Store. Tools list the snapshots with [List], and open a file with [Open].
//
// A Store moves bytes, and does not interpret a snapshot: the node encrypts,
// authenticates and validates the bytes.
package snapshot
