package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// userHZ is USER_HZ, on all of Linux's architectures that Go runs on.
const userHZ = 100

// machineUsage returns the time that all cores of the machine have worked since it
// started, and the time that they were idle; false if the system does not tell.
func machineUsage() (used, idle time.Duration, ok bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	return parseUsage(string(text))
}

// parseUsage reads the first line of proc_stat(5).
func parseUsage(text string) (used, idle time.Duration, ok bool) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	const (
		user, idles, iowait = 1, 4, 5
		guest               = 9 // user has it already
	)
	if len(fields) <= iowait || fields[0] != "cpu" {
		return 0, 0, false
	}
	for i, field := range fields[:min(len(fields), guest)] {
		if i < user {
			continue
		}
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
