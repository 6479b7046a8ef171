// Package rules reads limits from a file, and keeps them while the file changes.
//
//	book, err := rules.Open(ctx, node, "rules.yaml", rules.BookOptions{})
//	now := book.Current()             // one version, whole
//	for _, rule := range now.Match(&request, nil) {
//		key, ok := rule.Key(&request)
//		for i := range rule.Limits {
//			limiter := now.Limiter(&rule.Limits[i], request.Tier, key)
//			...
//
// Parse reads a file into a Set, which nothing changes any more. A Snapshot is a
// Set with a node's Limiters and the overrides that hold now; a Book has the
// Snapshot that is current, and swaps it in one step. Package httplimit does the
// rest of the work for net/http. docs/rules.md describes the file, and Schema
// describes it to editors.
package rules
