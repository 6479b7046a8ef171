package weir

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/weir-go/weir/internal/wire"
)

// Members tell each other in turn which limits they have declared. What follows the
// header of a request; numbers are unsigned varints:
//
//	limits  limits until the end
//	limit   name's bytes | name | version | algorithm | rate | per in ns | burst | scope | partition | calendar | zone's bytes | zone
const (
	// declareEvery is how often a node tells the next one of those that it hears. It is
	// no part of any other time, so that in virtual time no two messages of a node
	// are of one instant.
	declareEvery = 5*time.Second - 7
	// declareBytes bounds a message, which is looked through between checks; more
	// limits take more messages.
	declareBytes = 8 << 10
)

// keepDeclared tells the other members which limits this node has, one after the
// other, until the node closes. Nobody answers: each looks for conflicts in what it
// is told.
func (n *Node) keepDeclared() {
	tick := time.NewTimer(declareEvery + n.view.Load().Offset(declareEvery))
	defer tick.Stop()
	for next := 0; ; next++ {
		select {
		case <-tick.C:
			tick.Reset(declareEvery)
		case <-n.life.Done():
			return
		}
		v := n.view.Load()
		var heard []int
		for i := range v.Members {
			if i != v.Self && v.Direct[i] {
				heard = append(heard, i)
			}
		}
		if len(heard) == 0 {
			continue
		}
		to := heard[next%len(heard)]
		for _, body := range appendLimits(n.registry.declared()) {
			v.Members[to].Peer.Tell(append(wire.Header{Op: wire.OpDeclare, To: v.Hashes[to]}.Append(nil), body...))
		}
	}
}

// appendLimits is the bodies of the messages that say these limits.
func appendLimits(limits []Limit) (bodies [][]byte) {
	var b []byte
	for i := range limits {
		if b = limits[i].append(b); len(b) >= declareBytes || i == len(limits)-1 {
			bodies, b = append(bodies, b), nil
		}
	}
	return bodies
}

func (l *Limit) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(l.Name)))
	b = append(b, l.Name...)
	for _, number := range []uint64{
		l.Version, uint64(l.Algorithm), uint64(l.Rate), uint64(l.Per), uint64(l.Burst),
		uint64(l.Scope), uint64(l.Partition), uint64(l.Calendar), uint64(len(l.Zone)),
	} {
		b = binary.AppendUvarint(b, number)
	}
	return append(b, l.Zone...)
}

// parseLimits reads what another member has declared. The limits are to be compared
// and shown, and not to be asked by: their numbers may be of another release.
func parseLimits(body []byte) (limits []Limit, err error) {
	c := cursor{body, true}
	number := func(most uint64) uint64 {
		v := c.number()
		c.ok = c.ok && v <= most
		return v
	}
	for len(c.b) > 0 {
		l := Limit{
			Name: string(c.bytes(number(wire.MaxNameBytes))), Version: c.number(), Algorithm: Algorithm(number(math.MaxUint8)),
			Rate: int64(number(math.MaxInt64)), Per: time.Duration(number(math.MaxInt64)), Burst: int64(number(math.MaxInt64)),
			Scope: Scope(number(math.MaxUint8)), Partition: PartitionPolicy(number(math.MaxUint8)), Calendar: Calendar(number(math.MaxUint8)),
			Zone: string(c.bytes(number(wire.MaxNameBytes))),
		}
		if !c.ok {
			return nil, wire.ErrMalformed
		}
		limits = append(limits, l)
	}
	return limits, nil
}
