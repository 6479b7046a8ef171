package lab

import (
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
