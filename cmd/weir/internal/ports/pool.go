package ports

import (
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/internal/conns"
)

// pool contains the connections of ports that share a part of the budget. It closes no busy
// connection, and has no bound for each address: behind an ingress, all clients have one address.
type pool struct {
	most int

	waits atomic.Int32  // connections that wait for room
	room  chan struct{} // has a token after a connection has left

	mu      sync.Mutex
	ports   []*Port
	open    int
	origins map[string]*source // the sources of the open connections
}

// source is an origin of open connections.
type source struct {
	name  string
	open  int
	rests int // number of resting connections, as the function longest has counted them
}

func newPool(most int) *pool {
	return &pool{most: most, room: make(chan struct{}, 1), origins: make(map[string]*source)}
}

// enter adds c to the pool, or returns false if the pool is full and worst returns no
// connection. The caller must cut the dropped connections.
func (p *pool) enter(c *conn, now int64) (dropped []*conn, entered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(c.port.fresh) >= c.port.mostNew {
		longest := stalled(now, c.port.fresh)
		if longest == nil {
			break // each has just arrived, has a request that waits for a handler, or has a running handler
		}
		dropped = p.drop(dropped, longest)
	}
	if p.open >= p.most {
		dropped = p.drop(dropped, p.worst(now))
	}
	if p.open >= p.most {
		return dropped, false
	}
	c.port.fresh.add(c)
	p.open++
	name := conns.Origin(c.Conn.RemoteAddr())
	if c.from = p.origins[name]; c.from == nil {
		c.from = &source{name: name}
		p.origins[name] = c.from
	}
	c.from.open++
	return dropped, true
}

// leave removes a closed connection.
func (p *pool) leave(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(nil, c)
}

// prove marks c as proven. The caller must cut the dropped connections.
func (p *pool) prove(c *conn, now int64) (dropped []*conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.proven.Swap(true) || c.at < 0 {
		return nil
	}
	if len(c.port.kept) >= maxKept {
		dropped = p.drop(dropped, stalled(now, c.port.kept))
	}
	c.port.fresh.remove(c)
	c.port.kept.add(c)
	return dropped
}

// shed drops the connection that worst returns, and returns it, or nil if worst returns none.
func (p *pool) shed(now int64) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drop(nil, p.worst(now))
}

// worst returns the stalled connection of any port to close for a new connection, or nil if
// there is none. The caller must hold mu.
//
// If more than half of the pool are new connections, worst returns a new connection of the
// port with the most of them, or nil if none of these has stalled. So new connections take at
// most half of the pool from proven connections. Beyond that, a flood of one port takes nothing from new
// connections of other ports.
func (p *pool) worst(now int64) *conn {
	var all []set
	var fresh set // the new connections of the port that has most of them
	news := 0
	for _, port := range p.ports {
		all = append(all, port.fresh, port.kept)
		news += len(port.fresh)
		if len(port.fresh) > len(fresh) {
			fresh = port.fresh
		}
	}
	if news > p.most/2 {
		return stalled(now, fresh)
	}
	return stalled(now, all...)
}

// drop moves c from the pool to dropped. The caller must hold mu.
func (p *pool) drop(dropped []*conn, c *conn) []*conn {
	if c == nil || c.at < 0 {
		return dropped
	}
	if c.proven.Load() {
		c.port.kept.remove(c)
	} else {
		c.port.fresh.remove(c)
	}
	c.at = -1
	p.open--
	if c.from.open--; c.from.open == 0 {
		delete(p.origins, c.from.name)
	}
	select {
	case p.room <- struct{}{}:
	default:
	}
	return append(dropped, c)
}

// set is an unordered set of connections.
type set []*conn

func (s *set) add(c *conn) {
	c.at = len(*s)
	*s = append(*s, c)
}

func (s *set) remove(c *conn) {
	last := len(*s) - 1
	moved := (*s)[last]
	(*s)[c.at], moved.at = moved, c.at
	(*s)[last] = nil
	*s = (*s)[:last]
}
