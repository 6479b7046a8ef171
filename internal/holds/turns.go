package holds

import (
	"container/list"
	"context"
	"sync"

	"github.com/weir-go/weir/bucket"
)

// turns has the callers of this node that wait for holds of one count take turns.
type turns struct {
	mu sync.Mutex
	of map[bucket.ID]*list.List // of chan struct{}, in order of arrival; the first has the turn
}

// Turn waits until it is the caller's turn to ask for a hold that it waits for. The caller
// ends its turn by next, which is never nil. The error is ctx's, or context.Canceled as the
// node's life ends.
func (h *Holds) Turn(ctx context.Context, id bucket.ID) (next func(), err error) {
	turn := make(chan struct{})
	place := h.turns.enter(id, turn)
	next = func() { h.turns.leave(id, place) }
	select {
	case <-turn:
		return next, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-h.cfg.Life.Done():
		err = context.Canceled
	}
	return next, err
}

func (t *turns) enter(id bucket.ID, turn chan struct{}) *list.Element {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = make(map[bucket.ID]*list.List)
	}
	line := t.of[id]
	if line == nil {
		line = list.New()
		t.of[id] = line
		close(turn)
	}
	return line.PushBack(turn)
}

// leave takes a caller out, and gives its turn to the next if it had it.
func (t *turns) leave(id bucket.ID, place *list.Element) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.of[id]
	had := line.Front() == place
	line.Remove(place)
	switch {
	case line.Len() == 0:
		delete(t.of, id)
	case had:
		close(line.Front().Value.(chan struct{}))
	}
}
