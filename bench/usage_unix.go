//go:build unix

package main

import (
	"runtime"
	"syscall"
	"time"
)

// usage returns what CPU time this process has taken, of its own and of the system's, and how
// many bytes of memory at most.
func usage() (cpu time.Duration, peak int64, err error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, err
	}
	peak = int64(u.Maxrss)
	if runtime.GOOS != "darwin" { // which counts bytes, and others KiB
		peak <<= 10
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), peak, nil
}
