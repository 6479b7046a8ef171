package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// verdict is how a run went.
type verdict struct {
	total    harvest
	played   [kinds]int
	cut      int
	begun    time.Time
	rtt      time.Duration
	grown    [][]growth // of each process that was never killed
	found    [kinds]lab.Fullest
	filled   int64 // percent; -1 if there was no calm window
	outages  []outage
	problems []string
}

// stallSlack is what a check may take beyond its Timeout: on a busy machine a process
// waits for a core.
const stallSlack = 400 * time.Millisecond

// leastFilled is what a key that is asked for without end gets of its limit at least,
// in percent, in the median window without faults.
const leastFilled = 90

// verdict judges everything, once all processes have ended.
func (f *fleet) verdict() *verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := &verdict{begun: f.begun, total: f.total, played: f.played, cut: f.cut, filled: -1, problems: f.problems}
	for _, m := range f.members[:steadfast] {
		v.grown = append(v.grown, judgeGrowth(m.series))
	}
	all := limits(f.o.nodes, f.o.rate)
	v.judge(all, f.accounts, f.faults, f.calmly)
	for i := range f.outages {
		f.outages[i].judge(all, f.accounts)
	}
	v.outages = f.outages
	return v
}

// judge holds each key to what its limit may admit, given the faults.
func (v *verdict) judge(all map[string]weir.Limit, accounts map[string]*account, faults []fault, calmly []span) {
	var took []int64
	for _, a := range accounts {
		for _, s := range a.Admitted {
			took = append(took, s.To-s.From)
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		v.rtt = time.Duration(took[len(took)*99/100])
	}
	for i := range faults { // what a round trip takes depends on what else the machine does
		f := &faults[i]
		before := lab.Between(f.From-int64(aftermath), f.From)
		for _, a := range accounts {
			for _, s := range a.Admitted {
				if f.kind == kill && s.Touches(before) && s.To <= f.From {
					f.rtt = max(f.rtt, time.Duration(s.To-s.From))
				}
			}
		}
	}
	var filled []int64
	for name, a := range accounts {
		limit, _, _ := strings.Cut(name, " ")
		a.audit(name, all[limit], faults, v.rtt, &v.found)
		if limit == "log" {
			if percent, ok := a.filled(all[limit], calmly); ok {
				filled = append(filled, percent)
			}
		}
	}
	if len(filled) > 0 {
		v.filled = median(filled)
	}
}

// broken are the promises that did not hold, in words.
func (v *verdict) broken() (broken []string) {
	add := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	if v.total.Errors > 0 {
		add("%d checks and refunds failed; the first, %s", v.total.Errors, v.total.Error)
	}
	if most := checkTimeout + stallSlack; v.total.Slowest.Took > most {
		add("a check took %s: Timeout is %v, and %v at most are allowed on a busy machine", v.total.Slowest.since(v.begun), checkTimeout, most)
	}
	for k, f := range v.found {
		if f.Held > f.Most {
			add("key %q was admitted %d in a window of kind %q: %d at most", f.Of, f.Held, kind(k), f.Most)
		}
	}
	if v.found[calm].Windows == 0 {
		add("no window was without a fault, so that nothing was held to its limit: let it run longer, or on a machine that is less busy")
	}
	switch {
	case v.filled < 0:
		add("no key was asked for without end while all was calm: let it run longer")
	case v.filled < leastFilled:
		add("a key that was asked for without end got %d%% of its limit while all was calm: %d%% at least", v.filled, leastFilled)
	}
	for i := range v.outages {
		broken = append(broken, v.outages[i].problems...)
	}
	for i, all := range v.grown {
		for _, g := range all {
			if g.problem != "" {
				add("node %d: %s", i+1, g.problem)
			}
		}
	}
	return append(broken, v.problems...)
}

// print writes the verdict for people.
func (v *verdict) print(w io.Writer) {
	fmt.Fprintf(w, "\n%d checks, %d of them denied, %d refunds, %d errors; the 99th percentile took %v\nthe slowest check took %s\n",
		v.total.Asked, v.total.Denied, v.total.Given, v.total.Errors, v.rtt.Round(10*time.Microsecond), v.total.Slowest.since(v.begun))
	var sources []string
	for source, n := range v.total.Sources {
		sources = append(sources, fmt.Sprintf("%s %d", source, n))
	}
	slices.Sort(sources)
	fmt.Fprintf(w, "decided: %s\n", strings.Join(sources, ", "))
	var played []string
	for k, n := range v.played {
		if n > 0 {
			played = append(played, fmt.Sprintf("%v %d", kind(k), n))
		}
	}
	fmt.Fprintf(w, "played: %s; %d connections ended\n", strings.Join(played, ", "), v.cut)
	fmt.Fprintf(w, "a key that is asked for without end got %d%% of its limit in the median calm window\n\n", v.filled)

	fmt.Fprintf(w, "%-28s %9s  %s\n", "windows", "number", "the fullest, of what it may hold")
	for k, f := range v.found {
		if f.Windows > 0 {
			fmt.Fprintf(w, "%-28s %9d  %d of %d (%s)\n", kind(k), f.Windows, f.Held, f.Most, f.Of)
		}
	}
	for i := range v.outages {
		fmt.Fprintln(w, v.outages[i].String())
	}
	fmt.Fprintf(w, "\n%-7s %-12s %9s %9s %9s\n", "process", "figure", "early", "late", "at most")
	for i, all := range v.grown {
		for _, g := range all {
			unit := float64(g.tolerance.unit)
			digits := 0
			if unit > 1 {
				digits = 1
			}
			fmt.Fprintf(w, "node %-2d %-12s %9.*f %9.*f %9.*f\n", i+1, g.tolerance.name,
				digits, float64(g.early)/unit, digits, float64(g.late)/unit, digits, float64(g.most)/unit)
		}
	}
	fmt.Fprintln(w)
	broken := v.broken()
	for _, b := range broken {
		fmt.Fprintf(w, "broken: %s\n", b)
	}
	if len(broken) == 0 {
		fmt.Fprintln(w, "Nothing grew, and every promise held.")
	}
}
