package stats_test

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/stats"
)

func at(d time.Duration) int64 { return int64(time.Hour + d) }

// of returns the facts of a roster of three members, some of which are not reached.
func of(unreached ...string) stats.OutageFacts {
	return stats.OutageFacts{Unreached: unreached, Reached: 3 - len(unreached), Roster: 3}
}

// shown returns the text of a log line without the time of day.
func shown(line *stats.Line) string {
	var text strings.Builder
	line.Log(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			return slog.Attr{}
		case "since":
			return slog.String(a.Key, fmt.Sprint(a.Value.Time().Sub(time.Unix(0, at(0)))))
		}
		return a
	}})))
	return strings.TrimSpace(text.String())
}

// A node calls Observe once a second and logs the returned line.
func Example() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "since" || a.Key == slog.MessageKey {
			return slog.Attr{}
		}
		return a
	}}))
	var t stats.OutageTracker
	facts := stats.OutageFacts{Reached: 3, Roster: 3}
	for second := int64(1); second <= 12; second++ {
		switch second {
		case 3: // a member crashes
			facts.Reached, facts.Unreached = 2, []string{"b"}
			facts.Decisions.StandIn = 7
		case 6: // the member is back
			facts.Reached, facts.Unreached = 3, nil
		}
		t.Observe(facts, second*int64(time.Second)).Log(log)
	}
	fmt.Println(t.Stats().Count, "outage")
	// Output:
	// level=WARN lasted=1s missing=[b] reached=2 roster=3 expect=0 decisions=7 stand_in=7 budget=0 failed_open=0 failed_closed=0
	// level=INFO lasted=3s missing=[b] reached=3 roster=3 expect=0 decisions=7 stand_in=7 budget=0 failed_open=0 failed_closed=0
	// 1 outage
}

func TestObserveLogsWhatChanges(t *testing.T) {
	type step struct {
		after time.Duration // since the previous step
		facts stats.OutageFacts
		want  string // a part of the line, "" for no line
	}
	decided := func(f stats.OutageFacts, d stats.OutageDecisions) stats.OutageFacts {
		f.Decisions = d
		return f
	}
	short := func(roster, expect int, left bool) stats.OutageFacts {
		return stats.OutageFacts{Reached: roster, Roster: roster, Expect: expect, Left: left}
	}
	second := time.Second
	for name, steps := range map[string][]step{
		"nothing of a healthy node": {{second, of(), ""}, {stats.OutageQuiet, of(), ""}},
		"its beginning and its end": {
			{second, of(), ""},
			{second, of("b"), "WARN msg=\"outage began"},
			{second, of("b"), ""},
			{second, of(), ""},
			{stats.OutageQuiet - second - 1, of(), ""},
			{1, of(), "INFO msg=\"outage ended"},
			{second, of("c"), "since=9s lasted=0s missing=[c]"},
		},
		"further members once, and those that are back after OutageQuiet": {
			{second, of("b"), "missing=[b]"},
			{second, of("b", "c"), "WARN msg=\"outage changed: other members are missing\" since=1s lasted=1s missing=\"[b c]\" reached=1 roster=3"},
			{second, of("b", "c"), ""},
			{stats.OutageQuiet - 1, of("c"), ""},
			{1, of("c"), "WARN msg=\"outage changed: other members are missing\" since=1s lasted=7s missing=[c] reached=2"},
			{second, of("c"), ""},
			{second, of("b"), "changed"},
		},
		"all members that were missing at its end": {
			{second, of("b"), "missing=[b]"},
			{second, of("c"), "missing=\"[b c]\""},
			{stats.OutageQuiet, of("c"), "changed: other members are missing\" since=1s lasted=6s missing=[c]"},
			{stats.OutageQuiet, of(), "ended: owners decide every check again\" since=1s lasted=6s missing=\"[b c]\""},
		},
		"no line as all members are back and decisions go on": {
			{second, of("b"), "began"},
			{stats.OutageQuiet - 1, decided(of(), stats.OutageDecisions{Budget: 1}), ""},
			{second, decided(of(), stats.OutageDecisions{Budget: 2}), ""},
			{stats.OutageQuiet, decided(of(), stats.OutageDecisions{Budget: 2}), "ended"},
		},
		"one outage of a link that flaps": {
			{second, of("b"), "began"},
			{second, of(), ""}, {stats.OutageQuiet - 2, of("b"), ""}, {second, of(), ""}, {second, of("b"), ""}, {second, of(), ""},
			{stats.OutageQuiet, of(), "lasted=8s missing=[b]"},
		},
		"decisions without an owner though nobody is missing": {
			{second, of(), ""},
			{second, decided(of(), stats.OutageDecisions{Budget: 1}), "since=1s lasted=1s missing=[] reached=3 roster=3 expect=0 decisions=1 stand_in=0 budget=1"},
			{second, decided(of(), stats.OutageDecisions{1, 2, 3, 4}), ""},
			{stats.OutageQuiet, decided(of(), stats.OutageDecisions{1, 2, 3, 4}), "lasted=2s missing=[] reached=3 roster=3 expect=0 decisions=10 stand_in=1 budget=2 failed_open=3 failed_closed=4"},
			{second, decided(of("b"), stats.OutageDecisions{1, 2, 3, 5}), "decisions=1 stand_in=0 budget=0 failed_open=0 failed_closed=1"},
		},
		"a roster below the expected size for OutageQuiet": {
			{second, short(3, 3, false), ""},
			{second, short(2, 3, false), ""},
			{stats.OutageQuiet - second - 1, short(2, 3, false), ""},
			{1, short(2, 3, false), "began: checks may be decided without their owners\" since=1s lasted=5s missing=[] reached=2 roster=2 expect=3"},
			{second, short(3, 3, false), ""},
			{stats.OutageQuiet - second, short(2, 3, false), ""},
			{stats.OutageQuiet, short(3, 3, false), "ended"},
		},
		"nodes that start and stop together": {
			{second, short(0, 3, false), ""}, {second, short(1, 3, false), ""}, {second, short(3, 3, false), ""},
			{time.Hour, short(3, 3, false), ""}, {second, short(2, 3, false), ""}, {second, short(1, 3, false), ""}, {second, short(0, 3, true), ""},
		},
		"no short roster of a node that has left": {{second, short(0, 3, true), ""}},
		"the end though the clock was set back": {
			{second, of("b"), "began"},
			{-time.Minute, of(), "ended"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var o stats.OutageTracker
			now := time.Duration(0)
			o.Restart(at(now))
			for i, s := range steps {
				now += s.after
				got := shown(o.Observe(s.facts, at(now)))
				if s.want == "" {
					require.Empty(t, got, "step %d", i)
				}
				require.Contains(t, got, s.want, "step %d", i)
			}
		})
	}
}

// A view with a lost member may be replaced before the next Observe.
func TestAMemberThatWasLostForAMomentCounts(t *testing.T) {
	var o stats.OutageTracker
	require.Nil(t, o.Observe(of(), at(0)))
	o.Lost(at(100*time.Millisecond), "b")
	require.Nil(t, o.Observe(of(), at(time.Second)), "no check went without it")
	o.Lost(at(1200*time.Millisecond), "b", "c")
	o.Lost(at(1300*time.Millisecond), "b")
	f := of()
	f.Decisions.StandIn = 3
	require.Contains(t, shown(o.Observe(f, at(2*time.Second))), "since=1s lasted=1s missing=\"[b c]\"", "as long as decisions may have been made so")
	require.Equal(t, stats.OutageStats{Since: time.Unix(0, at(time.Second)), Missing: []string{"b", "c"}, Decisions: 3, Count: 1}, o.Stats())
}

// The time during which an OutageTracker rests is not part of the next outage.
func TestAnOutageAfterARestBeginsWithItsEvent(t *testing.T) {
	decided, short := of(), of()
	decided.Decisions.Budget, short.Roster, short.Expect = 1, 2, 3
	full := of()
	full.Expect = 3
	for name, c := range map[string]struct {
		facts stats.OutageFacts
		want  string // a second later
		later string // OutageQuiet later
	}{
		"a lost member":            {of("b"), "since=1h0m0s lasted=1s missing=[b]", ""},
		"a decision without owner": {decided, "since=1h0m0s lasted=1s missing=[]", ""},
		"a short roster":           {short, "", "since=1h0m0s lasted=5s missing=[]"},
	} {
		t.Run(name, func(t *testing.T) {
			o := stats.OutageTracker{Event: make(chan struct{}, 1)}
			require.Nil(t, o.Observe(full, at(0)))
			require.True(t, o.MayRest())
			o.Lost(at(time.Hour), c.facts.Unreached...)
			o.Resume(at(time.Hour))
			require.Contains(t, shown(o.Observe(c.facts, at(time.Hour+time.Second))), c.want)
			require.False(t, o.MayRest())
			require.Len(t, o.Event, len(c.facts.Unreached))
			require.Contains(t, shown(o.Observe(c.facts, at(time.Hour+stats.OutageQuiet))), c.later)
		})
	}
}

func TestWhatANodeLostAsItStartedIsNoOutage(t *testing.T) {
	var o stats.OutageTracker
	o.Lost(at(0), "b")
	o.Restart(at(time.Second))
	f := of()
	f.Decisions.Budget = 1
	require.Contains(t, shown(o.Observe(f, at(2*time.Second))), "since=1s lasted=1s missing=[]")
}

func TestALineNamesTwentyMembersAtMost(t *testing.T) {
	var o stats.OutageTracker
	var names []string
	for i := range 23 {
		names = append(names, fmt.Sprintf("m%02d", i))
	}
	got := shown(o.Observe(of(names...), at(0)))
	require.Contains(t, got, "m19 and 3 more]")
	require.NotContains(t, got, "m20")
	require.Len(t, o.Stats().Missing, 23)
}

func TestPastHasTheLastOutagesNewestFirst(t *testing.T) {
	var o stats.OutageTracker
	require.Empty(t, o.Past())
	const outages = 25
	for i := range outages {
		began, f := time.Duration(i)*time.Minute, of()
		f.Decisions.StandIn = 10 * uint64(i)
		o.Observe(f, at(began))
		f.Unreached, f.Decisions.StandIn = []string{"b"}, f.Decisions.StandIn+10
		o.Observe(f, at(began+time.Second))
		f.Unreached = []string{"c"}
		o.Observe(f, at(began+2*time.Second))
		f.Unreached = nil
		o.Observe(f, at(began+2*time.Second+stats.OutageQuiet))
	}
	past := o.Past()
	require.Len(t, past, 20)
	last := time.Duration(outages-1) * time.Minute
	require.Equal(t, stats.PastOutage{
		Since: time.Unix(0, at(last)), Until: time.Unix(0, at(last+2*time.Second)), Missing: []string{"b", "c"}, Decisions: 10,
	}, past[0])
	require.True(t, past[1].Since.Before(past[0].Since))
}
