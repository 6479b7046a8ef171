package main

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// readSecrets reads the lines "secret: ..." of a file as weir secret prints them: the
// first is used, all are accepted, so that they can be rotated. None without a file.
func readSecrets(name string) (secrets [][]byte, err error) {
	if name == "" {
		return nil, nil
	}
	text, err := readFile(name)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "secret: "); found {
			secret, err := hex.DecodeString(value)
			if err != nil {
				return nil, fmt.Errorf("gateway: a secret in %s is not in hex: write the lines that weir secret prints", name)
			}
			secrets = append(secrets, secret)
		}
	}
	if len(secrets) == 0 {
		return nil, fmt.Errorf("gateway: %s has no line that begins with secret: write one that weir secret prints", name)
	}
	return secrets, nil
}
