package main

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// readSeed reads the line "seed: ..." of a file that weir secret has printed; none
// without a file.
func readSeed(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	text, err := readFile(name)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "seed: "); found {
			seed, err := hex.DecodeString(value)
			if err != nil {
				return nil, fmt.Errorf("gateway: the seed in %s is not in hex: write the line that weir secret prints", name)
			}
			return seed, nil
		}
	}
	return nil, fmt.Errorf("gateway: %s has no line that begins with seed: write the one that weir secret prints", name)
}
