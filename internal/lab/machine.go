package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Resident returns how many bytes of the machine's memory a process has, or -1 where the system
// does not report it: it is read from Linux's /proc.
func Resident(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return -1
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return -1
	}
	return pages * int64(os.Getpagesize())
}

// OpenFiles returns how many file descriptors a process has, or -1 where the system does not
// report it. Of another process it is read from Linux's /proc.
func OpenFiles(pid int) int64 {
	dir, own := fmt.Sprintf("/proc/%d/fd", pid), int64(0)
	if pid == os.Getpid() {
		dir, own = "/dev/fd", 1 // the directory's
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return -1
	}
	return int64(len(entries)) - own
}

// CPUOf returns the processor time that a process has used, or 0 where the system does not report
// it: it is read from Linux's /proc, in hundredths of a second.
func CPUOf(pid int) (used time.Duration) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ") // proc(5): the name before it may have spaces
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
