package identity

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrInvalidSecrets is the error of a text that does not have the form that `weir secret`
// prints, and of a file that is too large or not a regular file. No error contains a part of
// the text.
var ErrInvalidSecrets = errors.New("secrets")

const (
	// maxFile bounds a file of secrets, in bytes. A file that was written by hand is
	// never as large.
	maxFile = 1 << 20
	// minText is the number of hexadecimal digits of the shortest secret or seed. In
	// practice, that many random bytes are never all hexadecimal digits.
	minText = 2 * MinSeedBytes
)

// ParseSecrets reads the lines that `weir secret` prints. The error wraps ErrInvalidSecrets.
func ParseSecrets(text string) (secrets [][]byte, seed []byte, err error) {
	if secrets, seed, err = parseSecrets(text); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInvalidSecrets, err)
	}
	return secrets, seed, nil
}

// ReadSecrets is like ParseSecrets, for a regular file of at most 1 MiB. The error wraps
// ErrInvalidSecrets, or is that of the file system.
func ReadSecrets(file string) (secrets [][]byte, seed []byte, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, nil, fmt.Errorf("%w: %s is not a regular file, or has more than %d bytes: name a file that weir secret wrote", ErrInvalidSecrets, file, maxFile)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	if secrets, seed, err = parseSecrets(string(text)); err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrInvalidSecrets, file, err)
	}
	return secrets, seed, nil
}

func parseSecrets(text string) (secrets [][]byte, seed []byte, err error) {
	number := 0
	wrong := func(format string, args ...any) ([][]byte, []byte, error) {
		return nil, nil, fmt.Errorf("line %d "+format+": write the lines that weir secret prints", append([]any{number}, args...)...)
	}
	for line := range strings.Lines(text) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for item := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ';' || r == ',' }) {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			name, digits, _ := strings.Cut(item, ":")
			if name != "secret" && name != "seed" {
				return wrong(`begins with neither "secret: " nor "seed: "`)
			}
			value, err := hex.DecodeString(strings.TrimSpace(digits))
			switch {
			case err != nil || len(value) == 0:
				return wrong("has a %s that is not in hexadecimal digits", name)
			case name == "secret":
				secrets = append(secrets, value)
			case seed != nil:
				return wrong("has a second seed")
			default:
				seed = value
			}
		}
	}
	if secrets == nil && seed == nil {
		number = 1
		return wrong("has no secret and no seed")
	}
	return secrets, seed, nil
}

// IsSecretText reports whether b is the text that `weir secret` prints for a secret or a
// seed, as opposed to the bytes of a secret or a seed.
func IsSecretText(b []byte) bool {
	text := bytes.TrimSpace(b)
	if bytes.HasPrefix(text, []byte("secret:")) || bytes.HasPrefix(text, []byte("seed:")) {
		return true
	}
	_, err := hex.Decode(make([]byte, hex.DecodedLen(len(text))), text)
	return err == nil && len(text) >= minText
}
