package wire

import (
	"math"
	"math/bits"
	"time"
)

const (
	// QueueAhead is how long before its turn a unit of a queue is granted. This time is long enough
	// for the answer and a late timer. The time is short, because the owner spends a unit when it grants the
	// unit: then only the node that asked can use the unit, and the unit may be lost if its waiters leave.
	QueueAhead = 10 * time.Millisecond
	// MaxAskPause is the maximum time between two asks of a node with waiters.
	MaxAskPause = time.Second
	// ageTick is the unit of Wait.Age on the wire.
	ageTick = 1 << 14 * time.Nanosecond
)

// ticksOf returns a duration in ticks, rounded down, and at most math.MaxUint32.
func ticksOf(d time.Duration) uint32 { return uint32(min(max(0, d)/ageTick, math.MaxUint32)) }

// ServiceOf returns how long a queue takes to serve units, rounded down.
func ServiceOf(rate int64, per time.Duration, units int64) time.Duration {
	hi, lo := bits.Mul64(uint64(units), uint64(per))
	if rate <= 0 || hi >= uint64(rate) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(rate))
	return time.Duration(min(q, math.MaxInt64))
}
