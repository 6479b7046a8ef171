//go:build !linux

package lab

// hold holds nothing: this system lets no listener share a port that is bound. Addr then
// relies on nobody else choosing the same one of 6000 ports.
func holdPort(int) (release func(), err error) { return func() {}, nil }
