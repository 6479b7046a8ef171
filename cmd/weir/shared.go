package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/weir-go/weir"
)

// maxShared is more than anybody writes by hand.
const maxShared = 1 << 20

// readShared reads what all replicas share, as weir secret prints it: lines that begin
// with "secret: ", of which the first is used and all are accepted, and one with
// "seed: ". Nothing without a file.
func readShared(name string, cfg *weir.Config) error {
	if name == "" {
		return nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxShared {
		return fmt.Errorf("weir: %s is no regular file, or has more than %d bytes: give the name of another", name, maxShared)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		what, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if what != "secret" && what != "seed" {
			continue
		}
		b, err := hex.DecodeString(value)
		if err != nil {
			return fmt.Errorf("weir: a %s in %s is not in hex: write the lines that weir secret prints", what, name)
		}
		if what == "seed" {
			cfg.Seed = b
			continue
		}
		cfg.Secrets = append(cfg.Secrets, b)
	}
	if len(cfg.Secrets) == 0 {
		return fmt.Errorf("weir: %s has no line that begins with secret: write one that weir secret prints", name)
	}
	return nil
}
