//go:build !unix

package rlimit

import "math"

// Files returns how many files and connections this process may have open at once. The
// system has no bound of its own here.
func Files() uint64 { return math.MaxInt32 }
