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
	Limit string        // name of the limit, see Limit.Name
	ID    [16]byte      // weir.Limiter.ID of the key; the text of a key is never published
	Rate  int64         // units, 1 to 10^12
	Per   time.Duration // Per of the limit if zero
	Burst int64         // only for the buckets; Rate if zero
	Until time.Time     // end, in whole seconds; no end if zero
	By    string        // author, at most 128 bytes
	At    time.Time     // time at which it was set, in whole seconds
}

// published is the format of an override in the value override/LIMIT/ID.
type published struct {
	Rate  int64  `json:"rate"`
	Per   int64  `json:"per,omitempty"` // ns
	Burst int64  `json:"burst,omitempty"`
	Until int64  `json:"until,omitempty"` // s
	By    string `json:"by,omitempty"`
	At    int64  `json:"at"` // s
}

const (
	overridePrefix = "override/"
	maxByBytes     = 128
	maxKeyBytes    = 1024 // maximum of a node
)

func publishedName(limit string, id [16]byte) string {
	return overridePrefix + limit + "/" + hex.EncodeToString(id[:])
}

func (o *Override) published() []byte {
	p := published{Rate: o.Rate, Per: int64(o.Per), Burst: o.Burst, By: o.By, At: o.At.Unix()}
	if !o.Until.IsZero() {
		p.Until = o.Until.Unix()
	}
	value, _ := json.Marshal(p) // never fails for numbers and a text
	return value
}

// readOverride reads a published value, which may come from any node.
func readOverride(v weir.Published) (o Override, err error) {
	name, ok := strings.CutPrefix(v.Name, overridePrefix)
	at := strings.LastIndexByte(name, '/')
	if !ok || at < 0 || len(name)-at-1 != 2*len(o.ID) {
		return Override{}, fmt.Errorf("rules: %q is not the name of an override", v.Name)
	}
	if _, err := hex.Decode(o.ID[:], []byte(name[at+1:])); err != nil {
		return Override{}, fmt.Errorf("rules: %q is not the name of an override: %w", v.Name, err)
	}
	var p published
	if err := json.Unmarshal(v.Value, &p); err != nil {
		return Override{}, fmt.Errorf("rules: %s: %w", v.Name, err)
	}
	o.Limit, o.Rate, o.Per, o.Burst, o.By = name[:at], p.Rate, time.Duration(p.Per), p.Burst, p.By
	o.At = time.Unix(p.At, 0)
	if p.Until != 0 {
		o.Until = time.Unix(p.Until, 0)
	}
	return o, nil
}

// applyTo returns the limit l with the numbers of the override.
func (o *Override) applyTo(l weir.Limit) weir.Limit {
	l.Rate, l.Burst = o.Rate, o.Burst
	if o.Per != 0 {
		l.Per = o.Per
	}
	return l
}

func (o *Override) isPast(now time.Time) bool { return !o.Until.IsZero() && !now.Before(o.Until) }

// Override sets the numbers of a key under a limit, on all nodes, and replaces an earlier
// override: the last writer wins. Override sets the fields Limit, ID and At of o. The override is in
// force on this node at once, and on other nodes when it arrives there. The error is
// weir.ErrInvalid for an invalid override, or that of weir.Node.Publish.
func (b *Book) Override(limit, key string, o Override) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w Override: "+format, append([]any{weir.ErrInvalid}, args...)...)
	}
	l, id, err := b.Current().named(limit, key)
	if err != nil {
		return err
	}
	o.Limit, o.ID, o.At, o.Until = limit, id, b.now().Truncate(time.Second), o.Until.Truncate(time.Second)
	switch {
	case len(o.By) > maxByBytes:
		return wrong("By has %d bytes: use at most %d", len(o.By), maxByBytes)
	case o.isPast(b.now()):
		return wrong("Until is %s: it is past", o.Until.Format(time.RFC3339))
	}
	if err := o.applyTo(l.base).Validate(); err != nil {
		return err
	}
	if err := b.values.Publish(publishedName(limit, id), 0, o.published()); err != nil {
		return err
	}
	b.refresh()
	return nil
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
