package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
)

// The names of the events for a viewer.
const (
	eventSnapshot = "snapshot"
	eventTop      = "top"
	eventKey      = "key"
)

// maxKey is the maximum length of the key that a viewer watches, as in package weir.
const maxKey = 1 << 10

// shownSnapshot is a Snapshot with the rates since the previous Snapshot.
type shownSnapshot struct {
	At      int64             `json:"at"` // Unix milliseconds
	Name    string            `json:"name"`
	Region  string            `json:"region"`
	Members []shownMember     `json:"members"` // at most membersShown members
	Roster  roster            `json:"roster"`
	Checks  []rate            `json:"checks"` // nil before the first rates
	Latency []latency         `json:"latency"`
	Denials []limitRate       `json:"denials"` // the limits with the most denials
	Limits  []string          `json:"limits"`
	Secret  []string          `json:"secret"`
	Modes   map[string]string `json:"modes"`
	Outage  *shownOutage      `json:"outage"`
	Past    []shownPast       `json:"past"`
	Rules   *Rules            `json:"rules"`
	// Switchable has the names of rules that the viewer may switch, beginning with rules.AllRules.
	Switchable []string        `json:"switchable,omitempty"`
	Watch      *shownSelection `json:"watch"`
	Version    string          `json:"version"`
	Runbook    string          `json:"runbook"`
	// Gathered reports whether Checks and Denials include all members except Uncounted. The page
	// ignores Gathered if there is an Error.
	Gathered  bool     `json:"gathered"`
	Uncounted []string `json:"uncounted"`
	Error     string   `json:"error,omitempty"`
}

type shownMember struct {
	Member
	Checks []rate `json:"checks"` // checks of its callers, by the kind of decision; nil if unknown
}

type shownOutage struct {
	Since     int64    `json:"since"` // Unix milliseconds
	Missing   []string `json:"missing"`
	Decisions uint64   `json:"decisions"`
}

type shownPast struct {
	shownOutage
	Until int64 `json:"until"`
}

type shownSelection struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
}

type shownTop struct {
	admin.Top
	Error string `json:"error,omitempty"`
}

type shownWatched struct {
	shownSelection
	At      int64  `json:"at"`
	Grants  int64  `json:"grants"`
	Used    int64  `json:"used"`
	Counted int64  `json:"counted"`
	Per     int64  `json:"per_ms"`
	Owner   string `json:"owner"`
	Source  string `json:"source"`
	Free    int64  `json:"free_ms"`
	Reset   int64  `json:"reset_ms"`
	Held    bool   `json:"held"` // whether Used is held units
	By      string `json:"by"`
	Error   string `json:"error,omitempty"`
}

// events sends the events to a viewer until the viewer leaves or loses its place, viewFor has
// passed, or the page is closed. A viewer is disconnected if a write takes longer than writeWithin. A slow
// viewer skips snapshots.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	if isForeign(r) {
		http.Error(w, "the request comes from a page of another origin", http.StatusForbidden)
		return
	}
	limit, key := r.URL.Query().Get("limit"), r.URL.Query().Get("key")
	if len(limit) > maxKey || len(key) > maxKey || !utf8.ValidString(limit+key) {
		http.Error(w, "a limit's name and a key are valid UTF-8 of 1,024 bytes at most", http.StatusBadRequest)
		return
	}
	if limit == "" && key == "" {
		limit, key = p.limit, p.key
	}
	v, err := p.join()
	if err != nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer p.leave(v)
	out := http.NewResponseController(w)
	write := func(event []byte) bool {
		if err := out.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
			return false
		}
		if _, err := w.Write(event); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise a proxy would buffer the events
	if r.Method == http.MethodHead {
		return
	}
	if !write([]byte("retry: 1000\n\n")) {
		return
	}
	var seen [2]uint64
	end := time.After(viewFor)
	for {
		events, serial, changed := p.hub.newEvents(seen)
		if limit != "" && key != "" && serial[0] != seen[0] {
			events = append(events, eventOf(eventKey, p.watch(r.Context(), limit, key))...)
		}
		seen = serial
		if len(events) > 0 && !write(events) {
			return
		}
		select {
		case <-changed:
		case <-end:
			return
		case <-v.over:
			return
		case <-r.Context().Done():
			return
		case <-p.closed:
			return
		}
	}
}

// eventOf returns a server-sent event. Its data has no line break, because encoding/json does
// not write any.
func eventOf(name string, data any) []byte {
	var b bytes.Buffer
	text, err := json.Marshal(data)
	if err != nil {
		text = []byte("null") // Marshal fails only for NaN and infinite numbers
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, text)
	return b.Bytes()
}

// watch returns the use of a limit by the key of a viewer.
func (p *Page) watch(ctx context.Context, limit, key string) shownWatched {
	ctx, cancel := context.WithTimeout(ctx, watchWithin)
	defer cancel()
	w, err := p.source.Watch(ctx, limit, key)
	shown := shownWatched{
		shownSelection: shownSelection{limit, key}, At: time.Now().UnixMilli(),
		Grants: w.Limit, Used: w.Used, Counted: w.Counted, Per: w.Per.Milliseconds(), Owner: w.Owner, Source: w.Source,
		Free: milliseconds(w.Free), Reset: milliseconds(w.Reset), Held: w.InFlight,
	}
	for source := weir.Owner; source <= weir.Leased; source++ {
		if source.String() == w.Source {
			shown.By = decidedBy(source)
		}
	}
	if err != nil {
		shown.Error = err.Error()
	}
	return shown
}

// milliseconds rounds up, so that units are not shown as free too early.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// every calls do at once and then at each interval, until ctx is done or the page is closed.
func (p *Page) every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.Tick(interval)
	for {
		do()
		select {
		case <-tick:
		case <-ctx.Done():
			return
		case <-p.closed:
			return
		}
	}
}

// setEvent stores an event for all viewers. If ctx is done, setEvent does nothing, because the goroutines of
// later viewers may run already.
func (h *hub) setEvent(ctx context.Context, kind int, event []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	h.latest[kind] = event
	h.serial[kind]++
	close(h.changed)
	h.changed = make(chan struct{})
}

// newEvents returns the latest event of each kind that a viewer has not received.
func (h *hub) newEvents(seen [2]uint64) (events []byte, serial [2]uint64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, event := range h.latest {
		if h.serial[i] != seen[i] {
			events = append(events, event...)
		}
	}
	return events, h.serial, h.changed
}

// gather asks a Gatherer for the counters of all members.
func (p *Page) gather(ctx context.Context) (all []Counters, missing []string, err error) {
	g, ok := p.source.(Gatherer)
	if !ok {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, gatherWithin)
	defer cancel()
	return g.Gather(ctx)
}

// combine adds the Latency in a source's own counters to the gathered counters. If there are no
// gathered counters, the result is the source's own counters.
func combine(own, gathered []Counters) []Counters {
	if len(gathered) == 0 {
		return own
	}
	latency := make(map[string]map[weir.Source]weir.Latency, len(own))
	for _, c := range own {
		latency[c.Process] = c.Latency
	}
	for i := range gathered {
		gathered[i].Latency = latency[gathered[i].Process]
	}
	return gathered
}

// snapshot reads the source.
func (p *Page) snapshot(ctx context.Context, now *rates) shownSnapshot {
	begun := time.Now()
	isDue := !begun.Before(now.due)
	if isDue {
		now.gathered, now.missing, now.err = p.gather(ctx)
	}
	s, at := p.source.Snapshot(), time.Now()
	if isDue {
		now.last = now.update(at, combine(s.Counters, now.gathered))
		now.due = begun.Add(gatherPause(len(s.Members)))
	}
	m, err := now.last, now.err
	shown := shownSnapshot{
		At: at.UnixMilli(), Name: s.Name, Region: s.Region, Members: []shownMember{},
		Checks: m.checks, Latency: m.latency, Denials: append([]limitRate{}, m.limits...),
		Limits: append([]string{}, s.Limits...), Secret: append([]string{}, s.Secret...), Modes: s.Modes, Past: []shownPast{},
		Rules: s.Rules, Switchable: p.switchable(), Version: p.version, Runbook: p.runbook,
		Gathered: len(now.gathered) > 0, Uncounted: shortenList(now.missing),
	}
	if err != nil {
		shown.Error = err.Error()
	}
	for _, o := range s.Past {
		shown.Past = append(shown.Past, shownPast{shownOutage{o.Since.UnixMilli(), shortenList(o.Missing), o.Decisions}, o.Until.UnixMilli()})
	}
	for _, member := range s.Members {
		if p.actor == nil {
			member.Actions = nil
		}
		shown.Members = append(shown.Members, shownMember{member, m.processes[member.Process]})
	}
	sortByNeed(shown.Members)
	p.hub.mu.Lock()
	p.hub.members = shown.Members
	p.hub.mu.Unlock()
	shown.Roster = countMembers(shown.Members)
	shown.Members = shown.Members[:min(len(shown.Members), membersShown)]
	if !s.Outage.Since.IsZero() {
		shown.Outage = &shownOutage{s.Outage.Since.UnixMilli(), shortenList(s.Outage.Missing), s.Outage.Decisions}
	}
	if p.limit != "" && p.key != "" {
		shown.Watch = &shownSelection{p.limit, p.key}
	}
	return shown
}

// top asks the source for the top keys.
func (p *Page) top(ctx context.Context) shownTop {
	ctx, cancel := context.WithTimeout(ctx, topWithin)
	defer cancel()
	t, err := p.source.Top(ctx)
	t.Missing, t.Silent = shortenList(t.Missing), shortenList(t.Silent)
	shown := shownTop{Top: admin.NewTop(t)}
	if err != nil {
		shown.Error = err.Error()
	}
	return shown
}
