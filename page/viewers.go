package page

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// placeFor is how long a viewer keeps its place while another one wants it. What a
	// viewer does not read stays in buffers of the system for minutes, so that a write
	// finds out late that nobody reads.
	placeFor = 10 * time.Second
	// viewFor is after how long a viewer is let go at the latest. A browser that reads
	// comes back a second later.
	viewFor = 5 * time.Minute
)

var errFull = errors.New("page: too many viewers; try again in some seconds")

// viewer is one that is sent events.
type viewer struct {
	since time.Time
	over  chan struct{} // closed when another viewer has its place
}

// join takes in a viewer, in the place of the one that came first if there are as many as
// may be. The first has the source looked at.
func (p *Page) join() (*viewer, error) {
	h := &p.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-p.closed:
		return nil, errors.New("page: it is closed")
	default:
	}
	v := &viewer{time.Now(), make(chan struct{})}
	if len(h.viewers) >= p.viewers {
		first := h.viewers[0]
		if v.since.Sub(first.since) < placeFor {
			return nil, errFull
		}
		close(first.over)
		h.viewers = append(slices.Delete(h.viewers, 0, 1), v)
		return v, nil
	}
	h.viewers = append(h.viewers, v)
	if len(h.viewers) > 1 {
		return v, nil
	}
	ctx, end := context.WithCancel(context.Background())
	h.end, h.changed, h.latest, h.serial = end, make(chan struct{}), [2][]byte{}, [2]uint64{}
	var now rates
	h.looking.Go(func() {
		p.every(ctx, snapshotEvery, func() { h.tell(ctx, 0, eventOf(eventSnapshot, p.snapshot(ctx, &now))) })
	})
	h.looking.Go(func() {
		p.every(ctx, topEvery, func() { h.tell(ctx, 1, eventOf(eventTop, p.top(ctx))) })
	})
	return v, nil
}

// leave lets a viewer go. After the last the source is left alone.
func (p *Page) leave(v *viewer) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	i := slices.Index(p.hub.viewers, v)
	if i < 0 {
		return // another one has its place
	}
	if p.hub.viewers = slices.Delete(p.hub.viewers, i, i+1); len(p.hub.viewers) == 0 {
		p.hub.end()
	}
}
