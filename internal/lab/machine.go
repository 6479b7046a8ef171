package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// MachineCPU returns the time that all cores of the machine have worked since it started, and
// the time that they were idle. ok is false where the system does not report it: it is read
// from Linux's /proc/stat.
func MachineCPU() (used, idle time.Duration, ok bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	return parseMachineCPU(string(text))
}

// parseMachineCPU reads the first line of proc_stat(5).
func parseMachineCPU(text string) (used, idle time.Duration, ok bool) {
	const (
		userHZ                = 100 // USER_HZ, on all of Linux's architectures that Go runs on
		idles, iowait, guests = 3, 4, 8
	)
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 2+iowait || fields[0] != "cpu" {
		return 0, 0, false
	}
	for i, field := range fields[1:min(len(fields), 1+guests)] { // what guests have is in the user's
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, false
		}
		if d := time.Duration(ticks) * (time.Second / userHZ); i == idles || i == iowait {
			idle += d
		} else {
			used += d
		}
	}
	return used, idle, true
}

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
