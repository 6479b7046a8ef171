package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// claim is one line of a verdict.
type claim struct {
	name, value, means string
	broken             string // in words; empty if it held
}

func newClaim(holds bool, name, value, format string, args ...any) claim {
	c := claim{name: name, value: value, means: fmt.Sprintf(format, args...)}
	if !holds {
		c.broken = fmt.Sprintf("%s: %s, %s", name, value, c.means)
	}
	return c
}

// or has the claim say in other words that it is broken, if it is.
func (c claim) or(format string, args ...any) claim {
	if c.broken != "" {
		c.broken = fmt.Sprintf(format, args...)
	}
	return c
}

// findings is how a run went, for people.
type findings struct {
	claims  []claim
	width   int     // of their values, in columns
	heading string  // of windows
	windows []claim // what was granted in them; none if these are among claims
	missed  int
	still   time.Duration
	broken  []string // what else was promised and did not hold, in words
}

// add adds a claim.
func (f *findings) add(holds bool, name, value, format string, args ...any) {
	f.claims = append(f.claims, newClaim(holds, name, value, format, args...))
}

// failures is the claims that do not hold, and what else does not, in words.
func (f *findings) failures() (broken []string) {
	for _, c := range slices.Concat(f.claims, f.windows) {
		if c.broken != "" {
			broken = append(broken, c.broken)
		}
	}
	return append(broken, f.broken...)
}

// print writes them.
func (f *findings) print(w io.Writer, p palette) {
	rows := func(claims []claim) {
		for _, c := range claims {
			mark := p.paint(green, "✓")
			if c.broken != "" {
				mark = p.paint(red, "✗")
			}
			fmt.Fprintf(w, "  %s %-9s %s  %s\n", mark, c.name, p.paint(bold, right(c.value, f.width)), p.paint(dim, c.means))
		}
	}
	rows(f.claims)
	if f.heading != "" {
		fmt.Fprintf(w, "\n  %s\n\n", f.heading)
	}
	rows(f.windows)
	if f.missed > 0 || f.still > 0 {
		fmt.Fprintf(w, "    %s\n", p.paint(dim, fmt.Sprintf("This machine is busy: it stood still for up to %s, and %s requests were not sent in time.", short(max(f.still, stillSlack)), number(f.missed))))
	}
	fmt.Fprintln(w)
	failures := f.failures()
	for _, failure := range failures {
		fmt.Fprintf(w, "  %s %s\n", p.paint(red, "broken:"), strings.TrimSpace(failure))
	}
	if len(failures) == 0 {
		fmt.Fprintf(w, "  %s\n", p.paint(green, "Every promise held."))
	}
}

// verdict is how a run of one region went, judged by what the clients saw.
type verdict struct {
	saw      *tally
	fleet    *fleet
	still    time.Duration // the longest that the machine stood still
	strain   *strain       // what the checks of busy gateways came to, nil if they have not all told
	lost     int           // times that one took another for gone then, or later
	delay    time.Duration // after the load until checks were exact again, or no gateway looked any more, less the time that the machine stood still
	found    [guarantees]closest
	timedOut int      // checks without authority where the one to ask was up, no crash or freeze was near, and no gateway stood still
	broken   []string // promises of the fleet, in words
}

// judge looks at everything once the traffic has ended.
func judge(f *fleet, t *tally) verdict {
	during, outvoted, busy, still := f.occasions(), f.outvoted(), f.whenBusy(), f.gatewaysStill()
	t.mu.Lock()
	defer t.mu.Unlock()
	v := verdict{saw: t, fleet: f, still: t.lateness.Longest(moments(busy)...)}
	rtt := t.asked.Quantile(0.99)
	var unanswered [clients][]span // admitted without the one to ask, which was up; of busy gateways also denied
	for _, e := range t.others {
		down := f.ownerWasDown(e.owner, e.check.from, e.check.to)
		if e.at == budget {
			down = near(outvoted, e.check) // otherwise there is an owner or a stand-in to ask
		}
		late, isLate := excuse(e.check, busy)
		if !isLate {
			late, isLate = unsettled(e.check, still)
		}
		if !down && !near(during[crashed], e.check) && !near(during[timedOut], e.check) && !isLate {
			v.timedOut++
		}
		switch {
		case down:
		case isLate:
			unanswered[e.client] = append(unanswered[e.client], late)
		case e.allowed:
			unanswered[e.client] = append(unanswered[e.client], e.check)
		}
	}
	for client, admitted := range t.admitted {
		o := *during
		o[timedOut] = append(slices.Clone(o[timedOut]), unanswered[client]...)
		for g, found := range fullest(admitted, &o, rtt, f.per) {
			v.found[g].add(guarantee(g), found, f.limit)
		}
	}
	if v.strain, v.lost = f.endurance(); v.strain != nil {
		after := span{v.strain.Over, min(v.strain.Exact, v.strain.Over+int64(exactLooks))}
		v.delay = after.length() - stood(&t.lateness, after, still)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, inc := range f.current {
		if inc.is(starting) {
			f.breaks("gateway %d did not start in time", i+1)
		}
	}
	v.broken = slices.Clone(f.broken)
	return v
}

func moments(spans []span) (all []lab.Span) {
	for _, s := range spans {
		all = append(all, lab.Span{From: time.Unix(0, s.from), To: time.Unix(0, s.to)})
	}
	return all
}

const (
	// mostTimedOut is how many of a hundred checks may be answered without the
	// owner though it was up. A busy machine has some; with more, the run shows an
	// outage.
	mostTimedOut = 10
	// enoughToJudge is how many requests show whether the fleet was healthy.
	enoughToJudge = 1000
)

// findings is the verdict in words.
func (v *verdict) findings() *findings {
	t := v.saw
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &findings{
		width: 9, missed: t.missed, still: v.still, broken: v.broken,
		heading: fmt.Sprintf("The most that a client got in a window of %v, of what it is promised there at most:", v.fleet.per),
	}
	usual, stalls, proof := t.total.answered(), t.stalls(), v.fleet.proof
	requests := usual + t.strained.answered()
	share := 100 * (t.total.allowed + t.strained.allowed) / max(1, requests)
	claim := func(c claim) { f.claims = append(f.claims, c) }
	claim(newClaim(requests > 0, "requests", number(requests), "%d%% allowed, %d%% denied", share, 100-share).
		or("no request was answered at all"))
	claim(newClaim(t.errors == 0, "errors", number(t.errors), "from gateways that were up; %d more requests were under way at one that was killed or frozen", t.cut).
		or("%s: clients of gateways that were up saw errors, the first: %v", number(t.errors), t.problem))
	claim(newClaim(stalls == 0, "stalls", number(stalls), "longer than %v: Timeout and slack for scheduling; the slowest took %s", stallBound, short(max(t.total.took.Most, t.strained.took.Most))).
		or("%s requests to gateways that were up took longer than %v", number(stalls), stallBound))
	for _, q := range []struct {
		name string
		part float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		f.add(true, q.name, short(t.total.took.Quantile(q.part)), "of requests over HTTP; of the checks in them %s", short(t.checks.Quantile(q.part)))
	}
	claim(newClaim(usual < enoughToJudge || v.timedOut*100 <= usual*mostTimedOut, "timeouts", number(v.timedOut), "checks not answered by the one to ask, owner or stand-in, though it was up and had a core; at most %d%%", mostTimedOut).
		or("%s of %s checks were not answered by the owner or stand-in to ask, though it was up, more than %d%%", number(v.timedOut), number(usual), mostTimedOut))
	f.add(true, "stand-in", number(t.total.at[stoodIn]), "checks answered by a copy of the count; %s more by a share of the limit", number(t.total.at[budget]))
	f.add(true, "lag", short(v.fleet.lag), "the furthest that copies were behind")
	if proof.reloaded > 0 {
		f.add(true, "reload", short(proof.reloaded), "until all gateways decided by the new rules; no request failed by it, and no count was reset")
	}
	if proof.overruled > 0 {
		f.add(true, "override", short(proof.overruled), "until all gateways decided by what one's admin API was told")
	}
	f.claims = append(f.claims, v.busyClaims()...)
	for g, found := range v.found {
		most, means := found.promise.most(guarantee(g)), found.promise.means(guarantee(g))
		f.windows = append(f.windows, newClaim(found.most <= most, guarantee(g).String(), fmt.Sprintf("%d of %d", found.most, most), "in %s windows %s", number(found.windows), means).
			or("a client got %d in one of the windows of %v %s: %d at most", found.most, v.fleet.per, means, most))
	}
	// Without it the others could hold because nothing was there to judge.
	if requests >= enoughToJudge && v.found[healthy].windows == 0 {
		f.broken = append(slices.Clip(f.broken), "no client got anything in a window without a fault: nothing was seen of health")
	}
	return f
}

// number writes n with its thousands apart.
func number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short is a duration in at most three digits.
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
