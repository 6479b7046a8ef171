package rules

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// Override sets other numbers for a key of a limit, on all nodes and for requests of all tiers.
type Override struct {
	Control
	Limit string        // name of the limit, see Limit.Name
	ID    [16]byte      // weir.Limiter.ID of the key; the text of a key is never published
	Rate  int64         // units, 1 to 10^12; 0 blocks the key (see Snapshot.KeyBlock)
	Per   time.Duration // Per of the limit if zero
	Burst int64         // only for the buckets; Rate if zero
}

// publishedOverride is the format of an override in the value override/LIMIT/ID.
type publishedOverride struct {
	Rate  *int64 `json:"rate"`
	Per   int64  `json:"per,omitempty"` // ns
	Burst int64  `json:"burst,omitempty"`
	publishedControl
}

const (
	overridePrefix = "override/"
	maxKeyBytes    = 1024 // maximum of a node
)

func publishedName(limit string, id [16]byte) string {
	return overridePrefix + limit + "/" + hex.EncodeToString(id[:])
}

func (o *Override) published() publishedOverride {
	return publishedOverride{&o.Rate, int64(o.Per), o.Burst, o.Control.published()}
}

// readOverride reads the published value of the name LIMIT/ID.
func readOverride(name string, value []byte) (controlled, error) {
	limit, id, err := readPublishedName(name)
	if err != nil {
		return nil, err
	}
	var p publishedOverride
	if err := json.Unmarshal(value, &p); err != nil {
		return nil, fmt.Errorf("rules: %s: %w", name, err)
	}
	if p.Rate == nil {
		return nil, fmt.Errorf("rules: %s has no rate", name)
	}
	return &grant{Override: Override{p.control(), limit, id, *p.Rate, time.Duration(p.Per), p.Burst}}, nil
}

// readPublishedName reads a name LIMIT/ID.
func readPublishedName(name string) (limit string, id [16]byte, err error) {
	at := strings.LastIndexByte(name, '/')
	if at < 0 || len(name)-at-1 != 2*len(id) {
		return "", id, fmt.Errorf("rules: %q is not the name of an override", name)
	}
	if _, err := hex.Decode(id[:], []byte(name[at+1:])); err != nil {
		return "", id, fmt.Errorf("rules: %q is not the name of an override: %w", name, err)
	}
	return name[:at], id, nil
}

// applyTo returns the numbers of a limit with those of the override, and the kept part of the limit. With
// Rate 0 they are those of the limit.
func (o *Override) applyTo(limit *Limit) weir.Limit {
	l := limit.base
	if o.Rate == 0 {
		return l
	}
	l.Rate, l.Burst, l.Overridden = o.Rate, o.Burst, true
	if o.Per != 0 {
		l.Per = o.Per
	}
	return limit.keep.in(l)
}

// Override sets the numbers of a key under a limit, on all nodes, and replaces an earlier
// override: the last writer wins. Override sets the fields Limit, ID and At of o. The override is in
// force on this node at once, and on other nodes when it arrives there. The error is
// weir.ErrInvalid for an invalid override, or that of weir.Node.Publish.
func (b *Book) Override(limit, key string, o Override) error {
	_, id, err := b.Current().named(limit, key)
	if err != nil {
		return err
	}
	return b.OverrideID(limit, id, o)
}

// OverrideID is Override for a key with this ID, such as that of a Suggestion, if the text of the key is
// unknown.
func (b *Book) OverrideID(limit string, id [16]byte, o Override) error {
	l, _, err := b.Current().named(limit, "")
	if err != nil {
		return err
	}
	o.Limit, o.ID = l.Name, id
	if err := o.prepare("Override", b.now()); err != nil {
		return err
	}
	if o.Rate == 0 && (o.Per != 0 || o.Burst != 0) {
		return fmt.Errorf("%w Override: Per or Burst is set with Rate 0, which blocks the key: leave them out", weir.ErrInvalid)
	}
	if err := o.applyTo(l).Validate(); err != nil {
		return err
	}
	return b.publish(publishedName(l.Name, id), o.published())
}

// Restore deletes the override of a key, on all nodes. Without an override, Restore does nothing.
// The error is weir.ErrInvalid if the limit does not exist or the key is too long, or that of
// weir.Node.Publish.
func (b *Book) Restore(limit, key string) error {
	_, id, err := b.Current().named(limit, key)
	if err != nil {
		return err
	}
	return b.RestoreID(limit, id)
}

// OverrideOf returns the override of a key under a limit.
func (b *Book) OverrideOf(limit, key string) (o Override, ok bool) {
	s := b.Current()
	l, id, err := s.named(limit, key)
	if err != nil {
		return Override{}, false
	}
	if g := s.override(l, id); g != nil {
		return g.Override, true
	}
	return Override{}, false
}

// Overrides returns the overrides in force, sorted by limit and ID. Overrides of limits that are
// not in the file are omitted.
func (b *Book) Overrides() []Override {
	var all []Override
	for _, of := range b.Current().overrides {
		for _, o := range of {
			all = append(all, o.Override)
		}
	}
	slices.SortFunc(all, func(a, b Override) int {
		return cmp.Or(strings.Compare(a.Limit, b.Limit), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return all
}

func (s *Snapshot) named(limit, key string) (l *Limit, id [16]byte, err error) {
	l, _, ok := s.Limit(limit)
	switch {
	case !ok:
		return nil, id, fmt.Errorf("%w Override: there is no limit %q", weir.ErrInvalid, limit)
	case len(key) > maxKeyBytes:
		return nil, id, fmt.Errorf("%w Override: the key has %d bytes: use at most %d", weir.ErrInvalid, len(key), maxKeyBytes)
	}
	return l, s.counts[l.Index][0].Limiter.ID(key), nil
}

// grant is a published override. Its Limiter is made once for each version of the file.
type grant struct {
	Override
	limit *Limit   // the limit for which fit was made
	fit   *granted // nil if the limit cannot have the numbers
}

// apply adds the override to s, unless the limit does not exist or cannot have the numbers.
func (g *grant) apply(b *Book, s *Snapshot) {
	l := s.names[g.Limit]
	if l == nil {
		return
	}
	if l != g.limit {
		g.limit, g.fit = l, nil
		c, err := newCount(b.node, l, g.applyTo(l))
		if err == nil {
			g.fit = &granted{Override: g.Override, count: c}
			if g.Rate == 0 {
				g.fit.block = &Block{Control: g.Control, Kind: BlockKey, Rule: s.ruleOf[l.Index].Name}
			}
		} else if unlogged, due := b.unfit.Due(time.Now()); due {
			b.log.Warn("ignored an override; set it again or remove it", "limit", g.Limit, "error", err, "unlogged", unlogged)
		}
	}
	if g.fit == nil {
		return
	}
	if s.overrides[l.Index] == nil {
		s.overrides[l.Index] = make(map[[16]byte]*granted)
	}
	s.overrides[l.Index][g.ID] = g.fit
}
