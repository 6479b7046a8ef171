package countsync

import "cmp"

// Caps contains the bounds of the queues of a Stream, and of the contents of frames and messages.
// A zero field stands for the default. When a bound is reached, data is sent later, or again, but
// no data is lost. Bounds at which the stream forgets data are not part of Caps.
//
// The defaults suit clusters with millions of counts. A test with a few counts would never reach
// them, and sets lower bounds.
type Caps struct {
	// Frame is the maximum size of a frame in bytes, unless a single item is larger. Next also
	// has an argument for this bound, and the lower bound applies. 64 KiB if zero.
	Frame int
	// Fold is the length from which on the queue of a member has an index. With an index, an id
	// that already waits with the same kind of data is not queued again. If an item has waited for
	// 100 ms, a shorter queue gets an index too. 65,536 if zero.
	Fold int
	// Queued is the maximum number of items that wait for a member. The items that a scan adds do
	// not count towards this limit. 1,048,576 if zero.
	Queued int
	// ScanBelow is the number of waiting items below which a step of a scan begins, and at which the
	// step ends. A step through vectors and resets ends at twice the number, because a frame has room
	// for many tombstones. 256 if zero.
	ScanBelow int
	// Looks is the approximate number of counts that the scan for a frame visits. It is not exact,
	// because a scan reads whole pieces of the store. A scan visits twice as many resets. A vector
	// counts as several resets, and so does a reset that may have to be sent. 4,096 if zero.
	Looks int
	// Logs is the maximum number of logs for which the stream remembers, for each member, which entries
	// the member has. The same maximum applies to the logs for which the stream remembers the frame
	// that brought the entries to this node. Other logs are sent whole. If fewer than half as many logs
	// change, each log is remembered for at least a minute. 65,536 if zero.
	Logs int
	// Ranges is the maximum number of ranges over which a frame transfers authority. 256 if zero.
	Ranges int
	// Statements is the maximum number of statements in a message to another region.
	// maxStatements if zero or above maxStatements.
	Statements int
	// Reports is the maximum number of statements in a round that only report spent units. The next
	// rounds make the other reports. 1,000 if zero.
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

// Cap sets the bounds of the stream and its holdings. Cap must be called before all other
// methods.
func (s *Stream) Cap(c Caps) { s.caps = c.withDefaults() }

// Caps returns the bounds of the stream.
func (s *Stream) Caps() Caps { return s.caps }
