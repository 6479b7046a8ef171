package limits

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

// messageBytes is the size at which the next message begins. Messages are small, because a member
// compares a whole message before its next check.
const messageBytes = 8 << 10

// messages returns messages with the limits of this node, except those that Vary. Numbers are unsigned varints.
//
//	message  limits until the end
//	limit    length of name | name | version | algorithm | rate | per in ns | burst | keep | scope | partition | calendar | length of zone | zone
func (r *Registry) messages() (messages [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b []byte
	for i := range r.all {
		if l := &r.all[i].Limit; !l.Varies {
			b = l.append(b)
		}
		if len(b) >= messageBytes || i == len(r.all)-1 && len(b) > 0 {
			messages, b = append(messages, b), nil
		}
	}
	return messages
}

func (l *Limit) append(b []byte) []byte {
	b = wire.AppendText(b, l.Name)
	for _, number := range []uint64{
		l.Version, uint64(l.Algorithm), uint64(l.Rate), uint64(l.Per), uint64(l.Burst), uint64(l.Keep),
		uint64(l.Scope), uint64(l.Partition), uint64(l.Calendar),
	} {
		b = binary.AppendUvarint(b, number)
	}
	return wire.AppendText(b, l.Zone)
}

// parseLimits reads a message of another member. The limits may be of a later release,
// so that no check may use them.
func parseLimits(message []byte) (limits []Limit, err error) {
	c := wire.NewCursor(message)
	for c.Remaining() > 0 {
		limits = append(limits, Limit{
			Name: c.Text(wire.MaxNameBytes), Version: c.Number(math.MaxUint64), Algorithm: bucket.Algorithm(c.Number(math.MaxUint8)),
			Rate: int64(c.Number(math.MaxInt64)), Per: time.Duration(c.Number(math.MaxInt64)), Burst: int64(c.Number(math.MaxInt64)), Keep: int64(c.Number(math.MaxInt64)),
			Scope: uint8(c.Number(math.MaxUint8)), Partition: wire.Policy(c.Number(math.MaxUint8)), Calendar: uint8(c.Number(math.MaxUint8)),
			Zone: c.Text(wire.MaxNameBytes),
		})
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	return limits, nil
}
