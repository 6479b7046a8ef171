package page

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// placeFor is the minimum age of a viewer that a new viewer may replace if there are too many
	// viewers. A viewer that no longer reads must be replaceable, because the buffers of the system
	// accept data for minutes, and a write fails only afterwards.
	placeFor = 10 * time.Second
	// viewFor is the maximum time until a viewer is disconnected. If the browser is still reading,
	// it connects again after a second.
	viewFor = 5 * time.Minute
)

var errFull = errors.New("page: too many viewers; try again in some seconds")

// viewer is a connection that receives events.
type viewer struct {
	since time.Time
	over  chan struct{} // closed when a new viewer replaces this viewer
}

// join adds a viewer. If there are already p.viewers viewers, the new viewer replaces the viewer that
// came first. If that viewer came less than placeFor ago, join returns errFull instead. If there are no
// other viewers, join starts the goroutines that read the source.
func (p *Page) join() (*viewer, error) {
	h := &p.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-p.closed:
		return nil, errors.New("page: the page is closed")
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
		p.every(ctx, snapshotEvery, func() { h.setEvent(ctx, 0, eventOf(eventSnapshot, p.snapshot(ctx, &now))) })
	})
	h.looking.Go(func() {
		p.every(ctx, topEvery, func() { h.setEvent(ctx, 1, eventOf(eventTop, p.top(ctx))) })
	})
	return v, nil
}

// leave removes a viewer. After the last viewer has left, the goroutines end.
func (p *Page) leave(v *viewer) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	i := slices.Index(p.hub.viewers, v)
	if i < 0 {
		return // a new viewer has replaced v
	}
	if p.hub.viewers = slices.Delete(p.hub.viewers, i, i+1); len(p.hub.viewers) == 0 {
		p.hub.end()
	}
}
