//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package snapshot

const openFlags = 0
