package rules

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// Override sets other numbers for a key of a limit, on all nodes and for requests of all tiers.
type Override struct {
	Control
	Limit string        `json:"-"`               // name of the limit, see Limit.Name
	ID    [16]byte      `json:"-"`               // weir.Limiter.ID of the key; the text of a key is never published
	Rate  int64         `json:"rate"`            // units, 1 to 10^12; 0 blocks the key (see Snapshot.KeyBlock)
	Per   time.Duration `json:"per,omitempty"`   // Per of the limit if zero
	Burst int64         `json:"burst,omitempty"` // only for the buckets; Rate if zero
}

const (
	overridePrefix = "override/" // the name of the limit, a slash and the ID follow
	maxKeyBytes    = 1024        // maximum length of a key on a node
)

func publishedName(limit string, id [16]byte) string {
	return overridePrefix + limit + "/" + hex.EncodeToString(id[:])
}

func (o *Override) setName(name string) error {
	if o.Rate < 0 {
		return fmt.Errorf("rules: the override %q has no rate, or a rate below 0", name)
	}
	return cutID(name, &o.Limit, &o.ID)
}

// cutID reads the ID of a key after the last slash of a name, and the text before that slash.
func cutID(name string, before *string, id *[16]byte) error {
	at := strings.LastIndexByte(name, '/')
	if raw, err := hex.DecodeString(name[at+1:]); at < 0 || err != nil || copy(id[:], raw) != len(raw) || len(raw) != len(id) {
		return fmt.Errorf("rules: the published name %q does not end with a slash and the ID of a key, which has 32 hexadecimal digits", name)
	}
	*before = name[:at]
	return nil
}

// applyTo returns a limit with the numbers of the override, and with the kept part of the limit. If Rate is 0, the
// numbers stay those of the limit.
func (o *Override) applyTo(limit *Limit) weir.Limit {
	l := limit.base
	if o.Rate == 0 {
		return l
	}
	l.Rate, l.Burst, l.Overridden = o.Rate, o.Burst, true
	if o.Per != 0 {
		l.Per = o.Per
	}
	return limit.keep.applyTo(l)
}

// Override sets the numbers of a key under a limit, on all nodes, and replaces an earlier
// override: the last writer wins. Override sets the fields Limit, ID and At of o. The override is in
// force on this node at once, and on other nodes when it arrives there. The error is
// weir.ErrInvalid if the limit does not exist, the key is too long, the override is invalid or the published
// values are full, or an error of weir.Node.Publish.
func (b *Book) Override(limit, key string, o Override) error {
	_, id, err := b.Current().named(limit, key)
	if err != nil {
		return err
	}
	return b.OverrideID(limit, id, o)
}

// OverrideID is like Override, for a key whose ID is known and whose text is not, such as the key of a
// Suggestion.
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
	return b.publish(publishedName(l.Name, id), o)
}

// Restore deletes the override of a key, on all nodes. Without an override, Restore does nothing.
// The error is weir.ErrInvalid if the limit does not exist or the key is too long, or an error of
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
	if l, id, err := s.named(limit, key); err == nil && s.override(l, id) != nil {
		return *s.override(l, id).Override, true
	}
	return o, false
}

// Overrides returns the overrides in force, sorted by limit and ID. Overrides of limits that are
// not in the file are omitted.
func (b *Book) Overrides() []Override {
	var all []Override
	for _, of := range b.Current().overrides {
		for _, o := range of {
			all = append(all, *o.Override)
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
	return l, s.id(l, key), nil
}

// grant is an override in force, with its Limiters.
type grant struct {
	*Override
	count Count
	block *Block // Block for an override with Rate 0; nil for other overrides
}

// apply adds the override to s, unless the limit does not exist or cannot have the numbers. The Limiters are made
// once for each version of the rules.
func (o *Override) apply(b *Book, s *Snapshot) {
	l, was := s.names[o.Limit], b.current.Load()
	if l == nil {
		return
	}
	var g *grant
	if was != nil && was.names[o.Limit] == l {
		g = was.override(l, o.ID)
	}
	if g == nil || g.Override != o {
		c, err := newCount(b.node, l, o.applyTo(l))
		if err != nil {
			if unlogged, due := b.unfit.Due(time.Now()); due {
				b.log.Warn("ignored an override; set it again or remove it", "limit", o.Limit, "error", err, "unlogged", unlogged)
			}
			return
		}
		g = &grant{Override: o, count: c}
		if o.Rate == 0 {
			g.block = &Block{Control: o.Control, Kind: BlockKey, Rule: s.ruleOf[l.Index].Name}
		}
	}
	if s.overrides[l.Index] == nil {
		s.overrides[l.Index] = make(map[[16]byte]*grant)
	}
	s.overrides[l.Index][o.ID] = g
}
