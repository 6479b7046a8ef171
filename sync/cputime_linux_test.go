package countsync

import (
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// clock returns what tells the processor time that this goroutine's thread has taken:
// what other processes take meanwhile is no part of it.
func clock(tb testing.TB) func() time.Duration {
	runtime.LockOSThread()
	tb.Cleanup(runtime.UnlockOSThread)
	return func() time.Duration {
		const ofThread = 3
		var t syscall.Timespec
		if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, ofThread, uintptr(unsafe.Pointer(&t)), 0); err != 0 {
			tb.Fatal(err)
		}
		return time.Duration(t.Nano())
	}
}
