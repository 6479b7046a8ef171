package rules

import (
	"bytes"
	"time"

	"github.com/weir-go/weir"
)

// refresh makes the overrides that hold what is published, and takes back those
// whose time is over.
func (b *Book) refresh() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	values, revision := b.values.Published(overridePrefix)
	expired := !b.nextPast.IsZero() && !now.Before(b.nextPast)
	if revision == b.revision && !expired {
		return
	}
	b.revision = revision
	b.swap(*b.current.Load(), values, now)
}

// swap makes a Snapshot with the published overrides current.
func (b *Book) swap(s Snapshot, values []weir.Published, now time.Time) {
	grants := make(map[string]*grant, len(values))
	s.overrides = make([]map[[16]byte]*granted, len(s.limits))
	b.nextPast = time.Time{}
	for _, v := range values {
		g := b.grants[v.Name]
		if g == nil || !bytes.Equal(g.value, v.Value) {
			g = b.read(v)
		}
		grants[v.Name] = g
		if g.unread {
			continue
		}
		if g.past(now) {
			// One above, so that whatever is set anew has a higher version, and
			// all nodes publish the same. An error means that something has been.
			_ = b.values.Publish(v.Name, v.Version+1, nil)
			continue
		}
		if !g.Until.IsZero() && (b.nextPast.IsZero() || g.Until.Before(b.nextPast)) {
			b.nextPast = g.Until
		}
		l := s.names[g.Limit]
		if fit := b.fit(g, l); fit != nil {
			if s.overrides[l.Index] == nil {
				s.overrides[l.Index] = make(map[[16]byte]*granted)
			}
			s.overrides[l.Index][g.ID] = fit
		}
	}
	b.grants = grants
	s.serial++
	b.current.Store(&s)
}

// grant is a published override, read once, and made to fit its limit once for
// each version of the file.
type grant struct {
	Override
	value  []byte
	unread bool
	limit  *Limit   // that it was made to fit
	fit    *granted // nil if it does not
}

func (b *Book) read(v weir.Published) *grant {
	g := &grant{value: v.Value}
	var err error
	if g.Override, err = readOverride(v); err != nil {
		g.unread = true
		if unlogged, due := b.unread.Due(time.Now()); due {
			b.log.Warn("ignored an override; set it again or remove it", "name", v.Name, "error", err, "unlogged", unlogged)
		}
	}
	return g
}

// fit is what counts by the grant, nil if its limit is not there or cannot have
// its numbers.
func (b *Book) fit(g *grant, l *Limit) *granted {
	if l == nil {
		return nil
	}
	if l != g.limit {
		g.limit, g.fit = l, nil
		c, err := newCount(b.node, l, g.over(l.base))
		if err != nil {
			if unlogged, due := b.unfit.Due(time.Now()); due {
				b.log.Warn("ignored an override; set it again or remove it", "limit", g.Limit, "error", err, "unlogged", unlogged)
			}
			return nil
		}
		g.fit = &granted{Override: g.Override, count: c}
	}
	return g.fit
}
