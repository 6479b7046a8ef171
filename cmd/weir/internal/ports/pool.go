package ports

import (
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/internal/conns"
)

// pool is the connections of ports that share a part of the budget.
type pool struct {
	most int

	waits atomic.Int32  // connections that wait until there is room
	room  chan struct{} // has a token once a connection has left

	mu      sync.Mutex
	ports   []*Port
	open    int
	origins map[string]*source // of the connections that are open
}

// source is an origin of connections that are open.
type source struct {
	name  string
	open  int
	rests int // scratch of longest
}

func newPool(most int) *pool {
	return &pool{most: most, room: make(chan struct{}, 1), origins: make(map[string]*source)}
}

// enter takes c in, or returns false if the pool is full of connections that work. The
// caller cuts those that had to go.
func (p *pool) enter(c *conn, now int64) (out []*conn, in bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(c.port.fresh) >= c.port.mostNew {
		longest := stalled(now, c.port.fresh)
		if longest == nil {
			break // they all just came, and are about to ask
		}
		out = p.drop(out, longest)
	}
	if p.open >= p.most {
		out = p.drop(out, p.worst(now))
	}
	if p.open >= p.most {
		return out, false
	}
	c.port.fresh.add(c)
	p.open++
	name := conns.Origin(c.Conn.RemoteAddr())
	if c.from = p.origins[name]; c.from == nil {
		c.from = &source{name: name}
		p.origins[name] = c.from
	}
	c.from.open++
	return out, true
}

// leave is called when c is closed.
func (p *pool) leave(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(nil, c)
}

// prove takes c for one that is of use from now on.
func (p *pool) prove(c *conn, now int64) (out []*conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.proven.Swap(true) || c.at < 0 {
		return nil
	}
	if len(c.port.kept) >= maxKept {
		out = p.drop(out, stalled(now, c.port.kept))
	}
	c.port.fresh.remove(c)
	c.port.kept.add(c)
	return out
}

// shed drops the connection that has stalled most, nil if none has.
func (p *pool) shed(now int64) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drop(nil, p.worst(now))
}

// worst returns the connection of any port to close for another one, nil if all work. The
// caller holds mu.
//
// Where more than half are new, it is one of these, so that a flood takes no more than half
// from connections that were of use, nor anything from new ones of another port.
func (p *pool) worst(now int64) *conn {
	var all []set
	var fresh set // of the port that has most
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

// drop appends c to out, and takes it out of the pool. The caller holds mu.
func (p *pool) drop(out []*conn, c *conn) []*conn {
	if c == nil || c.at < 0 {
		return out
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
	return append(out, c)
}

// set is connections, in no order.
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
