package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// Control has the fields that are common to all kinds of values that operators set at run time, such
// as an Override. The values are published to all nodes.
//
// The JSON of a published value contains the Control, and the other fields that are not in the name of
// the value.
type Control struct {
	Until  time.Time `json:"until,omitzero"`   // end, in whole seconds; if zero, there is no end
	By     string    `json:"by,omitempty"`     // author, at most 128 bytes
	Reason string    `json:"reason,omitempty"` // reason, at most 256 bytes
	At     time.Time `json:"at,omitzero"`      // time at which the value was set, in whole seconds
}

const (
	maxByBytes     = 128
	maxReasonBytes = 256
)

// controlled is a value of a controlKind.
type controlled interface {
	control() *Control
	// setName sets the fields that are in the name of the value, without the prefix, and checks all fields. The
	// value may come from any node.
	setName(name string) error
	// apply puts the value in force in s. The caller must hold b.mu.
	apply(b *Book, s *Snapshot)
}

// controlKind is a kind of published values: an operator sets the value, or a node suggests or adapts it.
type controlKind struct {
	prefix string            // prefix of the names of the published values
	make   func() controlled // makes a value that is invalid until its required fields are read
}

// controlKinds has all kinds.
var controlKinds = [...]controlKind{
	{overridePrefix, func() controlled { return &Override{Rate: -1} }},
	{blockPrefix, func() controlled { return new(Block) }},
	{switchPrefix, func() controlled { return &Switch{Mode: -2} }},
	{adaptPrefix, func() controlled { return new(adaptation) }},
	{hotPrefix, func() controlled { return new(Suggestion) }},
}

func (c *Control) control() *Control { return c }

// untilText returns c.Until as text for log lines and errors: a time in UTC, or "forever" if c.Until is zero.
func (c *Control) untilText() string {
	if c.Until.IsZero() {
		return "forever"
	}
	return c.Until.UTC().Format(time.RFC3339)
}

func (c *Control) isPast(now time.Time) bool { return !c.Until.IsZero() && !now.Before(c.Until) }

// prepare checks the Control of a new value, sets At, and truncates Until to whole seconds. The error names the
// kind of the value.
func (c *Control) prepare(kind string, now time.Time) error {
	c.At, c.Until = now.UTC().Truncate(time.Second), c.Until.UTC().Truncate(time.Second)
	switch {
	case len(c.By) > maxByBytes:
		return fmt.Errorf("%w %s: By has %d bytes: use at most %d", weir.ErrInvalid, kind, len(c.By), maxByBytes)
	case len(c.Reason) > maxReasonBytes:
		return fmt.Errorf("%w %s: Reason has %d bytes: use at most %d", weir.ErrInvalid, kind, len(c.Reason), maxReasonBytes)
	case c.isPast(now):
		return fmt.Errorf("%w %s: Until is %s: it is past; use a later time", weir.ErrInvalid, kind, c.Until.Format(time.RFC3339))
	}
	return nil
}

// publish publishes a value, and puts it in force on this node.
func (b *Book) publish(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil { // a time after the year 9999
		return fmt.Errorf("%w Control: %w", weir.ErrInvalid, err)
	}
	if err := b.values.Publish(name, 0, text); err != nil {
		return err
	}
	b.refresh()
	return nil
}

// published returns the published value of a name.
func (b *Book) published(name string) (v weir.Published, known bool) {
	if values, _ := b.values.Published(name); len(values) > 0 && values[0].Name == name {
		return values[0], true
	}
	return v, false
}

// withdraw deletes a published value on all nodes. Without such a value, withdraw does nothing.
func (b *Book) withdraw(name string) error {
	if _, known := b.published(name); !known {
		return nil
	}
	if err := b.values.Publish(name, 0, nil); err != nil {
		return err
	}
	b.refresh()
	return nil
}

// record is a published value. A value is read again only if its bytes have changed.
type record struct {
	controlled // nil if this release cannot read the value
	value      []byte
}

// refresh applies the published values and the time windows, and deletes values that have ended.
func (b *Book) refresh() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	_, revision := b.values.Published(controlKinds[0].prefix)
	expired := !b.nextPast.IsZero() && !now.Before(b.nextPast) || now.Before(b.swapped) // the clock may step back
	if revision != b.revision || expired {
		b.swap(*b.current.Load(), now)
	}
}

// swap makes a Snapshot with the published values current. The caller must hold mu.
func (b *Book) swap(s Snapshot, now time.Time) {
	records := make(map[string]record, len(b.records))
	before := s
	s.overrides, s.switches, s.blocks, s.adapted, s.hot = make([]map[[16]byte]*grant, len(s.limits)), nil, nil, make(map[string]Adaptation), nil
	s.open, b.nextPast = s.openAt(now)
	if open := s.OpenTimeWindows(); !slices.Equal(open, b.openTimes) {
		b.log.Info("time windows opened or closed", "open", open)
		b.openTimes = open
	}
	b.swapped = now.Round(0)
	for i := range controlKinds {
		kind := &controlKinds[i]
		values, revision := b.values.Published(kind.prefix)
		if i == 0 { // a value that changes during this loop has a higher revision, and is read again
			b.revision = revision
		}
		for _, v := range values {
			r, known := b.records[v.Name]
			if !known || !bytes.Equal(r.value, v.Value) {
				var err error
				r.value = v.Value
				if r.controlled, err = kind.read(v); err != nil {
					b.logUnread(v.Name, err)
				}
			}
			records[v.Name] = r
			if r.controlled == nil {
				continue
			}
			c := r.control()
			if c.isPast(now) {
				// The version is higher by 1, so that a later value has a higher version, and
				// all nodes publish the same deletion. Publish returns an error if a later value
				// was set. The next refresh reads that value.
				_ = b.values.Publish(v.Name, v.Version+1, nil)
				continue
			}
			if !c.Until.IsZero() && (b.nextPast.IsZero() || c.Until.Before(b.nextPast)) {
				b.nextPast = c.Until
			}
			r.apply(b, &s)
		}
	}
	b.records = records
	if s.blocks != nil {
		s.blocks.networks = sortBlocked(s.blocks.networks)
	}
	s.setCounts(b.node)
	b.logSwitches(before.switches, s.switches)
	b.recordAdaptations(before.adapted, s.adapted)
	s.setModes()
	s.serial++
	b.current.Store(&s)
	b.adapting.wake(len(s.adaptive) > 0)
	b.raising.wake(len(s.raising) > 0)
}

// read reads a published value, or returns nil and an error.
func (k *controlKind) read(v weir.Published) (controlled, error) {
	read := k.make()
	err := json.Unmarshal(v.Value, read)
	if err == nil {
		err = read.setName(strings.TrimPrefix(v.Name, k.prefix))
	}
	if err != nil {
		return nil, err
	}
	return read, nil
}

// logUnread logs a published value that this release cannot read.
func (b *Book) logUnread(name string, err error) {
	if unlogged, due := b.unread.Due(time.Now()); due {
		b.log.Warn("ignored an unreadable published value; set it again or remove it", "name", name, "error", err, "unlogged", unlogged)
	}
}
