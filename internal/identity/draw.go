package identity

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/weir-go/weir/bucket"
)

// Incarnation returns the label with a random part that is unique for this start.
func Incarnation(label string, random io.Reader) (string, error) {
	var b [8]byte
	err := draw(random, b[:])
	return fmt.Sprintf("%s-%x", label, b), err
}

// HostLabel returns the first bytes of the name of this host, at most the given number, or "node" for a
// host without a name.
func HostLabel(most int) string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "node"
	}
	return name[:min(len(name), most)]
}

// Salt returns a new random number, which determines the places of counts in the store of a node.
func Salt(random io.Reader) (bucket.Salt, error) {
	var b [16]byte
	err := draw(random, b[:])
	return bucket.Salt{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}, err
}

func draw(random io.Reader, b []byte) error {
	if _, err := io.ReadFull(random, b); err != nil {
		return fmt.Errorf("weir: reading Config.Rand: %w", err)
	}
	return nil
}
