//go:build !linux

package cluster

import "syscall"

// resendSoon does nothing on this system.
func resendSoon(string, string, syscall.RawConn) error { return nil }
