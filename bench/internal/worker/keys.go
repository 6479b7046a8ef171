package worker

import (
	"encoding/hex"
	"strings"
)

// Million is how many keys most benchmarks have.
const Million = 1_000_000

// KeyBytes is the length of every key.
const KeyBytes = 30

// AppendKey appends key number i: distinct for distinct i, and in no order.
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

// KeysThat makes n keys that are wanted. Their texts lie side by side in the
// order of the slice, so that a benchmark that goes through it pays for the
// limiter's cache misses and not for those of its own keys, which a server has
// just parsed.
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

// split returns the keys that are concatenated in all.
func split(all string) []string {
	keys := make([]string, len(all)/KeyBytes)
	for i := range keys {
		keys[i] = all[i*KeyBytes : (i+1)*KeyBytes]
	}
	return keys
}

// AnyKey wants every key.
func AnyKey(string) bool { return true }
