//go:build !linux

package main

import "time"

// machineUsage does not tell here.
func machineUsage() (used, idle time.Duration, ok bool) { return 0, 0, false }
