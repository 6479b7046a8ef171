package bucket

import "math/bits"

// Salt is a random number that a store alone has. Two stores of one Salt, and of one
// history, are equal: a simulation draws it from its seed.
type Salt [2]uint64

// places says where in a store an id has its place. That depends on the store's Salt:
// ids are the same on all nodes, and under a public Seed anybody can search for keys
// whose ids agree in as many bits as they like. What they find is spread like any
// other ids, and costs a check what others do.
//
// The last bits of a place choose the shard, and the first ones the slot that probes
// start at.
type places struct {
	salt Salt
	mask uint64 // of a place, to its shard
}

func newPlaces(shards int, salt Salt) places {
	// The constants, digits of pi, are for a Salt that a test has chosen, like zero: of
	// ids that are small numbers, or zero in one half, the product has no high bits.
	salt[0] ^= 0x243f6a8885a308d3
	salt[1] ^= 0x13198a2e03707344
	return places{salt: salt, mask: uint64(shards - 1)}
}

// of is the place of id: the folded product of its halves under the salt, as in
// wyhash. It takes one multiplication, which a check does not notice.
func (p *places) of(id ID) uint64 {
	hi, lo := bits.Mul64(id.Hi^p.salt[0], id.Lo^p.salt[1])
	return hi ^ lo
}

// shard is the number of the shard of what has this place.
func (p *places) shard(place uint64) uint64 { return place & p.mask }
