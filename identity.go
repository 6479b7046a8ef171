package weir

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/dchest/siphash"

	"github.com/weir-go/weir/bucket"
)

// maxKeyBytes bounds a key.
const maxKeyBytes = 1 << 10

// identity turns (limit name, key) into the id that stands for it everywhere
// past the public API: SipHash-128 under a key derived from Config.Seed, so that
// who does not know the Seed cannot pick keys that share a count or an owner.
type identity struct{ k0, k1 uint64 }

// publicSeed stands in for an empty Config.Seed.
const publicSeed = "weir: no seed was configured"

func newIdentity(seed []byte) identity {
	if len(seed) == 0 {
		seed = []byte(publicSeed)
	}
	sum := sha256.Sum256(append([]byte("weir id key\x00"), seed...))
	return identity{binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])}
}

// fingerprint lets nodes compare their Seeds without showing them.
func (h identity) fingerprint() (f [16]byte) {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], h.k0)
	binary.LittleEndian.PutUint64(b[8:], h.k1)
	sum := sha256.Sum256(append([]byte("weir seed fingerprint\x00"), b[:]...))
	copy(f[:], sum[:])
	return f
}

// prefix is the part of the hashed text that is the same for all keys of a
// limit. The length comes first, so ("a_b", "c") and ("a", "b_c") differ.
func prefix(name string) []byte {
	p := binary.LittleEndian.AppendUint16(nil, uint16(len(name)))
	return append(p, name...)
}

// id is computed once for each check, on the stack.
func (h identity) id(prefix []byte, key string) bucket.ID {
	if len(prefix)+len(key) > 160 {
		return h.longID(prefix, key)
	}
	var text [160]byte
	n := copy(text[:], prefix)
	n += copy(text[n:], key)
	hi, lo := siphash.Hash128(h.k0, h.k1, text[:n])
	return bucket.ID{Hi: hi, Lo: lo}
}

func (h identity) longID(prefix []byte, key string) bucket.ID {
	var text [2 + maxNameBytes + maxKeyBytes]byte
	n := copy(text[:], prefix)
	n += copy(text[n:], key)
	hi, lo := siphash.Hash128(h.k0, h.k1, text[:n])
	return bucket.ID{Hi: hi, Lo: lo}
}
