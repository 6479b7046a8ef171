package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// claim is a line of a verdict.
type claim struct {
	name, value, means string
	broken             string // a description of the failure, or empty if the claim holds
}

func newClaim(holds bool, name, value, format string, args ...any) claim {
	c := claim{name: name, value: value, means: fmt.Sprintf(format, args...)}
	if !holds {
		c.broken = fmt.Sprintf("%s: %s, %s", name, value, c.means)
	}
	return c
}

// findings are the results of a run, for readers.
type findings struct {
	sentences []string // the events, and the highest grants
	claims    []claim
	width     int     // width of the values, in columns
	heading   string  // heading of windows
	windows   []claim // claims about the grants in windows
	missed    int
	still     time.Duration
	broken    []string // further broken promises, in words
}

func (m *monitor) newFindings(width int, heading string) *findings {
	return &findings{width: width, heading: heading, still: m.tally.delay.WorstSince(0), broken: m.failures()}
}

func (f *findings) add(holds bool, name, value, format string, args ...any) {
	f.claims = append(f.claims, newClaim(holds, name, value, format, args...))
}

// clients adds the claims about the answers to clients, and returns how many requests
// were answered, failed and stalled.
func (f *findings) clients(t *tally, all *sums) standing {
	s, problem := t.standing(), ""
	f.missed = t.missed
	if t.problem != nil {
		problem = fmt.Sprintf(", the first: %v", t.problem)
	}
	share := 100 * all.allowed / max(1, s.requests)
	f.add(s.requests > 0, "requests", number(s.requests), "answered; %d%% allowed, %d%% denied", share, 100-share)
	f.add(s.errors == 0, "errors", number(s.errors), "from gateways that were up%s; %d more requests were in progress at a gateway that was killed or frozen", problem, t.cut)
	f.add(s.stalls == 0, "stalls", number(s.stalls), "took longer than %v (Timeout and scheduling slack), not counting the time in which the demo or the gateway did not run; the slowest took %s", t.bound, shortUp(t.slowest()))
	return s
}

// window adds a claim about the fullest window of length per, if there is a window. The
// argument means describes the windows.
func (f *findings) window(name string, found lab.Fullest, per time.Duration, means string) {
	if found.Windows == 0 {
		return
	}
	one := newClaim(found.Held <= found.Most, name, fmt.Sprintf("%d of %d", found.Held, found.Most), "in %s windows %s", number(found.Windows), means)
	if one.broken != "" {
		one.broken = fmt.Sprintf("a client was granted %d in one of the windows of %v %s: at most %d are allowed", found.Held, per, means, found.Most)
	}
	f.windows = append(f.windows, one)
}

// failures returns the claims that do not hold and further broken promises, in words.
func (f *findings) failures() (broken []string) {
	for _, c := range slices.Concat(f.claims, f.windows) {
		if c.broken != "" {
			broken = append(broken, c.broken)
		}
	}
	return append(broken, f.broken...)
}

// print prints whether all promises held, the sentences, the broken promises, and the
// claims. It calls show for each line. If show breaks a line, it indents the rest by hang.
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
		say(dim, "This machine is busy: the demo did not run for up to %s at a time, and did not send %s requests in time.", short(max(f.still, stillSlack)), number(f.missed))
	}
}

const (
	// mostTimedOut is the maximum percentage of checks that may be answered without the
	// owner although it was up. A busy machine causes some of these. More of them mean
	// that the run shows an outage.
	mostTimedOut = 10
	// enoughToJudge is the number of requests that show whether the fleet was healthy.
	enoughToJudge = 1000
)

// describeEvents returns the events of the run, in words.
func (f *fleet) describeEvents() string {
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

// assessment compares the answers of a run, or of its rounds so far, with the promises.
type assessment struct {
	seen  sums
	late  int // number of checks without a fault or a stand-still that neither the owner nor the stand-in of an owner that was down decided
	found fullest
}

// assess adds the answers of the tally.
func (m *monitor) assess(to *assessment) {
	f, t := m.fleet, m.tally
	during, still := f.occasions(), f.gatewaysStill(0)
	to.seen.merge(sum(t.answers, func(*answer) bool { return true }))
	c := circumstances{roundTrip: sum(t.answers, func(a *answer) bool { return a.at == asked }).checks.Quantile(0.99), long: f.aftermath > 0, saved: f.saved}
	faults := slices.Concat(during[crashed:]...)
	unanswered := make(map[account][]span) // times in which checks may have been admitted without the owner, except by the stand-in of an owner that was down
	for _, a := range t.answers {
		if a.at == asked && slices.ContainsFunc(during[crashed], func(s span) bool { return a.check.To <= s.From && a.check.To > s.From-int64(f.aftermath) }) {
			c.roundTrip = max(c.roundTrip, a.check.Length()) // it depends on the other work of the machine
		}
		if a.err != nil || !elsewhereAt(a.at) {
			continue
		}
		down := a.at == stoodIn && f.wasDown(f.incarnationOf(a.owner), a.check)
		excused, isExcused := unsettled(a.check, still)
		if !down && !near(faults, a.check) && !isExcused {
			to.late++
		}
		switch {
		case down:
		case isExcused:
			unanswered[a.account] = append(unanswered[a.account], excused)
		case a.allowed:
			unanswered[a.account] = append(unanswered[a.account], a.check)
		}
	}
	limits := f.rules.limits()
	for key, admitted := range t.admissions(func(a *answer) bool { return limits[a.path] != nil }) {
		o := *during
		o[timedOut] = append(slices.Clone(o[timedOut]), unanswered[key]...)
		to.found.add(key.String(), admitted, limits[key.path], &o, &c)
	}
}

// judge judges the answers to the clients, after all gateways have ended. The argument
// over is the end of the traffic in Unix nanoseconds.
func (m *monitor) judge(over int64) *findings {
	if len(m.regions) > 0 {
		return m.judgeRegions(over)
	}
	var a assessment
	m.assess(&a)
	f, found := m.fleet, &a.found
	v := m.newFindings(9, fmt.Sprintf("The most that a client received in a window of %v, and its bound:", f.per))
	s := v.clients(m.tally, &a.seen)
	v.sentences = []string{
		fmt.Sprintf("%d gateways answered %s requests%s; %d failed and %d stalled.", f.nodes, number(s.requests), f.describeEvents(), s.errors, s.stalls),
		fmt.Sprintf("In %s windows of %v without a fault, no client was granted more than %d. The limit is %d.", number(found[healthy].Windows), f.per, found[healthy].Held, f.limit),
	}
	v.checks(&a)
	v.add(true, "lag", short(f.lag), "the maximum lag of copies")
	for _, h := range f.happened {
		if h.kind == reload && h.seenBy != never {
			v.add(true, "reload", short(time.Duration(h.seenBy-h.from)), "until all gateways decided by the new rules")
		}
	}
	for g := range guarantees {
		v.window(g.String(), found[g], f.per, g.means(found[g].Most-f.limit-f.limit/16))
	}
	for i, inc := range f.current {
		if inc.hasCondition(starting) {
			v.broken = append(v.broken, fmt.Sprintf("gateway %d did not start in time", i+1))
		}
	}
	return v
}

// checks adds the claims about the duration of checks and the nodes that decided them.
func (f *findings) checks(a *assessment) {
	all, answered := &a.seen, a.seen.answered()
	f.add(true, "p50", short(all.took.Quantile(0.5)), "of requests over HTTP; of the checks in them %s", short(all.checks.Quantile(0.5)))
	f.add(true, "p99", short(all.took.Quantile(0.99)), "of requests over HTTP; of the checks in them %s", short(all.checks.Quantile(0.99)))
	f.add(answered < enoughToJudge || a.late*100 <= answered*mostTimedOut, "timeouts", number(a.late), "checks not decided by the owner, or by the stand-in of an owner that was down, although that gateway was up and not delayed by the machine; at most %d%%", mostTimedOut)
	f.add(true, "stand-in", number(all.at[stoodIn]), "checks answered by a copy of the count; %s more by a share of the limit", number(all.at[budget]))
	// Without a window, the claims about windows would hold without evidence.
	if answered >= enoughToJudge && a.found[healthy].Windows == 0 {
		f.broken = append(f.broken, "no client was granted a unit in a window without a fault, so the run shows nothing about a healthy cluster")
	}
}

// number returns the decimal form of n with a separator after each group of three digits.
func number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short formats a duration in at most three digits.
func short(d time.Duration) string {
	if d == 0 {
		return unknown
	}
	return d.Round(unitOf(d)).String()
}

// shortUp is like short, but rounds up, so that a duration above a bound of three digits
// does not look like the bound.
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
