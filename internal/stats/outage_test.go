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

func timeAt(d time.Duration) int64 { return int64(time.Hour + d) }

// factsWithout returns the facts of a roster of three members, some of which are not reached.
func factsWithout(unreached ...string) stats.OutageFacts {
	return stats.OutageFacts{Unreached: unreached, Reached: 3 - len(unreached), Roster: 3}
}

// formatLine returns the text of a log line without the time of day.
func formatLine(line *stats.Line) string {
	var text strings.Builder
	line.Log(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			return slog.Attr{}
		case "since":
			return slog.String(a.Key, fmt.Sprint(a.Value.Time().Sub(time.Unix(0, timeAt(0)))))
		}
		return a
	}})))
	return strings.TrimSpace(text.String())
}

// A node calls Observe once a second, unless it rests, and logs the returned line.
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

func TestObserveLogsChanges(t *testing.T) {
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
		"healthy node": {{second, factsWithout(), ""}, {stats.OutageQuiet, factsWithout(), ""}},
		"beginning and end": {
			{second, factsWithout(), ""},
			{second, factsWithout("b"), "WARN msg=\"outage began"},
			{second, factsWithout("b"), ""},
			{second, factsWithout(), ""},
			{stats.OutageQuiet - second - 1, factsWithout(), ""},
			{1, factsWithout(), "INFO msg=\"outage ended"},
			{second, factsWithout("c"), "since=9s lasted=0s missing=[c]"},
		},
		"further and returning members": {
			{second, factsWithout("b"), "missing=[b]"},
			{second, factsWithout("b", "c"), "WARN msg=\"outage changed: the set of missing members is different\" since=1s lasted=1s missing=\"[b c]\" reached=1 roster=3"},
			{second, factsWithout("b", "c"), ""},
			{stats.OutageQuiet - 1, factsWithout("c"), ""},
			{1, factsWithout("c"), "WARN msg=\"outage changed: the set of missing members is different\" since=1s lasted=7s missing=[c] reached=2"},
			{second, factsWithout("c"), ""},
			{second, factsWithout("b"), "changed"},
		},
		"all missing members at the end": {
			{second, factsWithout("b"), "missing=[b]"},
			{second, factsWithout("c"), "missing=\"[b c]\""},
			{stats.OutageQuiet, factsWithout("c"), "changed: the set of missing members is different\" since=1s lasted=6s missing=[c]"},
			{stats.OutageQuiet, factsWithout(), "ended: every check is decided by its owner again\" since=1s lasted=6s missing=\"[b c]\""},
		},
		"decisions after all members are back": {
			{second, factsWithout("b"), "began"},
			{stats.OutageQuiet - 1, decided(factsWithout(), stats.OutageDecisions{Budget: 1}), ""},
			{second, decided(factsWithout(), stats.OutageDecisions{Budget: 2}), ""},
			{stats.OutageQuiet, decided(factsWithout(), stats.OutageDecisions{Budget: 2}), "ended"},
		},
		"flapping connection": {
			{second, factsWithout("b"), "began"},
			{second, factsWithout(), ""}, {stats.OutageQuiet - 2, factsWithout("b"), ""}, {second, factsWithout(), ""}, {second, factsWithout("b"), ""}, {second, factsWithout(), ""},
			{stats.OutageQuiet, factsWithout(), "lasted=8s missing=[b]"},
		},
		"decisions without an owner and without missing members": {
			{second, factsWithout(), ""},
			{second, decided(factsWithout(), stats.OutageDecisions{Budget: 1}), "since=1s lasted=1s missing=[] reached=3 roster=3 expect=0 decisions=1 stand_in=0 budget=1"},
			{second, decided(factsWithout(), stats.OutageDecisions{1, 2, 3, 4}), ""},
			{stats.OutageQuiet, decided(factsWithout(), stats.OutageDecisions{1, 2, 3, 4}), "lasted=2s missing=[] reached=3 roster=3 expect=0 decisions=10 stand_in=1 budget=2 failed_open=3 failed_closed=4"},
			{second, decided(factsWithout("b"), stats.OutageDecisions{1, 2, 3, 5}), "decisions=1 stand_in=0 budget=0 failed_open=0 failed_closed=1"},
		},
		"short roster for OutageQuiet": {
			{second, short(3, 3, false), ""},
			{second, short(2, 3, false), ""},
			{stats.OutageQuiet - second - 1, short(2, 3, false), ""},
			{1, short(2, 3, false), "began: checks may be decided without their owners\" since=1s lasted=5s missing=[] reached=2 roster=2 expect=3"},
			{second, short(3, 3, false), ""},
			{stats.OutageQuiet - second, short(2, 3, false), ""},
			{stats.OutageQuiet, short(3, 3, false), "ended"},
		},
		"simultaneous start and stop": {
			{second, short(0, 3, false), ""}, {second, short(1, 3, false), ""}, {second, short(3, 3, false), ""},
			{time.Hour, short(3, 3, false), ""}, {second, short(2, 3, false), ""}, {second, short(1, 3, false), ""}, {second, short(0, 3, true), ""},
		},
		"short roster of a node that has left": {{stats.OutageQuiet, short(0, 3, true), ""}},
		"end after the clock was set back": {
			{second, factsWithout("b"), "began"},
			{-time.Minute, factsWithout(), "ended"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var o stats.OutageTracker
			now := time.Duration(0)
			o.Restart(timeAt(now))
			for i, s := range steps {
				now += s.after
				got := formatLine(o.Observe(s.facts, timeAt(now)))
				if s.want == "" {
					require.Empty(t, got, "step %d", i)
				}
				require.Contains(t, got, s.want, "step %d", i)
			}
		})
	}
}

// A view with a lost member may be replaced before the next Observe.
func TestBrieflyLostMemberIsReportedMissing(t *testing.T) {
	var o stats.OutageTracker
	require.Nil(t, o.Observe(factsWithout(), timeAt(0)))
	o.RecordLosses(timeAt(100*time.Millisecond), "b")
	require.Nil(t, o.Observe(factsWithout(), timeAt(time.Second)), "every check had its owner")
	o.RecordLosses(timeAt(1200*time.Millisecond), "b", "c")
	o.RecordLosses(timeAt(1300*time.Millisecond), "b")
	f := factsWithout()
	f.Decisions.StandIn = 3
	require.Contains(t, formatLine(o.Observe(f, timeAt(2*time.Second))), "since=1s lasted=1s missing=\"[b c]\"", "the outage began with the last Observe without such decisions")
	require.Equal(t, stats.OutageStats{Since: time.Unix(0, timeAt(time.Second)), Missing: []string{"b", "c"}, Decisions: 3, Count: 1}, o.Stats())
}

// The time during which an OutageTracker rests is not part of the next outage.
func TestOutageAfterRestBeginsWithItsEvent(t *testing.T) {
	decided, short := factsWithout(), factsWithout()
	decided.Decisions.Budget, short.Roster, short.Expect = 1, 2, 3
	full := factsWithout()
	full.Expect = 3
	for name, c := range map[string]struct {
		facts stats.OutageFacts
		want  string // a second later
		later string // OutageQuiet later
	}{
		"lost member":            {factsWithout("b"), "since=1h0m0s lasted=1s missing=[b]", ""},
		"decision without owner": {decided, "since=1h0m0s lasted=1s missing=[]", ""},
		"short roster":           {short, "", "since=1h0m0s lasted=5s missing=[]"},
	} {
		t.Run(name, func(t *testing.T) {
			o := stats.OutageTracker{Event: make(chan struct{}, 1)}
			require.Nil(t, o.Observe(full, timeAt(0)))
			require.True(t, o.MayRest())
			o.RecordLosses(timeAt(time.Hour), c.facts.Unreached...)
			o.Resume(timeAt(time.Hour))
			require.Contains(t, formatLine(o.Observe(c.facts, timeAt(time.Hour+time.Second))), c.want)
			require.False(t, o.MayRest())
			require.Len(t, o.Event, len(c.facts.Unreached))
			require.Contains(t, formatLine(o.Observe(c.facts, timeAt(time.Hour+stats.OutageQuiet))), c.later)
		})
	}
}

func TestLossesBeforeRestartAreNoOutage(t *testing.T) {
	var o stats.OutageTracker
	o.RecordLosses(timeAt(0), "b")
	o.Restart(timeAt(time.Second))
	f := factsWithout()
	f.Decisions.Budget = 1
	require.Contains(t, formatLine(o.Observe(f, timeAt(2*time.Second))), "since=1s lasted=1s missing=[]")
}

func TestLineNamesAtMostTwentyMembers(t *testing.T) {
	var o stats.OutageTracker
	var names []string
	for i := range 23 {
		names = append(names, fmt.Sprintf("m%02d", i))
	}
	got := formatLine(o.Observe(factsWithout(names...), timeAt(0)))
	require.Contains(t, got, "m19 and 3 more]")
	require.NotContains(t, got, "m20")
	require.Len(t, o.Stats().Missing, 23)
}

func TestPastOutagesAreNewestFirst(t *testing.T) {
	var o stats.OutageTracker
	require.Empty(t, o.PastOutages())
	const outages = 25
	for i := range outages {
		began, f := time.Duration(i)*time.Minute, factsWithout()
		f.Decisions.StandIn = 10 * uint64(i)
		o.Observe(f, timeAt(began))
		f.Unreached, f.Decisions.StandIn = []string{"b"}, f.Decisions.StandIn+10
		o.Observe(f, timeAt(began+time.Second))
		f.Unreached = []string{"c"}
		o.Observe(f, timeAt(began+2*time.Second))
		f.Unreached = nil
		o.Observe(f, timeAt(began+2*time.Second+stats.OutageQuiet))
	}
	past := o.PastOutages()
	require.Len(t, past, 20)
	last := time.Duration(outages-1) * time.Minute
	require.Equal(t, stats.PastOutage{
		Since: time.Unix(0, timeAt(last)), Until: time.Unix(0, timeAt(last+2*time.Second)), Missing: []string{"b", "c"}, Decisions: 10,
	}, past[0])
	require.True(t, past[1].Since.Before(past[0].Since))
}
