package rules

import (
	"bytes"
	"time"

	"github.com/weir-go/weir"
)

// refresh applies the published overrides, and deletes overrides that have ended.
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

// swap makes a Snapshot with the published overrides current. The caller must hold mu.
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
		if g.isPast(now) {
			// The version is higher by 1, so that a later override has a higher version, and
			// all nodes publish the same deletion. It fails if a later override was set, which
			// the next refresh reads.
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

// grant is a published override. A grant is parsed once, and its Limiter is made once for each
// version of the file.
type grant struct {
	Override
	value  []byte
	unread bool
	limit  *Limit   // the limit for which fit was made
	fit    *granted // nil if the limit cannot have the numbers
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

// fit returns the override with its Limiter, or nil if the limit does not exist or cannot have
// the numbers.
func (b *Book) fit(g *grant, l *Limit) *granted {
	if l == nil {
		return nil
	}
	if l != g.limit {
		g.limit, g.fit = l, nil
		c, err := newCount(b.node, l, g.applyTo(l.base))
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
