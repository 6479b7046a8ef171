//go:build unix

package lab

import (
	"runtime"
	"syscall"
	"time"
)

// Signals reports whether this system has those of Leave, Freeze and Thaw, and tells what CPU
// and PeakMemory return.
const Signals = true

// Leave asks the child to end in order, by SIGTERM.
func (c *Child) Leave() error { return c.Cmd.Process.Signal(syscall.SIGTERM) }

// Freeze stops the child, by SIGSTOP. It keeps its memory, sockets and timers.
func (c *Child) Freeze() error { return c.Cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen child go on, by SIGCONT. It does nothing to one that is not frozen.
func (c *Child) Thaw() error { return c.Cmd.Process.Signal(syscall.SIGCONT) }

// CPU returns the CPU time that this process has taken so far, its own and the system's for
// it, or 0 if the system does not report it. It grows by what the code under test takes,
// however busy the machine is: what takes CPU time in proportion to its input is held to
// CPU, and not to the clock.
func CPU() time.Duration {
	u := usage()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// PeakMemory returns the most bytes of memory that this process has had resident, or 0 if the
// system does not report it.
func PeakMemory() int64 {
	if runtime.GOOS == "darwin" { // which counts bytes, and others KiB
		return int64(usage().Maxrss)
	}
	return int64(usage().Maxrss) << 10
}

func usage() (u syscall.Rusage) {
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // which leaves zeros
	return u
}
