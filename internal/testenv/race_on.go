//go:build race

package testenv

// Race reports whether this is a build with the race detector.
const Race = true
