package main

import (
	"encoding/hex"
	"strings"
)

const million = 1_000_000

// keyBytes is the length of every key.
const keyBytes = 30

// appendKey appends key number i: distinct for distinct i, and in no order.
func appendKey(b []byte, i int) []byte {
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

// keysThat makes n keys that are wanted. Their texts lie side by side in the
// order of the slice, so that a benchmark that goes through it pays for the
// limiter's cache misses and not for those of its own keys, which a server has
// just parsed.
func keysThat(n int, wanted func(key string) bool) []string {
	var text strings.Builder
	text.Grow(n * keyBytes)
	var b [keyBytes]byte
	for i := 0; text.Len() < n*keyBytes; i++ {
		if key := appendKey(b[:0], i); wanted(string(key)) {
			text.Write(key)
		}
	}
	return textsOf(text.String())
}

// textsOf is the keys whose texts lie side by side in all.
func textsOf(all string) []string {
	keys := make([]string, len(all)/keyBytes)
	for i := range keys {
		keys[i] = all[i*keyBytes : (i+1)*keyBytes]
	}
	return keys
}

// drawn makes n of the keys, each by a draw of its index, with their texts side by
// side in the order of the draws.
func drawn(keys []string, n int, draw func() int) []string {
	var text strings.Builder
	text.Grow(n * keyBytes)
	for range n {
		text.WriteString(keys[draw()])
	}
	return textsOf(text.String())
}

func anyKey(string) bool { return true }
