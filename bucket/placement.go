package bucket

import "math/bits"

// Salt is a random number that a store alone has. Two stores of one Salt, and of one
// history, are equal: a simulation draws it from its seed.
type Salt [2]uint64

// placement maps an id to its place: 64 bits, of which the last choose the shard and the
// first the slot that probes start at.
//
// A place depends on the store's Salt. Ids are the same on all nodes, and under a public
// Seed anybody can search for keys whose ids agree in as many bits as they like. The bound
// on the probes of a check rests on places that are spread whatever ids come; a salt that
// somebody else learns breaks it.
type placement struct {
	salt Salt
	mask uint64 // of a place, to its shard
}

func newPlacement(shards int, salt Salt) placement {
	// The constants, digits of pi, are for a Salt that a test has chosen, like zero: of
	// ids that are small numbers, or zero in one half, the product has no high bits.
	salt[0] ^= 0x243f6a8885a308d3
	salt[1] ^= 0x13198a2e03707344
	return placement{salt: salt, mask: uint64(shards - 1)}
}

// of is the place of id: the folded product of its halves under the salt, as in
// wyhash. It takes one multiplication, which a check does not notice.
func (p *placement) of(id ID) uint64 {
	hi, lo := bits.Mul64(id.Hi^p.salt[0], id.Lo^p.salt[1])
	return hi ^ lo
}

// shard is the number of the shard of what has this place.
func (p *placement) shard(place uint64) uint64 { return place & p.mask }
