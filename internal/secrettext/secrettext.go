// Package secrettext reads secrets and a seed from text, and recognises text that was given in their
// place. No error repeats any of the text.
package secrettext

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/weir-go/weir/internal/identity"
)

// ErrInvalid is the error of a text that is not as `weir secret` prints it, or that is no file
// of a possible size.
var ErrInvalid = errors.New("secrets")

const (
	// maxFile is more than anybody writes by hand, in bytes.
	maxFile = 1 << 20
	// minText is how many hexadecimal digits the shortest secret or seed has. Bytes at random
	// that are all such digits are too rare to come up.
	minText = 2 * identity.MinSeedBytes
)

// Parse reads the lines that `weir secret` prints. The error is ErrInvalid.
func Parse(text string) (secrets [][]byte, seed []byte, err error) {
	if secrets, seed, err = parse(text); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return secrets, seed, nil
}

// Read is Parse of a file, a regular one of 1 MiB at most. The error is ErrInvalid or the file's.
func Read(file string) (secrets [][]byte, seed []byte, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, nil, fmt.Errorf("%w: %s is not a regular file, or has more than %d bytes: name a file that weir secret wrote", ErrInvalid, file, maxFile)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	if secrets, seed, err = parse(string(text)); err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrInvalid, file, err)
	}
	return secrets, seed, nil
}

func parse(text string) (secrets [][]byte, seed []byte, err error) {
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

// IsText reports whether a secret or a seed is the text that stands for it, in the
// place of its bytes.
func IsText(b []byte) bool {
	text := bytes.TrimSpace(b)
	if bytes.HasPrefix(text, []byte("secret:")) || bytes.HasPrefix(text, []byte("seed:")) {
		return true
	}
	_, err := hex.Decode(make([]byte, hex.DecodedLen(len(text))), text)
	return err == nil && len(text) >= minText
}
