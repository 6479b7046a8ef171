package envoylimit

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

const (
	maxKeyBytes  = 1 << 10 // of a key that a node takes
	maxNameBytes = 255     // of a limit's name
)

// appendKey appends what the entries of a descriptor are counted under:
// message_type=marketing|to_number=2061111111, where \, | and = within keys and values
// are written \\, \| and \=. A value that shares its count with others is written as
// their pattern, with each * as \*. What would be longer than a node takes is \# and
// its SHA-256. So no two different descriptors have one count, and a header of any
// length can be limited by.
//
// The way has what matched the entries; it may end before them.
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

// limitName is the name of the weir.Limit for a path and a period. It is a label: what
// tells counts apart is their keys, which have all of the descriptor.
func limitName(path, per string, sliding bool) string {
	name := path + "/" + per
	if sliding {
		name += "/sliding" // another algorithm needs another name
	}
	if len(name) <= maxNameBytes {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	end := hex.EncodeToString(sum[:8])
	return strings.ToValidUTF8(name[:maxNameBytes-len(end)-1], "") + "#" + end
}
