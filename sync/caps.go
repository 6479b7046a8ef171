package countsync

import "cmp"

// Caps are the bounds of what a Stream has waiting and what a frame or a message
// carries. What is zero is the default. Where a cap is met, what is to be sent comes
// later, or once more; nothing is lost. Bounds that forget are not among them.
//
// The defaults are of clusters with millions of counts, so that a test of a few would
// never meet them: it lowers them.
type Caps struct {
	// Frame is the bytes of a frame, at most, unless one item alone has more. Next is
	// told another bound, and keeps to the lower one. 64 KiB if zero.
	Frame int
	// Fold is how many items wait for a member, if none of them does for 100 ms, before
	// each id that is queued again is found to wait already. 65,536 if zero.
	Fold int
	// Queued is how many items may wait for a member. The items that a scan adds do not count
	// towards this limit. 1,048,576 if zero.
	Queued int
	// ScanBelow is how many items wait, at most, for a scan of the store to go on; twice
	// as many, for one of vectors and resets: a frame of tombstones. 256 if zero.
	ScanBelow int
	// Looks is how many counts, about, one frame's scan looks at, as it goes by pieces of
	// the store, and half as many as resets, of which a vector counts for several. 4,096 if
	// zero.
	Looks int
	// Logs is the number of logs of which the stream remembers, for a minute or two, the entries
	// that a member has, or the frame that brought them. Other logs are sent whole. 65,536 if
	// zero.
	Logs int
	// Ranges is how many ranges one frame gives authority over. 256 if zero.
	Ranges int
	// Statements is how many one message to another region has, and maxStatements if zero
	// or above that.
	Statements int
	// Reports is how many statements of what was spent, and of nothing else, one round
	// makes; the others come later. 1,000 if zero.
	Reports int
}

func (c Caps) withDefaults() Caps {
	c.Frame = cmp.Or(c.Frame, maxFrame)
	c.Fold = cmp.Or(c.Fold, 64<<10)
	c.Queued = cmp.Or(c.Queued, 1<<20)
	c.ScanBelow = cmp.Or(c.ScanBelow, 256)
	c.Looks = cmp.Or(c.Looks, 4096)
	c.Logs = cmp.Or(c.Logs, 64<<10)
	c.Ranges = cmp.Or(c.Ranges, 256)
	c.Statements = min(cmp.Or(c.Statements, maxStatements), maxStatements)
	c.Reports = cmp.Or(c.Reports, 1000)
	return c
}

// Cap has the stream, and its holdings, keep to caps. It is called before anything else.
func (s *Stream) Cap(c Caps) { s.caps = c.withDefaults() }

// Caps are what the stream keeps to.
func (s *Stream) Caps() Caps { return s.caps }
