package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Resident returns the number of bytes of memory that a process occupies, or -1 if the
// system does not report this. The source is /proc of Linux.
func Resident(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return -1
	}
	return pages * int64(os.Getpagesize())
}

// OpenFiles returns the number of file descriptors of a process, or -1 if the system does
// not report this. For another process, the source is /proc of Linux.
func OpenFiles(pid int) int64 {
	dir, own := fmt.Sprintf("/proc/%d/fd", pid), int64(0)
	if pid == os.Getpid() {
		dir, own = "/dev/fd", 1 // the descriptor of the directory
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return -1
	}
	return int64(len(entries)) - own
}

// CPUOf returns the processor time that a process has used, or 0 if the system does not
// report this. The source is /proc of Linux, in hundredths of a second.
func CPUOf(pid int) (used time.Duration) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ") // proc(5): the name before ")" may have spaces
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	for _, field := range fields[11:13] {
		ticks, _ := strconv.Atoi(field)
		used += time.Duration(ticks) * time.Second / 100 // USER_HZ, on all of Linux's architectures that Go runs on
	}
	return used
}

// Threads contains sums over the present threads of a process, without threads that have
// ended.
type Threads struct {
	Ran   time.Duration // time on a processor
	Waits int64         // voluntary context switches: each time that a thread waited
}

// ThreadsOf returns the Threads of a process, or zero if the system does not report
// these. The source is /proc of Linux, to the nanosecond.
func ThreadsOf(pid int) (of Threads) {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		dir := fmt.Sprintf("/proc/%d/task/%s/", pid, thread.Name())
		var t Threads
		text, _ := os.ReadFile(dir + "schedstat")
		_, _ = fmt.Sscan(string(text), &t.Ran) // a thread that has ended adds zero
		text, _ = os.ReadFile(dir + "status")
		_, after, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		_, _ = fmt.Sscan(after, &t.Waits)
		of.Ran, of.Waits = of.Ran+t.Ran, of.Waits+t.Waits
	}
	return of
}
