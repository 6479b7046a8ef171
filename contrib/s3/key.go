package s3snapshot

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

const (
	suffix = ".snapshot"
	// generationDigits are those of the largest generation.
	generationDigits = 20
	// maxEscaped keeps a name within what servers allow that store objects as files.
	maxEscaped = 255
)

// plain are the bytes that need no escape in an object key or in a URL, but for the
// underscore, which begins an escape. So no proxy or server takes an escape for one of its own.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-."

// escape returns the part of a key that a node's name is. It writes other bytes than plain as
// an underscore and two hexadecimal digits. So it does with a leading dot, because "." and
// ".." are no names of files.
func escape(node string) (string, error) {
	var b strings.Builder
	for i := range len(node) {
		if c := node[i]; strings.IndexByte(plain, c) >= 0 && (i > 0 || c != '.') {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	switch {
	case node == "":
		return "", fmt.Errorf("s3snapshot: the node's name is empty: give the node a name")
	case b.Len() > maxEscaped:
		return "", fmt.Errorf("s3snapshot: the node's name has %d bytes, and %d in an object's key: use at most 85 bytes", len(node), b.Len())
	}
	return b.String(), nil
}

// unescape reverses escape. It reports false for what escape does not write.
func unescape(name string) (node string, ok bool) {
	node, err := url.PathUnescape(strings.ReplaceAll(name, "_", "%"))
	if err != nil {
		return "", false
	}
	written, err := escape(node)
	return node, err == nil && written == name
}

// name returns the key of a snapshot without the prefix.
func name(escaped string, generation uint64) string {
	return fmt.Sprintf("%s/%0*d%s", escaped, generationDigits, generation, suffix)
}

// parseName reverses name. It reports false for what name does not write.
func parseName(text string) (node string, generation uint64, ok bool) {
	escaped, last, _ := strings.Cut(text, "/")
	node, ok = unescape(escaped)
	generation, err := strconv.ParseUint(strings.TrimSuffix(last, suffix), 10, 63) // so that one more fits
	return node, generation, ok && err == nil && text == name(escaped, generation)
}
