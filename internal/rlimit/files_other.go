//go:build !unix

package cluster

import "math"

// descriptors is how many files and connections this process may have open at once:
// the system has no bound of its own here.
func descriptors() uint64 { return math.MaxInt32 }
