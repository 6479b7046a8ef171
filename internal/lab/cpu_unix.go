//go:build unix

package lab

import (
	"syscall"
	"time"
)

// CPU returns the CPU time that this process has taken so far, its own and the system's for
// it, or 0 if the system does not report it. It grows by what the code under test takes,
// however busy the machine is: what takes CPU time in proportion to its input is held to
// CPU, and not to the clock.
func CPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
