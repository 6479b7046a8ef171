//go:build !unix

package conns

import "math"

// OpenFiles returns the number of files and connections that this process may have open at once. This
// system sets no bound.
func OpenFiles() uint64 { return math.MaxInt32 }
