//go:build !linux

package cluster

import "syscall"

func bindToDevice(string) func(network, _ string, c syscall.RawConn) error { return nil }

// equalDefaults returns nothing: what the kernel takes first is taken.
func equalDefaults(bool) []string { return nil }
