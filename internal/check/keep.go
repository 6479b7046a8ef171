package check

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/view"
)

// keep keeps a check until authority over its count has arrived at this node, for at most half of
// the asker's wait, and then handles the check. It returns false if the check need not wait, or if
// too many goroutines run.
func (c *Checks) keep(v *view.View, r *request) bool {
	return v.Awaits(r.h, r.bytes) && c.detach(r, func(life context.Context, r *request) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(life, r.h.Wait/2)
		defer cancel()
		for v := c.Env.View(); v.Awaits(r.h, r.bytes) && ctx.Err() == nil; v = c.Env.View() {
			select {
			case <-v.Replaced:
			case <-ctx.Done():
			}
		}
		r.h.Wait -= min(time.Since(begun), r.h.Wait/2) // the asker does not count the time in which this process was late
		c.resume(r)
	})
}

// resume handles a request after a wait, in the goroutine that waited. A node that may have been frozen
// meanwhile hands the request back.
func (c *Checks) resume(r *request) {
	v, now := c.Env.View(), c.Env.Now()
	if c.Env.IsFenced(v, now) {
		r.handBack()
		return
	}
	c.handle(v, now, r)
}
