//go:build race

package race

// Enabled reports whether this is a build with the race detector.
const Enabled = true
