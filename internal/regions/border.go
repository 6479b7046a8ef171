package regions

import (
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// The bounds of the requests of another region to this node in each second, over all connections.
// The bound of requests allows exchanges of 640,000 statements, and the bound of bytes about
// 80,000. A region that competes for a thousand keys needs 3 MB.
//
// MaxResets bounds the counts to reset: a reset of a key resets two counts or more. Each member keeps
// a tombstone of each count for 30 minutes. If a node is sent resets at this rate for 30 minutes, they
// need about a third of the tombstones for which a member has room. If there were more tombstones than
// room, the members would have to forget resets of this region too early.
const (
	MaxRequests = 2000
	MaxBytes    = 16 << 20
	MaxResets   = 200
)

// SlackAbroad is the maximum by which a time from another region may be ahead of the clock of this
// node: the number of a reset, or the beginning of a FixedWindow. It is less than
// countsync.ResetSlack: the number of the next reset of this region is above all known numbers,
// and the members must accept it.
const SlackAbroad = time.Minute

// quota counts the requests of a region in the current second.
type quota struct {
	mu       sync.Mutex
	until    int64 // time at which the second ends
	requests int
	bytes    int
	resets   int
}

// admit reports whether a request with the given size and number of resets is within the bounds of
// the current second. If so, it counts the request.
func (q *quota) admit(size, resets int, now int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now >= q.until {
		q.until, q.requests, q.bytes, q.resets = now+int64(time.Second), 0, 0, 0
	}
	if q.requests == MaxRequests || q.bytes+size > MaxBytes || q.resets+resets > MaxResets {
		return false
	}
	q.requests++
	q.bytes += size
	q.resets += resets
	return true
}

// Border checks a request of another region, on the node that receives the request and on each
// member to which the request is passed. It accepts only exchanges, and resets of Global
// limits. refusal is the answer to a request above the bounds of its region, and err the error
// of a request that is not allowed. Border updates h for this node: a region can choose
// neither a member of this region nor a route, because its requests are for the node that
// receives them. Only a member can mark a request with FlagAbroad.
func (r *Regions) Border(b *cluster.Batch, h *wire.Header, request []byte, now int64) (refusal []byte, err error) {
	if b.Region == r.cfg.Env.Region {
		if h.Op == wire.OpExchange && h.Flags&wire.FlagAbroad == 0 {
			return nil, wire.ErrMalformed // because a member can only pass on the statements of other regions
		}
		if h.Flags&wire.FlagAbroad == 0 {
			return nil, nil
		}
	} else {
		link := r.links[b.Region]
		if link == nil {
			return nil, fmt.Errorf("%w: a request of region %q, which is not among Regions", wire.ErrMalformed, b.Region)
		}
		if !link.quota.admit(len(request), int(h.Asks), r.cfg.Env.Monotonic()) {
			link.refused.Add(1)
			return wire.AppendResponse(nil, wire.Unreached, 0), nil
		}
		h.Flags, h.To = wire.FlagAbroad, 0
	}
	if err := r.checkCrossing(*h, request, now); err != nil {
		if link := r.links[b.Region]; link != nil {
			link.refused.Add(1)
		}
		return nil, err
	}
	return nil, nil
}

// checkCrossing returns an error if another region may not make the request. The statements of an
// OpExchange are checked when they are parsed.
func (r *Regions) checkCrossing(h wire.Header, request []byte, now int64) error {
	switch h.Op {
	case wire.OpExchange:
		return nil
	case wire.OpReset:
		for i := range int(h.Asks) {
			a, err := wire.ParseAsk(request, i, new(bucket.Limit))
			switch {
			case err != nil:
				return err
			case !wire.IsGlobal(a.ID):
				return fmt.Errorf("%w: a reset of a Regional count from another region", wire.ErrMalformed)
			case a.Reset > uint64(now+int64(SlackAbroad)):
				return fmt.Errorf("%w: a reset from another region with a time in the future", wire.ErrMalformed)
			}
		}
		return nil
	}
	return fmt.Errorf("%w: op %d from another region", wire.ErrMalformed, h.Op)
}

// statesOnlyGlobal reports whether all statements of a region are about Global limits.
func statesOnlyGlobal(e *countsync.Exchange) bool {
	for i := range e.Statements {
		if !wire.IsGlobal(e.Statements[i].ID) {
			return false
		}
	}
	return true
}

// isEarly reports whether a statement is about a window that begins more than SlackAbroad after the
// time of day. A count does not go back to an earlier window, so a region that states a window of
// the year 2100 could make this region deny until then.
func isEarly(st *countsync.Statement, timeOfDay int64) bool {
	return st.Limit.Algorithm == bucket.FixedWindow && st.Limit.Start-int64(SlackAbroad) > timeOfDay
}

// Pardon resets the quota of a region. It is for tests, which send more requests than the
// quota allows.
func (r *Regions) Pardon(region string) {
	q := &r.links[region].quota
	q.mu.Lock()
	defer q.mu.Unlock()
	q.until = 0
}
