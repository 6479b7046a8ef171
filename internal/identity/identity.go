// Package identity computes the ids that represent keys everywhere behind the public API,
// and reads the secrets and the seed of a cluster from text. Each check computes an id,
// without an allocation.
package identity

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/dchest/siphash"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

// Identity hashes a limit name and a key to an id, which represents them everywhere
// behind the public API. The hash is SipHash-128 under a key derived from Config.Seed, so
// a client that does not know the Seed cannot choose keys that share a count or an owner.
type Identity struct{ k0, k1 uint64 }

// publicSeed is used for an empty Config.Seed.
const publicSeed = "weir: no seed was configured"

// MinSeedBytes is the key size of the hash. A shorter Seed can be guessed.
const MinSeedBytes = 16

// New returns the Identity of a Config.Seed, which may be empty.
func New(seed []byte) Identity {
	if len(seed) == 0 {
		seed = []byte(publicSeed)
	}
	sum := sha256.Sum256(append([]byte("weir id key\x00"), seed...))
	return Identity{binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])}
}

// Fingerprint returns a hash of the Seed, which lets nodes compare their Seeds without showing them.
func (h Identity) Fingerprint() (f [16]byte) {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], h.k0)
	binary.LittleEndian.PutUint64(b[8:], h.k1)
	sum := sha256.Sum256(append([]byte("weir seed fingerprint\x00"), b[:]...))
	copy(f[:], sum[:])
	return f
}

// RegionFingerprint returns the Fingerprint for the nodes of one region. Ids do not depend on the
// region, so counts have the same ids in each region. Without a region the result is the
// Fingerprint itself.
func (h Identity) RegionFingerprint(region string) (f [16]byte) {
	f = h.Fingerprint()
	if region == "" {
		return f
	}
	sum := sha256.Sum256(append(f[:], "weir region\x00"+region...))
	copy(f[:], sum[:])
	return f
}

// Prefix returns the part of the hashed text that is the same for all keys of a limit. The text
// is the length of the name and the name, so that ("a_b", "c") and ("a", "b_c") differ, padded
// with zeros to a multiple of 8 bytes.
func Prefix(name string) []byte {
	p := binary.LittleEndian.AppendUint16(nil, uint16(len(name)))
	p = append(p, name...)
	return append(p, make([]byte, -len(p)&7)...)
}

// ID returns the id of a key of a Regional limit, whose name has this Prefix. For a Global
// limit, the caller sets wire.GlobalIDBit. Each check computes the id once, on the stack.
func (h Identity) ID(prefix []byte, key string) bucket.ID {
	if len(prefix)+len(key) <= 64 {
		var text [64]byte
		return h.hash(text[:], prefix, key)
	}
	var text [(2+wire.MaxNameBytes+7)&^7 + wire.MaxKeyBytes]byte
	return h.hash(text[:], prefix, key)
}

// hash writes the text in the same machine words in which siphash reads it. If two stores wrote a
// word, its read would wait until both are complete.
func (h Identity) hash(text, prefix []byte, key string) bucket.ID {
	n := 0
	for ; n < len(prefix); n += 8 {
		binary.LittleEndian.PutUint64(text[n:], binary.LittleEndian.Uint64(prefix[n:]))
	}
	size := n + len(key)
	for ; len(key) >= 8; n += 8 {
		word := uint64(key[0]) | uint64(key[1])<<8 | uint64(key[2])<<16 | uint64(key[3])<<24 |
			uint64(key[4])<<32 | uint64(key[5])<<40 | uint64(key[6])<<48 | uint64(key[7])<<56
		binary.LittleEndian.PutUint64(text[n:], word)
		key = key[8:]
	}
	for i := range len(key) {
		text[n+i] = key[i]
	}
	hi, lo := siphash.Hash128(h.k0, h.k1, text[:size])
	return bucket.ID{Hi: hi &^ wire.GlobalIDBit, Lo: lo}
}

// Bytes returns the encoding of the id for callers and metrics.
func Bytes(id bucket.ID) (b [16]byte) {
	binary.BigEndian.PutUint64(b[:8], id.Hi)
	binary.BigEndian.PutUint64(b[8:], id.Lo)
	return b
}

// FromBytes returns the ID that Bytes has encoded.
func FromBytes(b [16]byte) bucket.ID {
	return bucket.ID{Hi: binary.BigEndian.Uint64(b[:8]), Lo: binary.BigEndian.Uint64(b[8:])}
}
