// Package replay decides the requests in the records of package audit again, by other rules, and reports
// the changed decisions.
//
// A replay runs a node, whose clock shows the time of each request, and asks the node in the order of the
// recorded decisions. The counts are empty at the first record. The order is exact, because a record has the
// time of its decision by the clock of the deciding node. With an estimate, the end of the check minus half of
// its took_us, one decision in a hundred differed for a bucket at its limit.
package replay

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/audit"
	"github.com/weir-go/weir/rules"
)

// Input has the records of one or several nodes, each as a line of JSON.
type Input struct {
	Name   string // name in messages, such as that of a file
	Reader io.Reader
}

// Options select records and bound the Report. The zero Options select all records, and no Keys.
type Options struct {
	From, Until time.Time // range of Record.Time, without Until; a zero time is no bound
	Keys        int       // maximum number of Keys that the Report has of each limit
}

// Run decides the records of all inputs again by the rules of a Set. The inputs are merged by time. The
// error is the error of a Reader or of ctx, or that of the start of the node.
func Run(ctx context.Context, set *rules.Set, inputs []Input, o Options) (*Report, error) {
	report := &Report{Notes: make(map[string]int), Damages: []string{}, Limits: []Limit{}}
	p, err := newPlayer(ctx, set, report)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = p.node.Close() }()
	var files []*file
	open := make(map[name]*request)
	for _, in := range inputs {
		files = append(files, &file{Input: in, report: report, in: bufio.NewReaderSize(in.Reader, maxLineBytes), open: open})
	}
	err = merge(files, &o, func(g *group) error {
		p.play(g)
		return ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	if evicted := p.node.Stats().Evicted; evicted > 0 {
		report.Notes["evicted count, because there are too many keys"] = int(evicted)
	}
	for _, rule := range set.Rules() {
		for _, l := range rule.Limits {
			if r := p.results[l.Name]; r != nil {
				r.Keys = r.mostChanged(o.Keys)
				report.Limits = append(report.Limits, *r)
			}
		}
	}
	return report, nil
}

// Report is the result of Run.
type Report struct {
	Records int            `json:"records"`        // read records
	Notes   map[string]int `json:"notes"`          // numbers of records that the replay ignores or does not decide exactly, by the reason; and of evicted counts
	Damaged int            `json:"damaged"`        // number of lines that are not records
	Damages []string       `json:"damages"`        // errors of the first 10 of these lines, with input and line
	First   time.Time      `json:"first,omitzero"` // time of the first decision
	Last    time.Time      `json:"last,omitzero"`  // time of the last decision
	Limits  []Limit        `json:"limits"`         // in the order of the rules

	keys int // number of keys with a changed decision, of all limits
}

// Limit has the results of a limit. The results include the decisions of shadows.
type Limit struct {
	Name         string `json:"name"`
	Recorded     Counts `json:"recorded"`
	Replayed     Counts `json:"replayed"`
	NewlyDenied  int    `json:"newly_denied"`
	NewlyAllowed int    `json:"newly_allowed"`
	Keys         []*Key `json:"keys"` // keys with the most changed decisions. A Report remembers the first 100,000 keys that have one

	changed map[audit.ID]*Key
}

// Counts are numbers of decisions.
type Counts struct {
	Allowed int `json:"allowed"`
	Denied  int `json:"denied"`
}

func (c *Counts) add(allowed bool) {
	if allowed {
		c.Allowed++
	} else {
		c.Denied++
	}
}

// Key has the numbers of changed decisions about a key.
type Key struct {
	ID           audit.ID `json:"id"`
	Key          string   `json:"key,omitempty"` // if the records have it
	NewlyDenied  int      `json:"newly_denied"`
	NewlyAllowed int      `json:"newly_allowed"`
}

// Agreement returns the part of the decisions that are as recorded, 0 to 1. It is 1 if there are no decisions.
func (r *Report) Agreement() float64 {
	all, changed := 0, 0
	for _, l := range r.Limits {
		all += l.Recorded.Allowed + l.Recorded.Denied
		changed += l.NewlyDenied + l.NewlyAllowed
	}
	return 1 - float64(changed)/float64(max(1, all))
}

// Bounds of a Report.
const (
	maxDamages = 10
	maxChanged = 100_000
)

// record adds the decision about a record to the Report. If the limit was not asked, there is no recorded
// decision to compare, so record adds nothing.
func (p *player) record(r *audit.Record, allowed bool) {
	report, at := p.report, timeOf(r)
	if report.First.IsZero() {
		report.First = at
	}
	if at.After(report.Last) {
		report.Last = at
	}
	switch r.Source {
	case unasked:
		return
	case "budget", "failed_open", "failed_closed":
		report.Notes["of a share during an outage: decided by the whole limit"]++
	}
	if r.Operation == "reserve" {
		report.Notes["of an estimate, whose settlement is not recorded: stays spent"]++
	}
	l := p.results[r.Limit]
	if l == nil {
		l = &Limit{Name: r.Limit, changed: make(map[audit.ID]*Key)}
		p.results[r.Limit] = l
	}
	l.Recorded.add(r.Allowed)
	l.Replayed.add(allowed)
	if allowed == r.Allowed {
		return
	}
	k := l.changed[r.ID]
	if k == nil {
		k = &Key{ID: r.ID, Key: r.Key}
		if report.keys < maxChanged {
			report.keys++
			l.changed[r.ID] = k
		}
	}
	if allowed {
		l.NewlyAllowed++
		k.NewlyAllowed++
	} else {
		l.NewlyDenied++
		k.NewlyDenied++
	}
}

// mostChanged returns at most the given number of keys, those with the most changed decisions first.
func (l *Limit) mostChanged(most int) []*Key {
	all := slices.SortedFunc(maps.Values(l.changed), func(a, b *Key) int {
		return cmp.Or(cmp.Compare(b.NewlyDenied+b.NewlyAllowed, a.NewlyDenied+a.NewlyAllowed), cmp.Compare(a.ID.String(), b.ID.String()))
	})
	return append([]*Key{}, all[:min(len(all), max(0, most))]...)
}
