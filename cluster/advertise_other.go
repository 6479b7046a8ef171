//go:build !linux

package cluster

import "syscall"

func bindToDevice(string) func(network, _ string, c syscall.RawConn) error { return nil }

// equalDefaults returns no interface, so the first route of the kernel decides.
func equalDefaults(bool) []string { return nil }
