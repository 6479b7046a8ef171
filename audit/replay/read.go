package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weir-go/weir/audit"
)

// unasked is the Source in the record of a limit that its AllowAll did not ask, because the node had cached a
// denial of another limit.
const unasked = "none"

// Bounds of the input.
const (
	maxLineBytes = 64 << 10
	lookahead    = 16384 // groups of each file that are sorted by time. This suffices, because records are nearly in order
	maxUnits     = 1_000_000_000_000
	maxAsks      = 255 // records of an AllowAll
)

// group has the record of a check, or those records of an AllowAll that one node has decided in one step.
type group struct {
	at    int64 // time of the decision in Unix nanoseconds
	room  int64 // number of units that remained before the decision
	parts []audit.Record
	of    *request // the request to which the group belongs

	played bool // whether merge has passed the group to the function play
}

// compare orders groups by time. Groups have the same time if their requests have arrived at a node together.
// compare orders such groups by the units that remained before the decision, most units first.
func compare(g, o *group) int { return cmp.Or(cmp.Compare(g.at, o.at), cmp.Compare(o.room, g.room)) }

// request is a check or an AllowAll.
type request struct {
	groups  []*group
	records int // number of records in all groups
	left    int // number of groups that are not yet decided again

	denied bool     // a limit denies the request in the replay, or a recorded denial is kept
	seen   bool     // a record of the request has an enforced denial
	taken  []refund // units to refund if the request is denied
	ahead  []refund // units that were refunded before all groups had decided
}

// name identifies an AllowAll.
type name struct {
	node   string
	number uint64
}

// file reads the groups of an Input, sorted by time within the lookahead.
type file struct {
	Input
	report  *Report
	in      *bufio.Reader
	line    int
	ended   bool
	waiting []*group
	open    map[name]*request // AllowAlls that have groups waiting. All files share the map, because the records of an AllowAll may be in two files
}

// fill does nothing if at least lookahead groups wait. Otherwise it reads records until twice as many groups wait,
// or the input ends, and sorts the groups by time.
func (f *file) fill(o *Options) error {
	if f.ended || len(f.waiting) >= lookahead {
		return nil
	}
	f.waiting = slices.Clone(f.waiting) // frees the array with the groups that are already played
	for !f.ended && len(f.waiting) < 2*lookahead {
		r, err := f.readRecord()
		switch {
		case errors.Is(err, io.EOF):
			f.ended = true
		case err != nil:
			return fmt.Errorf("%s: %w", f.Name, err)
		case r.Time.Before(o.From) || !o.Until.IsZero() && !r.Time.Before(o.Until):
			f.report.Notes["outside of the chosen time: ignored"]++
		default:
			f.add(r)
		}
	}
	slices.SortStableFunc(f.waiting, compare)
	return nil
}

// add adds a record to its group. The records of an AllowAll are close to each other, because the
// goroutine of the AllowAll has queued them together.
func (f *file) add(r audit.Record) {
	id, at := name{r.Node, r.Request}, timeOf(&r).UnixNano()
	of := f.open[id]
	if of == nil || r.Request == 0 || of.records == maxAsks {
		of = new(request)
		f.open[id] = of
	}
	of.records++
	for _, g := range of.groups {
		if g.at == at && !g.played {
			g.parts = append(g.parts, r)
			return
		}
	}
	g := &group{at: at, room: r.Remaining, parts: []audit.Record{r}, of: of}
	if r.Allowed {
		g.room += r.Units
	}
	of.left++
	of.groups = append(of.groups, g)
	f.waiting = append(f.waiting, g)
}

// timeOf returns the time of a decision. If Decided is unknown, it returns the middle between the begin and the
// end of the check.
func timeOf(r *audit.Record) time.Time {
	switch {
	case r.Source == unasked:
		return r.Time.Add(1) // just after the denial of the same request, which the node had cached
	case !r.Decided.IsZero():
		return r.Decided
	}
	return r.Time.Add(-time.Duration(r.TookUS) * time.Microsecond / 2)
}

// readRecord returns the next record. It skips damaged lines, and adds them to the Report. The error is that of
// the Reader: io.EOF at the end.
func (f *file) readRecord() (audit.Record, error) {
	for {
		text, err := f.in.ReadSlice('\n')
		if len(text) == 0 && err != nil {
			return audit.Record{}, err
		}
		f.line++
		var r audit.Record
		if errors.Is(err, bufio.ErrBufferFull) {
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = f.in.ReadSlice('\n')
			}
			err = fmt.Errorf("the line has more than %d bytes", maxLineBytes)
		} else if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		} else if err = json.Unmarshal(text, &r); err == nil {
			err = validate(&r)
		}
		if err == nil {
			f.report.Records++
			return r, nil
		}
		if f.report.Damaged++; len(f.report.Damages) < maxDamages {
			f.report.Damages = append(f.report.Damages, fmt.Sprintf("%s:%d: %.200s", f.Name, f.line, err))
		}
	}
}

// validate returns an error for a record that no Log has written.
func validate(r *audit.Record) error {
	switch year := timeOf(r).Year(); {
	case r.Limit == "":
		return errors.New(`the record has no "limit"`)
	case r.Units < 1 || r.Units > maxUnits:
		return fmt.Errorf(`"units" is %d: it must be from 1 to %d`, r.Units, int64(maxUnits))
	case year < 1970 || year > 2200:
		return fmt.Errorf("the decision is in the year %d: it must be from 1970 to 2200", year)
	}
	return nil
}

// merge calls play with the groups of all files, ordered by time.
func merge(files []*file, o *Options, play func(*group) error) error {
	for {
		var first *file
		for _, f := range files {
			if err := f.fill(o); err != nil {
				return err
			}
			if len(f.waiting) > 0 && (first == nil || compare(f.waiting[0], first.waiting[0]) < 0) {
				first = f
			}
		}
		if first == nil {
			return nil
		}
		g := first.waiting[0]
		first.waiting, g.played = first.waiting[1:], true
		if g.of.left--; g.of.left == 0 {
			delete(first.open, name{g.parts[0].Node, g.parts[0].Request})
		}
		if err := play(g); err != nil {
			return err
		}
	}
}
