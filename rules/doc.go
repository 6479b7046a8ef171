// Package rules reads limits from a file, matches requests with them, and applies changes of the
// file while the process runs.
//
//	book, err := rules.Open(ctx, node, "rules.yaml", rules.BookOptions{})
//	now := book.Current()             // a version of the rules
//	for _, rule := range now.Match(&request, nil) {
//		key, ok := rule.Key(&request)
//		for i := range rule.Limits {
//			limiter := now.Limiter(&rule.Limits[i], request.Tier, key)
//			...
//
// Package httplimit makes these calls for net/http. Programs of other kinds need five calls:
//
//   - [Open] returns a [Book] of a file, and reads the file again when it changes. [OpenSource] reads
//     rules from a directory, a URL or another [Source].
//   - [Book.Current] returns the current [Snapshot]: a version of the file, with the Limiters
//     of a node, the current overrides and the modes of the rules.
//   - [Set.Match], which a Snapshot has too, returns the rules for a [Request].
//   - [Rule.Key] returns the key of a Request.
//   - [Snapshot.Limiter] returns the weir.Limiter of a limit, for a key.
//
// [Parse] reads a file into a [Set], which never changes, without a node. [Book.Override] sets
// other numbers for a key, and [Book.Switch] the mode of a rule, on all nodes. docs/rules.md describes
// the file, and [Schema] returns its JSON Schema for editors.
package rules
