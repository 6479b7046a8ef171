package s3snapshot

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

const (
	suffix = ".snapshot"
	// generationDigits is the number of digits of a generation in a key. It suffices for every
	// uint64.
	generationDigits = 20
	// maxEscaped bounds a name for servers that store objects as files.
	maxEscaped = 255
)

// plain contains the bytes that need no escape in an object key or in a URL, without the
// underscore. The underscore begins an escape of this package, so that proxies and servers, which
// decode %, never decode such an escape.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-."

// escape returns the part of a key that represents the name of a node. Bytes that are not
// in plain are written as an underscore and two hexadecimal digits. A leading dot is
// escaped, too, because "." and ".." are not valid file names.
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

// unescape reverses escape. ok is false if escape cannot have written name.
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

// parseName reverses name. ok is false if name cannot have written text.
func parseName(text string) (node string, generation uint64, ok bool) {
	escaped, last, _ := strings.Cut(text, "/")
	node, ok = unescape(escaped)
	generation, err := strconv.ParseUint(strings.TrimSuffix(last, suffix), 10, 63) // 63 bits, so that the next generation fits
	return node, generation, ok && err == nil && text == name(escaped, generation)
}
