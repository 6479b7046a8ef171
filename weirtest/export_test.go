package weirtest

import "time"

// Asks reports whether the node on a host has a way now to ask the one on another host,
// of another region.
func Asks(c *Cluster, from, to string) bool {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	here, there := n.host(from), n.host(to)
	if m := here.process.member; m != nil {
		for _, r := range m.regions {
			if r.at != nil && r.at.heard && r.at.to.host == there && r.at.to == there.process.member {
				return true
			}
		}
		return false
	}
	// A connection that has lasted, and that is not gossip's: those end in a moment.
	if c.options.Regions[from] == c.options.Regions[to] {
		return false
	}
	for _, conn := range here.process.conns {
		if conn.out.to == there && conn.remote.Port == simPort && conn.peer != nil && conn.broken == nil && !conn.eof &&
			time.Since(conn.out.last) < 2*time.Second {
			return true
		}
	}
	return false
}
