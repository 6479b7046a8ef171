package worker

import (
	"encoding/hex"
	"strings"
)

// Million is the number of keys of most benchmarks.
const Million = 1_000_000

// KeyBytes is the length of every key.
const KeyBytes = 30

// AppendKey appends the text of key number i. Texts are distinct and unordered.
func AppendKey(b []byte, i int) []byte {
	// The finalizer of MurmurHash3: a bijection of 64 bits.
	x := uint64(i)
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	b = append(b, "client/tenant/"...)
	return hex.AppendEncode(b, []byte{
		byte(x >> 56), byte(x >> 48), byte(x >> 40), byte(x >> 32), byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x),
	})
}

// KeysThat returns n wanted keys. Their texts are adjacent in the order of the slice. So
// a benchmark that iterates over the slice has the cache misses of the limiter, and not
// those of its own keys, which a server has just parsed.
func KeysThat(n int, wanted func(key string) bool) []string {
	var text strings.Builder
	text.Grow(n * KeyBytes)
	var b [KeyBytes]byte
	for i := 0; text.Len() < n*KeyBytes; i++ {
		if key := AppendKey(b[:0], i); wanted(string(key)) {
			text.Write(key)
		}
	}
	return split(text.String())
}

// split returns the keys that are concatenated in a text.
func split(all string) []string {
	keys := make([]string, len(all)/KeyBytes)
	for i := range keys {
		keys[i] = all[i*KeyBytes : (i+1)*KeyBytes]
	}
	return keys
}

func AnyKey(string) bool { return true }
