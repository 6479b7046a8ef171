package weir

import (
	"errors"
	"fmt"

	"github.com/weir-go/weir/internal/identity"
)

// ParseSecrets reads Config.Secrets and Config.Seed from a text in the format of `weir secret`: "secret: "
// or "seed: " and hexadecimal digits, each on a line. A line may have several of them, separated by
// semicolons or commas, as in an environment variable. A node uses the first secret, and accepts all. The
// text must have a secret or a seed, and at most one seed. Without a secret in the text, secrets is nil;
// without a seed, seed is nil. Empty lines and lines that begin with # are skipped.
//
// The error is ErrInvalid for any other text, and does not repeat any part of it.
func ParseSecrets(text string) (secrets [][]byte, seed []byte, err error) {
	secrets, seed, err = identity.ParseSecrets(text)
	return secrets, seed, secretsError(err)
}

// ReadSecrets is like ParseSecrets, but reads a regular file of at most 1 MiB. An error of reading
// the file is not ErrInvalid.
func ReadSecrets(file string) (secrets [][]byte, seed []byte, err error) {
	secrets, seed, err = identity.ReadSecrets(file)
	return secrets, seed, secretsError(err)
}

func secretsError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, identity.ErrInvalidSecrets):
		return fmt.Errorf("%w %w", ErrInvalid, err)
	}
	return fmt.Errorf("weir: %w", err)
}
