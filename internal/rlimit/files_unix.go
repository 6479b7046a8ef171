//go:build unix

package rlimit

import (
	"math"
	"syscall"
)

// Files returns how many files and connections this process may have open at once.
func Files() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt32
	}
	return uint64(limit.Cur)
}
