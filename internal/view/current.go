package view

import "sync/atomic"

// Current is the present view of a node, and the last time at which another member answered.
// Its methods are safe for concurrent use. Only package handover calls Store.
type Current struct {
	view     atomic.Pointer[View]
	answered atomic.Int64
}

// View returns the present view, which a check loads once.
func (c *Current) View() *View { return c.view.Load() }

// Store replaces the present view.
func (c *Current) Store(v *View) { c.view.Store(v) }

// Hear records that another member has answered at the monotonic time now.
func (c *Current) Hear(now int64) { c.answered.Store(now) }

// IsFenced reports whether the ring has several members, and no other member has answered for
// HoldDown. The argument now must be a time of the monotonic clock that the check itself has read.
// A fenced node may have been frozen, and another member may have decided instead. Until a member
// answers, a fenced node has no authority.
func (c *Current) IsFenced(v *View, now int64) bool {
	return len(v.Points) > 1 && now-c.answered.Load() > int64(HoldDown)
}
