package ports

// lateReads is how many connections stalled passes over as what has come on them is not
// read. Where there are more this process is late, and closing any of them does not help.
const lateReads = 8

// stalled is longest, but for connections on which a request has come that this process
// has not read yet: the client does not stall. The caller holds the pool's lock.
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

// longest returns the connection of sets that has stalled longest, of the origin that has
// most there that do not work. Where this origin has none that stalls, it returns one of
// another origin that has stalled very long, nil if none has.
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
