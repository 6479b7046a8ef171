// Package s3snapshot stores the snapshots of nodes in an S3-compatible bucket, which all
// nodes share. A [Bucket] is a [github.com/weir-go/weir/snapshot.Store]:
//
//	bucket, err := s3snapshot.New(s3snapshot.Options{Bucket: "backups", Prefix: "weir/production"})
//	...
//	defer bucket.Close()
//	node, err := weir.Start(ctx, weir.Config{Snapshots: bucket})
//
// A snapshot is the object PREFIX/NODE/GENERATION.snapshot. GENERATION is a number of 20
// digits that counts the snapshots of the node, so the names of a node sort by age. A Bucket
// writes each object once, and an upload becomes visible as a whole. So a reader always sees
// a complete snapshot, even if its writer fails.
//
// Each cluster needs its own Prefix. If two processes save the same object at once, the
// server keeps the first, and the second Save returns an error: the request that makes an
// object visible has the condition If-None-Match: *. A server that answers with 501 or
// ignores the condition keeps the later object, so a restart may load the counts of the
// other cluster.
//
// Save keeps the two newest snapshots of its node, and aborts every other upload of its
// node. The first Save, and then one Save a day, also removes the snapshots of nodes that
// have saved no snapshot for 40 days, and aborts uploads that began more than a day ago.
// Save does not touch other objects.
package s3snapshot
