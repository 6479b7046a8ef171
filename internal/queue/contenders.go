package queue

import (
	"math"
	"slices"

	"github.com/weir-go/weir/bucket"
)

// mostContenders is the maximum length of a Contenders. Further nodes are served whenever there
// is room, in no particular order.
const mostContenders = 1 << 12

// Ticket names a contender: the queue of a node, or a hold.
type Ticket struct{ Node, Number uint64 }

// Contender is a node that waits for units of a count, or a hold that waits. Times are by the
// monotonic clock.
type Contender struct {
	Ticket  Ticket
	Units   int64 // number of units that wait; a contender with 0 units is not recorded
	Arrived int64 // position in the order of the contenders for a count: a time, or a number
	Due     int64 // time until which contenders that arrived later wait for the next ask of this contender
	Expires int64 // time at which the contender is deleted, unless it asks again before
}

// Contenders records the nodes that wait for the counts of a shard, at the member that answers for these
// counts. The caller must hold the lock of the shard. The zero Contenders is empty.
//
// Members do not copy contenders to each other, because each ask of a node records its contender anew.
type Contenders struct {
	byID map[bucket.ID][]Contender
	len  int
}

// Len returns the number of contenders.
func (c *Contenders) Len() int { return c.len }

// HasContenders reports whether a count has contenders.
func (c *Contenders) HasContenders(id bucket.ID) bool { return len(c.byID[id]) > 0 }

// Find returns the contender of a ticket, and reports whether it exists and has not expired.
func (c *Contenders) Find(id bucket.ID, t Ticket, now int64) (Contender, bool) {
	for _, o := range c.byID[id] {
		if o.Ticket == t && now < o.Expires {
			return o, true
		}
	}
	return Contender{}, false
}

// OtherUnits returns the units of all contenders for a count except self. until is the latest Due
// of the contenders whose Arrived is below the argument arrived, or 0: an ask of self is denied
// before that time, so that these contenders are served first.
func (c *Contenders) OtherUnits(id bucket.ID, self Ticket, arrived, now int64) (units, until int64) {
	for _, o := range c.byID[id] {
		if o.Ticket == self || now >= o.Expires {
			continue
		}
		units += o.Units
		if o.Arrived < arrived {
			until = max(until, o.Due)
		}
	}
	return units, until
}

// Record deletes the contender that has the ticket of self, and the expired contenders for the count. It
// then adds self, if self waits for units and there are fewer than mostContenders.
func (c *Contenders) Record(id bucket.ID, self Contender, now int64) {
	before := len(c.byID[id])
	all := slices.DeleteFunc(c.byID[id], func(o Contender) bool { return o.Ticket == self.Ticket || now >= o.Expires })
	if self.Units > 0 && c.len-before+len(all) < mostContenders {
		all = append(all, self)
	}
	c.len += len(all) - before
	if len(all) == 0 {
		delete(c.byID, id)
		return
	}
	if c.byID == nil {
		c.byID = make(map[bucket.ID][]Contender)
	}
	c.byID[id] = all
}

// Leave deletes the contender of a ticket.
func (c *Contenders) Leave(id bucket.ID, t Ticket) {
	if c.HasContenders(id) {
		c.Record(id, Contender{Ticket: t}, math.MinInt64)
	}
}

// Sweep visits at most n counts and deletes their expired contenders. The counts differ from call to call,
// because a map has no order. Sweep returns the visited counts that have no contenders left.
func (c *Contenders) Sweep(n int, now int64) (empty []bucket.ID) {
	for id := range c.byID {
		if n--; n < 0 {
			break
		}
		if c.Record(id, Contender{}, now); !c.HasContenders(id) {
			empty = append(empty, id)
		}
	}
	return empty
}
