//go:build unix

package conns

import (
	"math"
	"syscall"
)

// OpenFiles returns the number of files and connections that this process may have open at once, or
// math.MaxInt32 if the number is not known.
func OpenFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt32
	}
	return uint64(limit.Cur)
}
