//go:build unix

package cluster

import (
	"math"
	"syscall"
)

// descriptors is how many files and connections this process may have open at once.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt32
	}
	return uint64(limit.Cur)
}
