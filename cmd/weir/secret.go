package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/weir-go/weir/internal/identity"
)

// secretCommand prints a secret and a seed, each of 32 random bytes, for all nodes of a
// cluster. They are separate because a secret is rotated, and a seed never is.
type secretCommand struct {
	Output string `short:"o" placeholder:"FILE" help:"a new file, which only this user can read; standard output if empty"`
}

// Help describes the use of the file.
func (*secretCommand) Help() string {
	return "All nodes use the same file:\n\n  weir secret -o weir.secret\n  weir serve -shared weir.secret -bind :7946"
}

func (c *secretCommand) run(stdout, stderr io.Writer) (int, error) {
	var secret, seed [32]byte
	rand.Read(secret[:])
	rand.Read(seed[:])
	text := fmt.Appendf(nil, "secret: %x\nseed: %x\n", secret, seed)
	if c.Output != "" {
		if err := writeSecret(c.Output, text); err != nil {
			return bad, fmt.Errorf("weir secret: %w", err)
		}
		return ok, nil
	}
	if file, is := stdout.(*os.File); is {
		if info, err := file.Stat(); err == nil && identity.ReadableByOthers(info) {
			fmt.Fprintf(stderr, "weir secret: other users of this machine can read this file: use -o FILE, or chmod 600\n")
		}
	}
	_, err := stdout.Write(text)
	return ok, err
}

// writeSecret writes a new file that only its owner can read, and does not overwrite a file,
// because the loss of a seed resets all counts.
func writeSecret(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("-o: %s already exists: name a new file, because nodes with a different seed start all counts again", name)
	}
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("-o: %w", err), os.Remove(name))
	}
	return nil
}
