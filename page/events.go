package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// What a viewer is sent, as events of these names.
const (
	eventSnapshot = "snapshot"
	eventTop      = "top"
	eventKey      = "key"
)

// maxKey bounds the key that a viewer watches, as weir bounds keys.
const maxKey = 1 << 10

// shownSnapshot is a Snapshot and what has happened since the one before.
type shownSnapshot struct {
	At      int64           `json:"at"` // Unix milliseconds
	Name    string          `json:"name"`
	Region  string          `json:"region"`
	Members []shownMember   `json:"members"`
	Checks  []rate          `json:"checks"` // nil before the first rates
	Latency []latency       `json:"latency"`
	Limits  []string        `json:"limits"`
	Denials []shownDenials  `json:"denials"` // by limits of rules, most first
	Outage  *shownOutage    `json:"outage"`
	Watch   *shownSelection `json:"watch"`
}

type shownMember struct {
	Member
	Checks []rate `json:"checks"` // that it was asked for, by whom they were decided; nil if that is not known
}

type shownOutage struct {
	Since     int64    `json:"since"` // Unix milliseconds
	Missing   []string `json:"missing"`
	Decisions uint64   `json:"decisions"`
}

type shownDenials struct {
	Rule     string `json:"rule"`
	Limit    string `json:"limit"`
	Shadow   bool   `json:"shadow"`
	Denied   uint64 `json:"denied"`
	Shadowed uint64 `json:"would_deny"`
	Checks   uint64 `json:"checks"`
}

type shownSelection struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
}

type shownTop struct {
	Asked   []shownKey `json:"asked"`
	Denied  []shownKey `json:"denied"`
	Missing []string   `json:"missing"`
	Silent  []string   `json:"silent"`
	Error   string     `json:"error,omitempty"`
}

type shownKey struct {
	Limit   string  `json:"limit"`
	ID      string  `json:"id"`
	Key     *string `json:"key,omitempty"` // nil if no member tells it
	Asks    uint64  `json:"asks"`
	Denials uint64  `json:"denials"`
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
	By      string `json:"by"`
	Error   string `json:"error,omitempty"`
}

// events sends a viewer what there is to see, until it leaves, loses its place, or the
// page is closed. A viewer that takes nothing for writeWithin is let go; a slow one skips
// snapshots.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
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
	w.Header().Set("X-Accel-Buffering", "no") // a proxy in front would hold them back
	if r.Method == http.MethodHead {
		return
	}
	if !write([]byte("retry: 1000\n\n")) {
		return
	}
	var seen [2]uint64
	end := time.NewTimer(viewFor)
	defer end.Stop()
	for {
		events, serial, changed := p.hub.news(seen)
		if limit != "" && key != "" && serial[0] != seen[0] {
			events = append(events, eventOf(eventKey, p.watch(r.Context(), limit, key))...)
		}
		seen = serial
		if len(events) > 0 && !write(events) {
			return
		}
		select {
		case <-changed:
		case <-end.C:
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

// eventOf is one event of server-sent events. Its data has no line break: encoding/json
// writes none.
func eventOf(name string, data any) []byte {
	var b bytes.Buffer
	text, err := json.Marshal(data)
	if err != nil {
		text = []byte("null") // of numbers that are none; every field is always there
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, text)
	return b.Bytes()
}

// watch looks at a viewer's key.
func (p *Page) watch(ctx context.Context, limit, key string) shownWatched {
	ctx, cancel := context.WithTimeout(ctx, watchWithin)
	defer cancel()
	w, err := p.source.Watch(ctx, limit, key)
	shown := shownWatched{
		shownSelection: shownSelection{limit, key}, At: time.Now().UnixMilli(),
		Grants: w.Limit, Used: w.Used, Counted: w.Counted, Per: w.Per.Milliseconds(), Owner: w.Owner, Source: w.Source,
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

// every calls do at once and then at an interval, until ctx is done or the page closed.
func (p *Page) every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		do()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-p.closed:
			return
		}
	}
}

// tell has all viewers know an event, unless ctx is done: others look then.
func (h *hub) tell(ctx context.Context, which int, event []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	h.latest[which] = event
	h.serial[which]++
	close(h.changed)
	h.changed = make(chan struct{})
}

// news is what a viewer has not seen, of each kind the latest alone.
func (h *hub) news(seen [2]uint64) (events []byte, serial [2]uint64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, event := range h.latest {
		if h.serial[i] != seen[i] {
			events = append(events, event...)
		}
	}
	return events, h.serial, h.changed
}

// snapshot looks at the source.
func (p *Page) snapshot(now *rates) shownSnapshot {
	s, at := p.source.Snapshot(), time.Now()
	m := now.next(at, s.Counters)
	shown := shownSnapshot{
		At: at.UnixMilli(), Name: s.Name, Region: s.Region, Members: []shownMember{},
		Checks: m.checks, Latency: m.latency, Limits: append([]string{}, s.Limits...), Denials: denialsOf(s.Outcomes),
	}
	for _, member := range s.Members {
		if p.actor == nil {
			member.Actions = nil
		}
		shown.Members = append(shown.Members, shownMember{member, m.processes[member.Process]})
	}
	if !s.Outage.Since.IsZero() {
		shown.Outage = &shownOutage{s.Outage.Since.UnixMilli(), append([]string{}, s.Outage.Missing...), s.Outage.Decisions}
	}
	if p.limit != "" && p.key != "" {
		shown.Watch = &shownSelection{p.limit, p.key}
	}
	return shown
}

// denialsOf returns the limits that denied most, or would have as shadows. Limits of rules
// that are shadows now are there in any case.
func denialsOf(all []rules.LimitOutcomes) []shownDenials {
	shown := []shownDenials{}
	for _, o := range all {
		if o.Shadow || o.Enforced.Denied+o.Shadowed.Denied > 0 {
			shown = append(shown, shownDenials{
				o.Rule, o.Limit, o.Shadow, o.Enforced.Denied, o.Shadowed.Denied,
				o.Enforced.Allowed + o.Enforced.Denied + o.Shadowed.Allowed + o.Shadowed.Denied,
			})
		}
	}
	slices.SortStableFunc(shown, func(a, b shownDenials) int { return cmp.Compare(b.Denied+b.Shadowed, a.Denied+a.Shadowed) })
	return shown[:min(len(shown), limitsShown)]
}

// limitsShown bounds the rows of denials.
const limitsShown = 20

// top asks the source for the keys that are asked for and denied most.
func (p *Page) top(ctx context.Context) shownTop {
	ctx, cancel := context.WithTimeout(ctx, topWithin)
	defer cancel()
	t, err := p.source.Top(ctx)
	shown := shownTop{Asked: keysOf(t.Asked), Denied: keysOf(t.Denied), Missing: append([]string{}, t.Missing...), Silent: append([]string{}, t.Silent...)}
	if err != nil {
		shown.Error = err.Error()
	}
	return shown
}

func keysOf(keys []weir.TopKey) []shownKey {
	shown := make([]shownKey, len(keys))
	for i, k := range keys {
		shown[i] = shownKey{k.Limit, hex.EncodeToString(k.ID[:]), nil, k.Asks, k.Denials}
		if k.Known {
			shown[i].Key = &k.Key
		}
	}
	return shown
}
