package weir

import (
	"errors"
	"fmt"

	"github.com/weir-go/weir/internal/identity"
)

// ParseSecrets reads Config.Secrets and Config.Seed from a text as `weir secret` prints it:
// "secret: " or "seed: " and hexadecimal digits, one a line. Several may be on one line,
// separated by semicolons or commas, as in an environment variable. The first secret is used
// and all are accepted. What is not in the text is nil; of secrets and seed one is there.
// Empty lines and those that begin with # are skipped.
//
// The error is ErrInvalid for any other text, and repeats none of it.
func ParseSecrets(text string) (secrets [][]byte, seed []byte, err error) {
	secrets, seed, err = identity.ParseSecrets(text)
	return secrets, seed, secretsError(err)
}

// ReadSecrets is ParseSecrets of a file, a regular one of 1 MiB at most.
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
