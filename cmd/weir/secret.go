package main

import (
	"crypto/rand"
	"fmt"
	"io"
)

// secretCommand prints what the nodes of a cluster share, each of 32 random bytes. They are
// two, since a secret is rotated, and a seed never is.
type secretCommand struct{}

// Help says what to do with it.
func (secretCommand) Help() string {
	return "All nodes get the same file:\n\n  weir secret > weir.secret\n  weir serve -shared weir.secret -bind :7946"
}

func (secretCommand) run(stdout, _ io.Writer) (int, error) {
	var secret, seed [32]byte
	rand.Read(secret[:])
	rand.Read(seed[:])
	_, err := fmt.Fprintf(stdout, "secret: %x\nseed: %x\n", secret, seed)
	return ok, err
}
