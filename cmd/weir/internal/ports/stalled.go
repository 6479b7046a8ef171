package ports

// lateReads is the maximum number of connections with unread data that the function stalled
// skips. If there are as many, this process is late, and closing connections does not help.
const lateReads = 8

// stalled is like longest, but skips connections with a request that has arrived and that
// this process has not read yet, because the client has not stalled. The caller must hold
// the lock of the pool.
func stalled(now int64, sets ...set) *conn {
	for range lateReads {
		c := longest(now, sets...)
		if c == nil || c.writing.Load() != 0 || !unread(c.Conn) {
			return c
		}
		c.since.Store(now)
	}
	return nil
}

// longest returns the longest stalled connection of the origin with the most resting
// connections. If no connection of this origin has stalled, it returns a connection of
// another origin that has stalled for longStall, or nil.
func longest(now int64, sets ...set) *conn {
	for _, s := range sets {
		for _, c := range s {
			c.from.rests = 0
		}
	}
	most := 0
	for _, s := range sets {
		for _, c := range s {
			if _, rests := c.rests(now); rests {
				c.from.rests++
				most = max(most, c.from.rests)
			}
		}
	}
	var first, other *conn
	var since, sinceOther int64
	for _, s := range sets {
		for _, c := range s {
			at, rests := c.rests(now)
			switch {
			case !rests:
			case c.from.rests == most && now-at >= int64(stall):
				if first == nil || at < since {
					first, since = c, at
				}
			case now-at >= int64(longStall):
				if other == nil || at < sinceOther {
					other, sinceOther = c, at
				}
			}
		}
	}
	if first == nil {
		return other
	}
	return first
}
