// Package queue contains the waiters for LeakyBuckets and for holds, on both sides. Queues
// has the callers that wait on this node, for each key. Contenders records the nodes that
// wait for the counts that this node answers for.
//
// The following is true for both kinds of waiters:
//
//   - Waiters on one node have their turns in order of arrival. Only the first waiter of a key asks.
//   - Nodes have their turns in order of arrival too. A node that does not ask in time does not delay other nodes.
//   - While nodes wait for a count, checks that do not wait are denied.
//   - A waiter that leaves does not delay other waiters. The next waiter on the node has the turn at once, and the
//     member that answers for the count is notified.
//   - A member that comes to answer for a count learns the waiting nodes from their next asks.
//
// The two kinds differ in their asks:
//
//   - In the queue of a LeakyBucket, the first waiter asks ahead for the units of several waiters,
//     which are then served at the rate (leaky.go). Nodes are in the order in which their first
//     waiters arrived.
//   - A waiter for a hold asks until its own hold is granted (Turn). Nodes are in the order in
//     which they first asked for the holds that now wait, so that they take turns.
package queue

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
)

// shards is the number of shards, each with a lock.
const shards = 64

// ErrFull is the error of a waiter for which the queue has no place.
var ErrFull = errors.New("weir: the queue is full")

// Config contains the parts of a node that its Queues need.
type Config struct {
	Env    *env.Env
	Checks env.Checks
}

// Queues is the set of the queues of a node. All methods are safe for concurrent use. On average
// over the waiters, the work under a lock does not grow with their number.
type Queues struct {
	cfg    Config
	shards [shards]shard
}

// shard is a part of the queues with its own lock.
type shard struct {
	mu     sync.Mutex
	queues map[key]*queue
}

// key identifies a queue: the ID, and the numbers of a LeakyBucket. The numbers are 0 for
// holds, because an ID has a single queue for holds, whatever its limit is.
type key struct{ hi, lo, numbers uint64 }

// queue contains the waiters of a key. The first waiter has the turn. The caller of each method
// must hold the lock of the shard.
type queue struct {
	shard   *shard
	key     key
	waiters list.List // has values of *waiter, in order of arrival
	*leaky            // nil if the waiters wait for holds
}

// waiter is a caller that waits for its turn.
type waiter struct {
	element *list.Element // nil once the waiter has left the queue
	first   chan struct{} // signals that the waiter has the turn; has room for one signal

	// A waiter for a hold does not use the fields below.
	units    int64        // units that the caller waits for
	arrived  int64        // monotonic time of the call
	place    bool         // the owner has room for the units
	deadline time.Time    // the deadline of the caller, or zero
	served   chan outcome // receives the outcome; has room for one
}

// New returns Queues without waiters.
func New(cfg Config) *Queues { return &Queues{cfg: cfg} }

// Turn waits until the caller is the first waiter on this node for a hold of an ID. The caller then
// asks until it has the hold, and must call the function next at the end. The error is env.ErrClosed
// or the error of ctx; the function must be called after an error as well.
func (l *Queues) Turn(ctx context.Context, id bucket.ID) (next func(), err error) {
	w := &waiter{first: make(chan struct{}, 1)}
	s := l.shard(id)
	s.mu.Lock()
	x := s.enter(key{id.Hi, id.Lo, 0}, w)
	s.mu.Unlock()
	next = func() {
		x.shard.mu.Lock()
		defer x.shard.mu.Unlock()
		x.remove(w)
		x.passTurn()
	}
	select {
	case <-w.first:
	case <-ctx.Done():
		err = ctx.Err()
	case <-l.cfg.Env.Done():
		err = env.ErrClosed
	}
	return next, err
}

func (l *Queues) shard(id bucket.ID) *shard { return &l.shards[id.Lo%shards] }

// enter adds a waiter to the queue of a key, and creates the queue if there is none. The caller must hold
// the lock of s.
func (s *shard) enter(k key, w *waiter) *queue {
	x := s.queues[k]
	if x == nil {
		if s.queues == nil {
			s.queues = make(map[key]*queue)
		}
		x = &queue{shard: s, key: k}
		s.queues[k] = x
	}
	w.element = x.waiters.PushBack(w)
	env.Signal(x.head().first)
	return x
}

// head returns the first waiter, or nil if the queue is empty.
func (x *queue) head() *waiter {
	if e := x.waiters.Front(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// remove removes a waiter from the queue.
func (x *queue) remove(w *waiter) {
	x.waiters.Remove(w.element)
	w.element = nil
}

// passTurn gives the turn to the first waiter. If there is no waiter, passTurn deletes the
// queue and returns true.
func (x *queue) passTurn() (deleted bool) {
	if w := x.head(); w != nil {
		env.Signal(w.first)
		return false
	}
	if x.shard.queues[x.key] == x {
		delete(x.shard.queues, x.key)
	}
	return true
}
