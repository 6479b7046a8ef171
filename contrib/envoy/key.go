package envoylimit

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

const (
	maxKeyBytes  = 1 << 10 // the longest key that a node accepts
	maxNameBytes = 255     // the longest name of a limit
)

// appendKey appends the key of the count of a descriptor:
// message_type=marketing|to_number=2061111111, where \, | and = within keys and values
// are written as \\, \| and \=. If the values that fit a pattern share a count, the pattern
// is written in place of the value, with each * as \*. A key that is longer than a node
// accepts is replaced by \# and its SHA-256. So two descriptors never share a count
// unintentionally, and a value may be a header of any length.
//
// The argument way contains the descriptors that matched the entries, and may be shorter
// than entries.
func appendKey(b []byte, entries []*ratelimit.RateLimitDescriptor_Entry, way []*descriptor) []byte {
	begun := len(b)
	b = slices.Grow(b, bytesOf(entries)+2*len(entries))
	for i, e := range entries {
		if i > 0 {
			b = append(b, '|')
		}
		b = append(appendEscaped(b, e.GetKey()), '=')
		if i < len(way) && way[i].shared {
			for n, part := range way[i].parts {
				if n > 0 {
					b = append(b, `\*`...)
				}
				b = appendEscaped(b, part)
			}
			continue
		}
		b = appendEscaped(b, e.GetValue())
	}
	if len(b)-begun <= maxKeyBytes {
		return b
	}
	sum := sha256.Sum256(b[begun:])
	return hex.AppendEncode(append(b[:begun], `\#`...), sum[:])
}

func appendEscaped(b []byte, text string) []byte {
	for {
		i := strings.IndexAny(text, `\|=`)
		if i < 0 {
			return append(b, text...)
		}
		b = append(append(b, text[:i]...), '\\', text[i])
		text = text[i+1:]
	}
}

// limitName returns the name of the weir.Limit for a path and a period. Another period has
// another name, and so another count. The name need not contain the values of requests,
// because the keys of its counts contain the whole descriptor.
func limitName(path, per string, sliding bool) string {
	name := path + "/" + per
	if sliding {
		name += "/sliding" // a different algorithm needs a different name
	}
	if len(name) <= maxNameBytes {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	end := hex.EncodeToString(sum[:8])
	return strings.ToValidUTF8(name[:maxNameBytes-len(end)-1], "") + "#" + end
}
