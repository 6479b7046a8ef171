//go:build !linux

package lab

// holdPort does not bind the port, because on this system no listener can share a bound port. It is
// unlikely that another process chooses the same port of 6000.
func holdPort(int) (release func(), err error) { return func() {}, nil }
