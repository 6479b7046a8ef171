package bucket

import "math/bits"

// Salt is a random number, which should differ between stores. Two stores with the same Salt and
// the same history are equal, so a simulation derives the Salt from its seed.
type Salt [2]uint64

// placement maps an ID to its place, a number of 64 bits. The lowest bits select the shard,
// and the highest bits select the slot at which probes start.
//
// A place depends on the Salt of the store. IDs are the same on all nodes, and if the seed of
// their hash is public, anyone can search for keys whose IDs share as many bits as desired.
// The bound on the probes of a check requires that places are spread evenly, whatever the IDs
// are. The bound does not hold if the Salt becomes known.
type placement struct {
	salt Salt
	mask uint64 // selects the bits of a place that are the number of the shard
}

func newPlacement(shards int, salt Salt) placement {
	// The constants are digits of pi. They are needed for a Salt that a test has chosen, like
	// zero: without them, the product has no high bits if the IDs are small numbers, or if
	// one half of an ID is zero.
	salt[0] ^= 0x243f6a8885a308d3
	salt[1] ^= 0x13198a2e03707344
	return placement{salt: salt, mask: uint64(shards - 1)}
}

// place returns the place of id: the folded product of its halves under the Salt, as in wyhash.
// The cost is a single multiplication, which is negligible in a check.
func (p *placement) place(id ID) uint64 {
	hi, lo := bits.Mul64(id.Hi^p.salt[0], id.Lo^p.salt[1])
	return hi ^ lo
}

// shardNumber returns the number of the shard of a place.
func (p *placement) shardNumber(place uint64) uint64 { return place & p.mask }
