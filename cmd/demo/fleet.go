package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// condition is how a gateway is, as far as the demo knows.
type condition uint8

const (
	starting condition = iota
	up
	frozen
	killed
	failed // it ended by itself
	stopped
)

func (c condition) String() string {
	return [...]string{"starting", "up", "frozen", "killed", "failed", "stopped"}[c]
}

// incarnation is one process in one gateway's place.
type incarnation struct {
	gateway   int // index
	process   *process
	client    *http.Client
	condition condition
	report    report // the last one; none yet if its Name is empty
	down      []span // when it could not be expected to answer
}

// happening is a fault that has happened.
type happening struct {
	fault
	span         // from before it was done until after
	seenBy int64 // when all gateways that are up had seen it, in Unix nanoseconds; 0 if they have not
}

// event is a line of the demo's story.
type event struct {
	at   time.Time
	what string // one word
	text string
}

// fleet is the gateways. Its methods are safe for concurrent use but where they
// say otherwise.
type fleet struct {
	limit   int64
	per     time.Duration
	workers int // requests at once

	mu        sync.Mutex
	current   []*incarnation // of each gateway
	all       []*incarnation
	happened  []happening
	moved     []span   // when a gateway's ring changed
	broken    []string // promises, in words
	events    []event
	announced func(event)
	judging   bool // all have started: from now on a ring changes only if a gateway is replaced
}

func newFleet(nodes int, limit int64, per time.Duration, workers int, announced func(event)) *fleet {
	return &fleet{limit: limit, per: per, workers: workers, current: make([]*incarnation, nodes), announced: announced}
}

// launch starts a process in a gateway's place: where the one before it was, if
// there was one. Like spawn, it belongs on the demo's own thread.
func (f *fleet) launch(gateway int) error {
	f.mu.Lock()
	s := settings{
		Label: label(gateway), Bind: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		Expect: len(f.current), Limit: f.limit, Per: f.per,
	}
	for i, other := range f.current {
		switch {
		case other == nil || other.report.Name == "":
		case i == gateway:
			s.Bind, s.HTTP = other.report.Addr, other.report.HTTP
		default:
			s.Join = append(s.Join, other.report.Addr)
		}
	}
	inc := &incarnation{gateway: gateway, client: &http.Client{
		Timeout:   giveUp,
		Transport: &http.Transport{MaxIdleConns: f.workers, MaxIdleConnsPerHost: f.workers, DisableCompression: true},
	}}
	f.current[gateway] = inc
	f.all = append(f.all, inc)
	f.mu.Unlock()

	p, err := spawn(s, func(r report) { f.told(inc, r) }, func(p *process) { f.ended(inc, p) })
	if err != nil {
		return fmt.Errorf("gateway %d does not start: %w", gateway+1, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	inc.process = p
	return nil
}

// label is a gateway's node's.
func label(gateway int) string { return fmt.Sprintf("gateway-%d", gateway+1) }

// gatewayOf is the index of the gateway of a member's name, -1 if it is none.
func gatewayOf(member string) int {
	var number int
	if _, err := fmt.Sscanf(member, "gateway-%d-", &number); err != nil {
		return -1
	}
	return number - 1
}

// told takes in a gateway's report.
func (f *fleet) told(inc *incarnation, r report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Error != "" {
		f.breaks("gateway %d: %s", inc.gateway+1, r.Error)
		return
	}
	before := inc.report
	inc.report = r
	if inc.condition == starting {
		inc.condition = up
		if i := f.latest(start, inc.gateway); i >= 0 {
			f.happened[i].to = time.Now().UnixNano()
		}
	} else if changed := difference(ring(before), ring(r)); len(changed) > 0 && f.judging {
		f.moved = append(f.moved, span{r.Since, r.At})
		for _, name := range changed {
			if !f.replaced(gatewayOf(name)) {
				f.breaks("gateway %d: %s came to or left its ring, though nobody had started there", inc.gateway+1, name)
			}
		}
	}
	f.settle(r.At)
}

// ring is who owns keys, as a report has it.
func ring(r report) []string {
	var names []string
	for _, m := range r.Members {
		if m.State != weir.Joining {
			names = append(names, m.Name)
		}
	}
	return names
}

func difference(a, b []string) []string {
	var differ []string
	for _, name := range append(slices.Clone(a), b...) {
		if slices.Contains(a, name) != slices.Contains(b, name) {
			differ = append(differ, name)
		}
	}
	return differ
}

// replaced says that a gateway has had more than one process. f.mu is held.
func (f *fleet) replaced(gateway int) bool {
	processes := 0
	for _, inc := range f.all {
		if inc.gateway == gateway {
			processes++
		}
	}
	return processes > 1
}

// latest is the index of a gateway's last happening of a kind, -1 if there is
// none. f.mu is held.
func (f *fleet) latest(k kind, gateway int) int {
	for i := len(f.happened) - 1; i >= 0; i-- {
		if f.happened[i].kind == k && f.happened[i].gateway == gateway {
			return i
		}
	}
	return -1
}

// settle notes whether all have now seen what happened last. f.mu is held.
func (f *fleet) settle(at int64) {
	i := len(f.happened) - 1
	if i < 0 || f.happened[i].seenBy != 0 || f.current[f.happened[i].gateway].condition == starting || !f.agreed() {
		return
	}
	h := &f.happened[i]
	h.seenBy = max(at, h.from)
	var who []string
	for i, inc := range f.current {
		if inc.condition == up && i != h.gateway {
			who = append(who, fmt.Sprint(i+1))
		}
	}
	what := map[kind]string{
		kill:   "that it is gone: each answers for its keys within its own share",
		start:  "of the new one, and ask it for the keys that it owns",
		freeze: "that it is gone: each answers for its keys within its own share",
		thaw:   "that it is back, and ask it again",
	}[h.kind]
	f.say("", "after %s %s know %s", short(time.Duration(h.seenBy-h.from)), list(who), what)
}

func list(gateways []string) string {
	if len(gateways) == 1 {
		return "all others"
	}
	last := len(gateways) - 1
	return "gateways " + strings.Join(gateways[:last], ", ") + " and " + gateways[last]
}

// agreed says that all gateways that are up hear each other, and no other. f.mu
// is held.
func (f *fleet) agreed() bool {
	for _, inc := range f.current {
		if inc == nil || inc.condition != up {
			continue
		}
		for _, other := range f.current {
			if other == nil || other.report.Name == "" {
				return false
			}
			heard := slices.Contains(inc.report.Members, seen{other.report.Name, weir.Serving})
			if heard != (other.condition == up) {
				return false
			}
		}
	}
	return true
}

// ended takes in the end of a process.
func (f *fleet) ended(inc *incarnation, p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	inc.client.CloseIdleConnections()
	switch inc.condition {
	case killed:
	case stopped:
		if p.cmd.ProcessState.Exited() && !p.cmd.ProcessState.Success() {
			f.breaks("gateway %d did not stop well: %s", inc.gateway+1, p.how())
		}
	default:
		inc.condition = failed
		inc.down = append(inc.down, span{time.Now().UnixNano(), never})
		f.breaks("gateway %d ended by itself: %s", inc.gateway+1, p.how())
		f.say("failed", "gateway %d ended by itself: %v", inc.gateway+1, p.cmd.ProcessState)
	}
}

// do makes a fault happen. Like launch, it belongs on the demo's own thread.
func (f *fleet) do(what fault) error {
	f.mu.Lock()
	inc := f.current[what.gateway]
	number, now := what.gateway+1, time.Now().UnixNano()
	h := happening{fault: what, span: span{now, now}}
	pid := inc.process.pid()
	switch what.kind {
	case kill:
		inc.condition = killed
		inc.down = append(inc.down, span{now, never})
		f.say("kill", "gateway %d, process %d, dies by SIGKILL", number, pid)
	case freeze:
		inc.condition = frozen
		inc.down = append(inc.down, span{now, never})
		f.say("freeze", "gateway %d, process %d, is frozen by SIGSTOP", number, pid)
	}
	f.happened = append(f.happened, h)
	f.mu.Unlock()

	var err error
	switch what.kind {
	case kill:
		err = inc.process.kill()
	case start:
		err = f.launch(what.gateway)
	case freeze:
		err = inc.process.freeze()
	case thaw:
		err = inc.process.thaw()
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		return fmt.Errorf("gateway %d: %v: %w", number, what.kind, err)
	}
	done := time.Now().UnixNano()
	if i := f.latest(what.kind, what.gateway); i >= 0 {
		f.happened[i].to = max(f.happened[i].to, done)
	}
	switch what.kind {
	case start:
		f.say("start", "gateway %d starts again at the same address, as process %d", number, f.current[what.gateway].process.pid())
	case thaw:
		inc.condition = up
		inc.down[len(inc.down)-1].to = done
		f.say("thaw", "gateway %d goes on by SIGCONT, and may not know that it was away", number)
	}
	return nil
}

// say announces an event. f.mu is held.
func (f *fleet) say(what, format string, args ...any) {
	e := event{time.Now(), what, fmt.Sprintf(format, args...)}
	f.events = append(f.events, e)
	if f.announced != nil {
		f.announced(e)
	}
}

// breaks notes a broken promise. f.mu is held.
func (f *fleet) breaks(format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
}

var errNoStart = errors.New("the gateways did not find each other in time")

// open starts all gateways, one after the other, and waits until they hear each
// other. Like launch, it belongs on the demo's own thread.
func (f *fleet) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errNoStart)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	wait := func(until func() bool) error {
		for {
			f.mu.Lock()
			broken, done := strings.Join(f.broken, "\n"), until()
			f.mu.Unlock()
			switch {
			case broken != "":
				return errors.New(broken)
			case done:
				return nil
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	for i := range f.current {
		if err := f.launch(i); err != nil {
			return err
		}
		if err := wait(func() bool { return f.current[i].condition == up }); err != nil {
			return err
		}
	}
	if err := wait(f.agreed); err != nil {
		return err
	}
	f.mu.Lock()
	f.judging = true
	f.mu.Unlock()
	return nil
}

// pick is one of the gateways that are up, as a load balancer would choose; nil
// if there is none.
func (f *fleet) pick(random *rand.Rand) *incarnation {
	f.mu.Lock()
	defer f.mu.Unlock()
	chosen, alive := (*incarnation)(nil), 0
	for _, inc := range f.current {
		if inc.condition == up {
			if alive++; random.IntN(alive) == 0 {
				chosen = inc
			}
		}
	}
	return chosen
}

// url is where the incarnation serves.
func (f *fleet) url(inc *incarnation) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return "http://" + inc.report.HTTP + "/"
}

// wasDown says that the incarnation could not be expected to answer all the time
// between two moments.
func (f *fleet) wasDown(inc *incarnation, from, to int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return inc.wasDown(from, to)
}

func (inc *incarnation) wasDown(from, to int64) bool {
	for _, d := range inc.down {
		if from <= d.to && to >= d.from {
			return true
		}
	}
	return false
}

// ownerWasDown says the same of the one that has a member's name.
func (f *fleet) ownerWasDown(name string, from, to int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, inc := range f.all {
		if inc.report.Name == name {
			return inc.wasDown(from, to)
		}
	}
	return false
}

// faults is the times that faulty windows hold something of: the faults and the
// changes of the ring that they led to, with their aftermath. moves is when keys
// changed owners.
func (f *fleet) faults() (faults, moves []span) {
	f.mu.Lock()
	defer f.mu.Unlock()
	moves = slices.Clone(f.moved)
	for _, h := range f.happened {
		faults = append(faults, h.span)
		if h.kind == start {
			moves = append(moves, h.span)
		}
	}
	faults = append(faults, f.moved...)
	for i := range faults {
		faults[i].to += int64(aftermath(f.per))
	}
	return faults, moves
}

// stopWithin is how long a gateway may take to stop.
const stopWithin = 3 * time.Second

// stop ends every process, and returns when all have ended.
func (f *fleet) stop() {
	f.mu.Lock()
	all := slices.Clone(f.all)
	var wait sync.WaitGroup
	for _, inc := range all {
		if inc.process == nil || inc.condition == killed || inc.condition == failed {
			continue
		}
		was := inc.condition
		inc.condition = stopped
		wait.Go(func() {
			if was == frozen {
				inc.process.kill()
			}
			if !inc.process.stop(stopWithin) {
				f.mu.Lock()
				f.breaks("gateway %d did not stop within %v", inc.gateway+1, stopWithin)
				f.mu.Unlock()
			}
		})
	}
	f.mu.Unlock()
	wait.Wait()
	for _, inc := range all {
		if inc.process != nil {
			<-inc.process.ended
		}
	}
}
