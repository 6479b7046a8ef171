package wire

import (
	"math"
	"math/bits"
	"time"

	"github.com/weir-go/weir/bucket"
)

const (
	// QueueAhead is how long before its turn a unit of a queue is granted: long enough for
	// the answer and a late timer, and short, as what is granted then is served by the node
	// that asked, and by no other.
	QueueAhead = 10 * time.Millisecond
	// LineAsks is within what time a line asks again in which something waits.
	LineAsks = time.Second
	// ageTick is what a Queued counts its Age in.
	ageTick = 1 << 14 * time.Nanosecond
)

// Queued is what a line says of itself, in the receipt of its ask (OpWait): a line is the
// waiters of one key on one node.
type Queued struct {
	Waiting uint32        // units, those included that are asked for
	Age     time.Duration // for how long its first waiter has waited
}

// Pack returns the receipt that stands for q.
func (q Queued) Pack() bucket.Receipt {
	age := min(uint64(max(0, q.Age)/ageTick), math.MaxUint32)
	return bucket.Receipt(uint64(q.Waiting)<<32 | age)
}

// UnpackQueued returns what a receipt of OpWait stands for.
func UnpackQueued(r bucket.Receipt) Queued {
	return Queued{uint32(uint64(r) >> 32), time.Duration(uint64(r)&math.MaxUint32) * ageTick}
}

// ServiceOf returns how long a queue takes to serve units, rounded down.
func ServiceOf(rate int64, per time.Duration, units int64) time.Duration {
	hi, lo := bits.Mul64(uint64(units), uint64(per))
	if rate <= 0 || hi >= uint64(rate) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(rate))
	return time.Duration(min(q, math.MaxInt64))
}
