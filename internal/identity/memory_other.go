//go:build !linux

package identity

// inMemory returns false: the container platforms that mount secrets in memory run on Linux.
func inMemory(string) bool { return false }
