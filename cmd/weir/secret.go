package main

import (
	"crypto/rand"
	"fmt"
	"io"
)

// secret prints what the nodes of a cluster share, each of 32 random bytes. They are
// two, since a secret is rotated, and a seed never is.
func secret(_ []string, stdout, stderr io.Writer) int {
	var secret, seed [32]byte
	rand.Read(secret[:])
	rand.Read(seed[:])
	if _, err := fmt.Fprintf(stdout, "secret: %x\nseed: %x\n", secret, seed); err != nil {
		fmt.Fprintln(stderr, err)
		return bad
	}
	return ok
}
