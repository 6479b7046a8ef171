package stats

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/weir-go/weir/internal/wire"
)

const (
	// MaxTotals is the maximum number of limits that a member lists in its Totals.
	MaxTotals = 128
	// maxOutcome bounds a counter in an answer, so that the counters of all members can be added.
	maxOutcome = 1 << 56
)

// Totals contains the decisions of a node since its start.
type Totals struct {
	Sources [wire.Sources]Outcomes // by the source of the decision
	Limits  []LimitTotals          // the most denials first, at most MaxTotals
}

// LimitTotals contains the decisions of a node about a limit, of all sources.
type LimitTotals struct {
	Name     string
	Enforced Outcomes
	Shadow   Outcomes // the decisions of shadows, which are not enforced
}

func (l *LimitTotals) denials() uint64 { return l.Enforced.Denied + l.Shadow.Denied }

// Totals returns the decisions until now.
func (m *Limits) Totals() (t Totals) {
	for name, limit := range m.AllCounters() {
		l := LimitTotals{Name: name, Shadow: limit.Sum(Shadows)}
		for source := range wire.Sources {
			o := limit.Sum(source)
			t.Sources[source].add(o)
			l.Enforced.add(o)
		}
		if l.Enforced != (Outcomes{}) || l.Shadow != (Outcomes{}) {
			t.Limits = append(t.Limits, l)
		}
	}
	slices.SortFunc(t.Limits, func(a, b LimitTotals) int {
		return cmp.Or(cmp.Compare(b.denials(), a.denials()), cmp.Compare(a.Name, b.Name))
	})
	t.Limits = t.Limits[:min(len(t.Limits), MaxTotals)]
	return t
}

func (o *Outcomes) add(more Outcomes) {
	o.Allowed += more.Allowed
	o.Denied += more.Denied
}

// Append appends the answer of a member to a request for its Totals. Numbers are unsigned varints.
// A later release may append further data.
//
//	answer   number of sources | outcomes of each | number of limits | limits
//	outcomes allowed | denied
//	limit    length of name | name | outcomes | outcomes of its shadows
func (t *Totals) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(t.Sources)))
	for _, o := range t.Sources {
		b = o.append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(t.Limits)))
	for _, l := range t.Limits {
		b = l.Shadow.append(l.Enforced.append(wire.AppendText(b, l.Name)))
	}
	return b
}

func (o Outcomes) append(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, min(o.Allowed, maxOutcome)), min(o.Denied, maxOutcome))
}

// ParseTotals parses the answer of a member. It ignores sources that this release does not know,
// and all data after the limits. The error is wire.ErrMalformed.
func ParseTotals(answer []byte) (t Totals, err error) {
	c := wire.NewCursor(answer)
	for source := range c.Number(255) {
		if o := readOutcomes(&c); source < uint64(len(t.Sources)) {
			t.Sources[source] = o
		}
	}
	for range c.Number(MaxTotals) {
		t.Limits = append(t.Limits, LimitTotals{c.Text(wire.MaxNameBytes), readOutcomes(&c), readOutcomes(&c)})
	}
	if c.Err() != nil {
		return Totals{}, c.Err()
	}
	return t, nil
}

func readOutcomes(c *wire.Cursor) Outcomes {
	return Outcomes{Allowed: c.Number(maxOutcome), Denied: c.Number(maxOutcome)}
}
