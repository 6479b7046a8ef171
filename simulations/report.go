package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/bounds"
	"github.com/weir-go/weir/internal/enum"
)

const columns = 96 // maximum width of a report

// printReport prints the windows of a run second by second, the faults between them, and a
// verdict for each invariant.
func printReport(w io.Writer, j *Journal, broken []Broken) {
	printHeading(w, j.Scenario)
	r := newTrial(j)
	if a := r.mostAsked(); a != nil {
		printTable(w, j.Scenario, a)
	}
	printVerdicts(w, broken)
	fmt.Fprintf(w, "\n%d checks in %v of virtual time, played in %v\n", len(j.Checks), j.Scenario.Lasts, j.Took.Round(time.Millisecond))
}

func printHeading(w io.Writer, s *Scenario) {
	printWrapped(w, s.Name+": ", "", s.About)
	membership := "simulated"
	if s.Gossip {
		membership = "gossip"
	}
	fmt.Fprintf(w, "%d nodes, %v, membership %s, seed %d\n", len(s.Nodes), s.Lasts, membership, s.Seed)
	for _, l := range s.Limits {
		fmt.Fprintf(w, "limit %s: %d per %s, burst %d, %v, %v, %v\n", l.Name, l.Rate, enum.Duration(l.Per), l.Burst, l.Algorithm, l.Partition, l.Scope)
	}
}

// printTable prints the window that ends at each second, for the count that was asked for
// the most units, and the faults at their times.
func printTable(w io.Writer, s *Scenario, a *asks) {
	samples := a.samples(s.Lasts, int((s.Lasts+time.Second-1)/time.Second))
	fmt.Fprintf(w, "\nUnits of the most requested key that were admitted in the %s that ends at each second:\n%7s ", enum.Duration(a.l.Per), "second")
	for side := range samples[0].sides {
		name := fmt.Sprintf("side %d", side+1)
		if a.planet != nil {
			name = a.planet.names[side]
		}
		fmt.Fprintf(w, " %8s", name)
	}
	fmt.Fprintf(w, "  %8s %8s %8s  row of the guarantees\n", "all", "limit", "bound")
	faults := s.Faults
	for _, at := range samples[1:] {
		for ; len(faults) > 0 && faults[0].At < at.at; faults = faults[1:] {
			printWrapped(w, fmt.Sprintf("%7s ─ ", enum.Duration(faults[0].At)), strings.Repeat(" ", 10), faults[0].describe())
		}
		fmt.Fprintf(w, "%7.4g ", at.at.Seconds())
		for _, units := range at.sides {
			fmt.Fprintf(w, " %8d", units)
		}
		bound, mark := bounds.Bound(a.l, at.Situation)+a.inFlight(at.at-a.l.Per, at.at), ""
		if at.all > bound {
			mark = " ✗"
		}
		fmt.Fprintf(w, "  %8d %8d %8d  %s%s\n", at.all, a.l.Rate, bound, at.rowName(), mark)
	}
}

func (f *Fault) describe() string {
	b, objects := new(strings.Builder), slices.Clone(f.Nodes)
	for i, side := range f.Sides {
		if i > 0 {
			objects = append(objects, "|")
		}
		objects = append(objects, side...)
	}
	b.WriteString(strings.Join(slices.Concat([]string{f.Kind.String()}, objects), " "))
	if f.Kind == FaultCut || f.Kind == FaultLink {
		fmt.Fprintf(b, " %s → %s", cmp.Or(f.From, "all"), cmp.Or(f.To, "all"))
	}
	if f.Kind == FaultLink {
		fmt.Fprintf(b, ": latency %s, jitter %s, loss %s", enum.Duration(f.Link.Latency), enum.Duration(f.Link.Jitter), percent(f.Link.Loss))
	}
	if f.Breaks {
		b.WriteString(", and connections break")
	}
	if f.Kind == FaultSkew {
		fmt.Fprintf(b, " by %v", f.By)
	}
	if f.Kind == FaultSlow {
		fmt.Fprintf(b, ": paused for %s", enum.Duration(f.Pauses))
		if f.Pauses > 0 {
			fmt.Fprintf(b, " of each %s", enum.Duration(f.Every))
		}
	}
	return b.String()
}

// printVerdicts prints a line for each invariant that holds, and a line for each violation.
func printVerdicts(w io.Writer, broken []Broken) {
	fmt.Fprintln(w)
	for _, i := range invariants {
		holds := true
		for _, b := range broken {
			if b.Invariant == i.name {
				holds = false
				b.print(w)
			}
		}
		if holds {
			printWrapped(w, fmt.Sprintf("✓ %-14s ", i.name), strings.Repeat(" ", 17), i.means)
		}
	}
}

func (b *Broken) print(w io.Writer) {
	printWrapped(w, fmt.Sprintf("✗ %-14s ", b.Invariant), strings.Repeat(" ", 17), fmt.Sprintf("at %s: %s", enum.Duration(b.At), b.Finding))
}

// printWrapped prints text in lines of at most columns characters. The first line begins
// with the text first, and the other lines with the text indent.
func printWrapped(w io.Writer, first, indent, text string) {
	line, begun := first, false
	for word := range strings.FieldsSeq(text) {
		if begun && utf8.RuneCountInString(line+word) > columns {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line = indent
		}
		line, begun = line+word+" ", true
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}
