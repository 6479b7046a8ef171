package stats

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// maxNames is the maximum number of members in a line.
const maxNames = 20

// event is the kind of change of an outage.
type event uint8

const (
	begun event = iota
	grown
	shrunk
	ended
)

// Line is a line of the log about an outage. It contains all missing members, so that the next line reports
// changes since this line. Log writes at most maxNames of their names.
type Line struct {
	event     event
	since     int64
	lasted    time.Duration
	missing   []string
	facts     OutageFacts
	decisions OutageDecisions
}

func (o *outage) line(event event, f *OutageFacts, now int64) *Line {
	o.named = slices.Sorted(maps.Keys(o.missing))
	return &Line{event, o.since, time.Duration(now - o.since), o.named, *f, f.Decisions.after(o.before)}
}

// Log writes the line, and does nothing if the line is nil.
func (l *Line) Log(log *slog.Logger) {
	if l == nil {
		return
	}
	missing := l.missing
	if more := len(missing) - maxNames; more > 0 {
		missing = append(slices.Clone(missing[:maxNames]), fmt.Sprintf("and %d more", more))
	}
	d := &l.decisions
	attrs := []any{
		"since", time.Unix(0, l.since), "lasted", l.lasted.Round(time.Millisecond).String(), "missing", missing,
		"reached", l.facts.Reached, "roster", l.facts.Roster, "expect", l.facts.Expect,
		"decisions", d.sum(), "stand_in", d.StandIn, "budget", d.Budget, "failed_open", d.FailedOpen, "failed_closed", d.FailedClosed,
	}
	switch l.event {
	case begun:
		log.Warn("outage began: checks may be decided without their owners", attrs...)
	case grown, shrunk:
		log.Warn("outage changed: the set of missing members is different", attrs...)
	case ended:
		log.Info("outage ended: every check is decided by its owner again", attrs...)
	}
}
