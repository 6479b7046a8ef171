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

// Control is the part that all kinds of values have in common that operators set at run time, such as
// an Override. The values are published to all nodes.
type Control struct {
	Until  time.Time // end, in whole seconds; if zero, there is no end
	By     string    // author, at most 128 bytes
	Reason string    // reason, at most 256 bytes
	At     time.Time // time at which it was set, in whole seconds
}

// publishedControl is the format of a Control in a published value.
type publishedControl struct {
	Until  int64  `json:"until,omitempty"` // s
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	At     int64  `json:"at"` // s
}

const (
	maxByBytes     = 128
	maxReasonBytes = 256
)

// controlled is a value of one kind.
type controlled interface {
	control() *Control
	// apply puts the value in force in s. The caller must hold b.mu.
	apply(b *Book, s *Snapshot)
}

// controlKind is a kind of values that operators publish.
type controlKind struct {
	prefix string // of the names of its published values
	// read reads the value of a name without the prefix. It may come from any node.
	read func(name string, value []byte) (controlled, error)
}

// controlKinds has all kinds. It is never changed.
var controlKinds = [...]controlKind{{overridePrefix, readOverride}, {blockPrefix, readBlock}, {switchPrefix, readSwitch}, {adaptPrefix, readAdaptation}, {hotPrefix, readHotKey}}

func (c *Control) control() *Control { return c }

func (c *Control) published() publishedControl {
	p := publishedControl{By: c.By, Reason: c.Reason, At: c.At.Unix()}
	if !c.Until.IsZero() {
		p.Until = c.Until.Unix()
	}
	return p
}

func (p *publishedControl) control() Control {
	c := Control{By: p.By, Reason: p.Reason, At: unixTime(p.At)}
	if p.Until != 0 {
		c.Until = unixTime(max(p.Until, 1)) // 0 stands for no end
	}
	return c
}

// lastSecond is the last second that RFC 3339 can express.
const lastSecond = 253_402_300_799

// unixTime returns the time of a published value, within the times that RFC 3339 can express. It is never 0,
// which stands for no end.
func unixTime(s int64) time.Time { return time.Unix(min(max(s, 1), lastSecond), 0) }

// until returns the end for a log line.
func (c *Control) until() string {
	if c.Until.IsZero() {
		return "forever"
	}
	return c.Until.UTC().Format(time.RFC3339)
}

func (c *Control) isPast(now time.Time) bool { return !c.Until.IsZero() && !now.Before(c.Until) }

// prepare checks the Control of a new value, and sets At. The error names the kind of the value.
func (c *Control) prepare(kind string, now time.Time) error {
	c.At, c.Until = now.Truncate(time.Second), c.Until.Truncate(time.Second)
	switch {
	case len(c.By) > maxByBytes:
		return fmt.Errorf("%w %s: By has %d bytes: use at most %d", weir.ErrInvalid, kind, len(c.By), maxByBytes)
	case len(c.Reason) > maxReasonBytes:
		return fmt.Errorf("%w %s: Reason has %d bytes: use at most %d", weir.ErrInvalid, kind, len(c.Reason), maxReasonBytes)
	case c.isPast(now):
		return fmt.Errorf("%w %s: Until is %s: it is past", weir.ErrInvalid, kind, c.Until.Format(time.RFC3339))
	}
	return nil
}

// publish publishes a value in its format, and puts it in force on this node.
func (b *Book) publish(name string, format any) error {
	value, _ := json.Marshal(format) // never fails for numbers and texts
	if err := b.values.Publish(name, 0, value); err != nil {
		return err
	}
	b.refresh()
	return nil
}

// withdraw deletes a published value on all nodes. Without such a value, withdraw does nothing.
func (b *Book) withdraw(name string) error {
	if values, _ := b.values.Published(name); len(values) == 0 || values[0].Name != name {
		return nil
	}
	if err := b.values.Publish(name, 0, nil); err != nil {
		return err
	}
	b.refresh()
	return nil
}

// record is a published value. Each value is read once.
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
	before, adapted := s.switches, s.adapted
	s.overrides, s.switches, s.blocks, s.adapted, s.hot = make([]map[[16]byte]*granted, len(s.limits)), nil, nil, make(map[string]*adaptation), nil
	wasOpen := s.open
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
				r = b.read(kind, v)
			}
			records[v.Name] = r
			if r.controlled == nil {
				continue
			}
			c := r.control()
			if c.isPast(now) {
				// The version is higher by 1, so that a later value has a higher version, and
				// all nodes publish the same deletion. It fails if a later value was set, which
				// the next refresh reads.
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
	s.setCounts(b, wasOpen)
	b.logSwitches(before, s.switches)
	b.recordAdaptations(adapted, s.adapted)
	s.setModes()
	s.serial++
	b.current.Store(&s)
	if len(s.adaptive) > 0 {
		select {
		case b.adapts <- struct{}{}:
		default:
		}
	}
}

func (b *Book) read(kind *controlKind, v weir.Published) record {
	read, err := kind.read(strings.TrimPrefix(v.Name, kind.prefix), v.Value)
	if err != nil {
		b.logUnread(v.Name, err)
	}
	return record{read, v.Value}
}

// logUnread logs a published value that this release cannot read.
func (b *Book) logUnread(name string, err error) {
	if unlogged, due := b.unread.Due(time.Now()); due {
		b.log.Warn("ignored a published control; set it again or remove it", "name", name, "error", err, "unlogged", unlogged)
	}
}
