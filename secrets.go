package weir

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/sealed"
)

// maxSecretsFile is more than anybody writes by hand, in bytes.
const maxSecretsFile = 1 << 20

// ParseSecrets reads Config.Secrets and Config.Seed from a text as `weir secret` prints it:
// "secret: " or "seed: " and hexadecimal digits, one a line. Several may be on one line,
// separated by semicolons or commas, as in an environment variable. The first secret is used
// and all are accepted. What is not in the text is nil; of secrets and seed one is there.
// Empty lines and those that begin with # are skipped.
//
// The error is ErrInvalid for any other text, and repeats none of it.
func ParseSecrets(text string) (secrets [][]byte, seed []byte, err error) {
	wrong := func(line int, format string, args ...any) ([][]byte, []byte, error) {
		return nil, nil, fmt.Errorf("%w secrets: line %d "+format+": write the lines that weir secret prints", append([]any{ErrInvalid, line}, args...)...)
	}
	number := 0
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
				return wrong(number, `begins with neither "secret: " nor "seed: "`)
			}
			value, err := hex.DecodeString(strings.TrimSpace(digits))
			switch {
			case err != nil || len(value) == 0:
				return wrong(number, "has a %s that is not in hexadecimal digits", name)
			case name == "secret":
				secrets = append(secrets, value)
			case seed != nil:
				return wrong(number, "has a second seed")
			default:
				seed = value
			}
		}
	}
	if secrets == nil && seed == nil {
		return wrong(1, "has no secret and no seed")
	}
	return secrets, seed, nil
}

// box returns what seals the texts that clients carry from node to node.
func (c *Config) box() *sealed.Box {
	if len(c.Secrets) == 0 && len(c.Seed) > 0 {
		return sealed.New([][]byte{c.Seed})
	}
	return sealed.New(c.Secrets)
}

// ReadSecrets is ParseSecrets of a file, a regular one of 1 MiB at most.
func ReadSecrets(file string) (secrets [][]byte, seed []byte, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, fmt.Errorf("weir: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecretsFile {
		return nil, nil, fmt.Errorf("%w secrets: %s is not a regular file, or has more than %d bytes: name a file that weir secret wrote", ErrInvalid, file, maxSecretsFile)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("weir: %w", err)
	}
	if secrets, seed, err = ParseSecrets(string(text)); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return secrets, seed, nil
}

// minSecretText is how many hexadecimal digits the shortest secret or seed has. Bytes at
// random that are all such digits are too rare to come up.
const minSecretText = 2 * identity.MinSeedBytes

// isSecretText reports whether a secret or a seed is the text that stands for it, in the
// place of its bytes.
func isSecretText(b []byte) bool {
	text := bytes.TrimSpace(b)
	if bytes.HasPrefix(text, []byte("secret:")) || bytes.HasPrefix(text, []byte("seed:")) {
		return true
	}
	_, err := hex.Decode(make([]byte, hex.DecodedLen(len(text))), text)
	return err == nil && len(text) >= minSecretText
}

// checkSecrets is Validate of Secrets, RegionSecrets and Seed that are given as text: weir
// serve reads the same text as other bytes, so that its nodes would have another Seed.
func (c *Config) checkSecrets(wrong func(format string, args ...any)) {
	const remedy = "is hexadecimal text: give the bytes that it stands for, as ParseSecrets and ReadSecrets return them"
	for i, secret := range c.Secrets {
		if isSecretText(secret) {
			wrong("Secrets[%d] "+remedy, i)
		}
	}
	for region, secrets := range c.RegionSecrets {
		for i, secret := range secrets {
			if isSecretText(secret) {
				wrong("RegionSecrets[%q][%d] "+remedy, region, i)
			}
		}
	}
	if isSecretText(c.Seed) {
		wrong("Seed " + remedy)
	}
}
