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

// What another region may ask of this node each second, over all of its connections
// together: in exchanges, 640,000 statements by their number, and some 80,000 by
// their size. A region whose thousand keys are all fought over needs 3 MB.
//
// A reset of a key is of two counts, and every member remembers each for 30 minutes: at
// this rate, for all that time, one node takes in about a third of what its members
// have places for, beyond which resets of their own are forgotten before their time.
const (
	MaxRequests = 2000
	MaxBytes    = 16 << 20
	MaxResets   = 200
)

// SlackAbroad is how far a time that another region names may be ahead of this node's
// clock: the number of a reset, and when a calendar's window begins. It is below
// countsync.ResetSlack: a reset made here has a number above every one that is known
// here, and the members have to take that.
const SlackAbroad = time.Minute

// quota is what another region has asked for in this second.
type quota struct {
	mu       sync.Mutex
	until    int64 // when the second ends
	requests int
	bytes    int
	resets   int
}

// take counts a request of so many bytes and resets, and reports whether it is within
// what a second allows. One that is not does not count.
func (q *quota) take(size, resets int, now int64) bool {
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

// Border is what a request of another region has to pass, as it comes from there and
// again on each member that it is handed to: the ops that cross, of Global limits
// alone. It returns what to answer if the request does not pass, and h as this node
// has it then. A region names no member here, and no way: its requests are for the
// node that they reach. Only members say of a request that it is from abroad.
func (r *Regions) Border(b *cluster.Batch, h *wire.Header, request []byte, now int64) (refusal []byte, err error) {
	if b.Region == r.cfg.Env.Region {
		if h.Op == wire.OpExchange && h.Flags&wire.FlagAbroad == 0 {
			return nil, wire.ErrMalformed // members have nothing to exchange with each other
		}
		if h.Flags&wire.FlagAbroad == 0 {
			return nil, nil
		}
	} else {
		link := r.links[b.Region]
		if link == nil {
			return nil, fmt.Errorf("%w: a request of region %q, which is none of Regions", wire.ErrMalformed, b.Region)
		}
		if !link.quota.take(len(request), int(h.Asks), r.cfg.Env.Monotonic()) {
			link.refused.Add(1)
			return wire.AppendResponse(nil, wire.Unreached, 0), nil
		}
		h.Flags, h.To = wire.FlagAbroad, 0
	}
	if err := r.crosses(*h, request, now); err != nil {
		if link := r.links[b.Region]; link != nil {
			link.refused.Add(1)
		}
		return nil, err
	}
	return nil, nil
}

// crosses returns why a request that began in another region is not for that region
// to make. What OpExchange states is looked at when it is parsed.
func (r *Regions) crosses(h wire.Header, request []byte, now int64) error {
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
				return fmt.Errorf("%w: a reset from another region, made later than now", wire.ErrMalformed)
			}
		}
		return nil
	}
	return fmt.Errorf("%w: op %d from another region", wire.ErrMalformed, h.Op)
}

// states reports whether all that a region states is of Global limits.
func states(e *countsync.Exchange) bool {
	for i := range e.Statements {
		if !wire.IsGlobal(e.Statements[i].ID) {
			return false
		}
	}
	return true
}

// early reports whether a statement is of a window that is yet to begin. A count keeps
// the latest window that it is told of: by one of the year 2100 a region would have
// this one deny until then.
func early(st *countsync.Statement, timeOfDay int64) bool {
	return st.Limit.Algorithm == bucket.FixedWindow && st.Limit.Start-int64(SlackAbroad) > timeOfDay
}

// Pardon forgets what a region has asked for in this second. It is for tests, which ask
// faster than a region may.
func (r *Regions) Pardon(region string) {
	q := &r.links[region].quota
	q.mu.Lock()
	defer q.mu.Unlock()
	q.until = 0
}
