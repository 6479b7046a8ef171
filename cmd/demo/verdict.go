package main

import (
	"fmt"
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

// findings is how a run went, for people.
type findings struct {
	sentences []string // what happened, and the most that was granted
	claims    []claim
	width     int     // of their values, in columns
	heading   string  // of windows
	windows   []claim // what was granted in them
	missed    int
	still     time.Duration
	broken    []string // what else was promised and did not hold, in words
}

// add adds a claim.
func (f *findings) add(holds bool, name, value, format string, args ...any) {
	f.claims = append(f.claims, newClaim(holds, name, value, format, args...))
}

// clients adds the claims on what the clients saw, and returns how many requests were
// answered, failed and stalled.
func (f *findings) clients(t *tally) (requests, errors, stalled int) {
	all, problem := sum(t.answers, func(*answer) bool { return true }), ""
	requests, errors, stalled, f.missed = all.answered(), t.errors, t.stalls(t.slow, (*answer).waited, t.bound), t.missed
	if t.problem != nil {
		problem = fmt.Sprintf(", the first: %v", t.problem)
	}
	share := 100 * all.allowed / max(1, requests)
	f.add(requests > 0, "requests", number(requests), "answered; %d%% allowed, %d%% denied", share, 100-share)
	f.add(errors == 0, "errors", number(errors), "from gateways that were up%s; %d more requests were under way at one that was killed or frozen", problem, t.cut)
	f.add(stalled == 0, "stalls", number(stalled), "took longer than %v, Timeout and slack for scheduling, while neither this machine nor the gateway stood still; the slowest so took %s", t.bound, shortUp(t.slowest()))
	return requests, errors, stalled
}

// window adds a claim about the fullest window of length per, if there is a window. means
// describes the windows.
func (f *findings) window(name string, found lab.Fullest, per time.Duration, means string) {
	if found.Windows == 0 {
		return
	}
	one := newClaim(found.Held <= found.Most, name, fmt.Sprintf("%d of %d", found.Held, found.Most), "in %s windows %s", number(found.Windows), means)
	if one.broken != "" {
		one.broken = fmt.Sprintf("a client got %d in one of the windows of %v %s: %d at most", found.Held, per, means, found.Most)
	}
	f.windows = append(f.windows, one)
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

// print writes them: three sentences, what is broken, and the table. show writes a line whose
// continuation is indented by hang.
func (f *findings) print(show func(l line, hang int)) {
	say := func(c colour, format string, args ...any) { show(line{}.add(c, fmt.Sprintf(format, args...)), 2) }
	failures := f.failures()
	if len(failures) == 0 {
		say(green, "Every promise held.")
	} else {
		say(red, "%d of the promises did not hold.", len(failures))
	}
	for _, sentence := range f.sentences {
		say(plain, "%s", sentence)
	}
	for _, failure := range failures {
		prefix := "broken: "
		for text := range strings.Lines(failure) {
			show(line{}.add(red, prefix).add(plain, strings.TrimSpace(text)), len(prefix))
			prefix = "        "
		}
	}
	for _, part := range []struct {
		heading string
		claims  []claim
	}{{"", f.claims}, {f.heading, f.windows}} {
		if len(part.claims) > 0 {
			say(plain, "")
		}
		if len(part.claims) > 0 && part.heading != "" {
			say(plain, "%s", part.heading)
		}
		for _, c := range part.claims {
			l := line{}.add(green, "  ✓")
			if c.broken != "" {
				l = line{}.add(red, "  ✗")
			}
			l = l.add(plain, fmt.Sprintf(" %-9s ", c.name)).add(bold, fmt.Sprintf("%*s", f.width, c.value)).add(dim, "  "+c.means)
			show(l, 16+f.width)
		}
	}
	if f.missed > 0 || f.still > 0 {
		say(dim, "This machine is busy: it stood still for up to %s, and %s requests were not sent in time.", short(max(f.still, stillSlack)), number(f.missed))
	}
}

const (
	// mostTimedOut is how many of a hundred checks may be answered without the
	// owner though it was up. A busy machine has some; with more, the run shows an
	// outage.
	mostTimedOut = 10
	// enoughToJudge is how many requests show whether the fleet was healthy.
	enoughToJudge = 1000
)

// meanwhile is what happened, in words.
func (f *fleet) meanwhile() string {
	var happened []string
	for _, h := range f.happened {
		if what := kinds[h.kind].happened; what != "" && !slices.Contains(happened, what) {
			happened = append(happened, what)
		}
	}
	if len(happened) == 0 {
		return ""
	}
	return " while " + strings.Join(happened, ", ")
}

// judge judges by what the clients saw, once all gateways have ended, and the traffic at a time
// in Unix nanoseconds.
func (m *monitor) judge(over int64) *findings {
	if len(m.regions) > 0 {
		return m.judgeRegions(over)
	}
	f, t := m.fleet, m.tally
	during, outvoted, still := f.occasions(), f.outvoted(), f.gatewaysStill(0)
	all := sum(t.answers, func(*answer) bool { return true })
	rtt := sum(t.answers, func(a *answer) bool { return a.at == asked }).checks.Quantile(0.99)
	var unanswered [clients][]span // admitted without the one to ask, which was up
	late := 0                      // checks without authority where the one to ask was up, no crash or freeze was near, and no gateway stood still
	for _, a := range t.answers {
		if a.err != nil || !elsewhereAt(a.at) {
			continue
		}
		down := f.wasDown(f.named(a.owner), a.check)
		if a.at == budget {
			down = near(outvoted, a.check) // otherwise there is an owner or a stand-in to ask
		}
		excused, isExcused := unsettled(a.check, still)
		if !down && !near(during[crashed], a.check) && !near(during[timedOut], a.check) && !isExcused {
			late++
		}
		switch {
		case down:
		case isExcused:
			unanswered[a.client] = append(unanswered[a.client], excused)
		case a.allowed:
			unanswered[a.client] = append(unanswered[a.client], a.check)
		}
	}
	var found fullest
	for client, admitted := range t.admissions(func(a *answer) bool { return a.path == "/" }) {
		o := *during
		o[timedOut] = append(slices.Clone(o[timedOut]), unanswered[client]...)
		found.add(admitted, &o, rtt, f.limit, f.per)
	}

	v := &findings{
		width: 9, still: t.lateness.WorstSince(time.Time{}),
		heading: fmt.Sprintf("The most that a client got in a window of %v, of what it is promised there at most:", f.per),
	}
	requests, errors, stalled := v.clients(t)
	v.sentences = []string{
		fmt.Sprintf("%d gateways answered %s requests%s; %d failed and %d stalled.", f.nodes, number(requests), f.meanwhile(), errors, stalled),
		fmt.Sprintf("In %s windows of %v in which all was well no client got more than %d, and its limit is %d.", number(found[healthy].Windows), f.per, found[healthy].Held, f.limit),
	}
	v.add(true, "p50", short(all.took.Quantile(0.5)), "of requests over HTTP; of the checks in them %s", short(all.checks.Quantile(0.5)))
	v.add(true, "p99", short(all.took.Quantile(0.99)), "of requests over HTTP; of the checks in them %s", short(all.checks.Quantile(0.99)))
	v.add(all.answered() < enoughToJudge || late*100 <= all.answered()*mostTimedOut, "timeouts", number(late), "checks not answered by the one to ask, owner or stand-in, though it was up and had a core; at most %d%%", mostTimedOut)
	v.add(true, "stand-in", number(all.at[stoodIn]), "checks answered by a copy of the count; %s more by a share of the limit", number(all.at[budget]))
	v.add(true, "lag", short(f.lag), "the furthest that copies were behind")
	for _, h := range f.happened {
		if h.kind == reload && h.seenBy != never {
			v.add(true, "reload", short(time.Duration(h.seenBy-h.from)), "until all gateways decided by the new rules")
		}
	}
	for g := range guarantees {
		v.window(g.String(), found[g], f.per, g.means(found[g].Most-g.most(f.limit, 0)))
	}
	v.broken = f.failures()
	for i, inc := range f.current {
		if inc.is(starting) {
			v.broken = append(v.broken, fmt.Sprintf("gateway %d did not start in time", i+1))
		}
	}
	// Without it the others could hold because nothing was there to judge.
	if requests >= enoughToJudge && found[healthy].Windows == 0 {
		v.broken = append(v.broken, "no client got anything in a window without a fault: nothing was seen of health")
	}
	return v
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
	if d == 0 {
		return unknown
	}
	return d.Round(unitOf(d)).String()
}

// shortUp is short, rounded up: a duration above a bound of three digits does not look like
// the bound.
func shortUp(d time.Duration) string {
	unit := unitOf(d)
	return short((d + unit - 1).Truncate(unit))
}

// unitOf returns the unit of the last of three digits, at least a microsecond.
func unitOf(d time.Duration) time.Duration {
	unit := time.Microsecond
	for d >= 1000*unit {
		unit *= 10
	}
	return unit
}
