package weirtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
)

// The pace of messages to another region, as in gossip clusters.
const (
	pingAbroad       = time.Second
	patienceAbroad   = 3 * time.Second // maximum time without an answer of the node, and for an attempt
	firstPauseAbroad = 100 * time.Millisecond
	lastPauseAbroad  = 10 * time.Second // maximum pause between two attempts
	sayEvery         = 10 * time.Second // minimum time between two warnings of the same kind
)

// region implements cluster.Peer. Its methods send requests to one node of another region
// at a time. Network.mu guards all fields.
type region struct {
	member  *member
	name    string
	entries []string
	at      *peer         // the node that receives the requests, or that is contacted; nil between attempts
	since   time.Time     // when the node in the field at gave its permission
	misses  map[*Host]int // number of failures of each host
	tries   int           // number of pauses since the last success; each doubles the next pause, up to lastPauseAbroad
	turn    uint64        // number of the last scheduled step; earlier steps on the agenda are void
}

// foreign returns the contact of this member with a member of another region.
func (m *member) foreign(to *member) *peer {
	p := m.foreigners[to.name]
	if p == nil {
		p = newPeer(m, to)
		p.abroad = true
		m.foreigners[to.name] = p
	}
	return p
}

func (m *member) Region(name string) cluster.Peer {
	if r := m.regions[name]; r != nil {
		return r
	}
	return nil
}

// Ask implements cluster.Peer.
func (r *region) Ask(ctx context.Context, body, dst []byte, wait time.Duration) ([]byte, error) {
	if len(body) > cluster.MaxMessage {
		return dst[:0], cluster.ErrTooLarge
	}
	at, err := r.current()
	if err != nil {
		return dst[:0], err
	}
	return at.Ask(ctx, body, dst, wait)
}

// Send implements cluster.Peer.
func (r *region) Send(body []byte) {
	if at, err := r.current(); err == nil {
		at.Send(body)
	}
}

// Delay implements cluster.Peer.
func (r *region) Delay() time.Duration { return 0 }

// Protocol implements cluster.Peer.
func (r *region) Protocol() cluster.Protocol {
	if _, err := r.current(); err != nil {
		return cluster.Protocol{}
	}
	return spoken
}

// current returns the node that receives the requests now. The error is ErrClosed after
// the end of the member, and ErrDisconnected if no node has admitted it.
func (r *region) current() (*peer, error) {
	r.member.net.mu.Lock()
	defer r.member.net.mu.Unlock()
	switch {
	case r.member.closed:
		return nil, cluster.ErrClosed
	case r.at == nil || !r.at.welcome:
		return nil, cluster.ErrDisconnected
	}
	return r.at, nil
}

// takeStep contacts a node if r.at is nil. Otherwise takeStep pings the node in r.at, or
// gives it up if it has not answered in time. The caller of takeStep and of the methods
// below must hold n.mu.
func (r *region) takeStep() {
	switch p := r.at; {
	case p == nil:
		r.tryHost()
	case !p.welcome || time.Since(p.answered) > patienceAbroad:
		r.member.warn("cannot reach another region", "region", r.name, "host", p.to.host.name, "error", "the node has not answered for some seconds: a different node is tried")
		r.giveUp()
	default:
		p.send(message{kind: ping})
		r.scheduleStep(pingAbroad + time.Duration(r.member.rng.Int64N(int64(pingAbroad/10))))
	}
}

// turn is a step of a region on the agenda.
type turn struct {
	region *region
	number uint64
}

func (t turn) isVoid() bool { return t.region.member.closed || t.region.turn != t.number }
func (t turn) occur()       { t.region.takeStep() }

// scheduleStep schedules the next step after d.
func (r *region) scheduleStep(d time.Duration) {
	r.turn++
	r.member.net.addEvent(time.Now().Add(d), r.member.host.number<<16, false, turn{r, r.turn})
}

// tryHost requests permission from the node on a random host among the hosts with the
// fewest failures.
func (r *region) tryHost() {
	m := r.member
	var best []*Host
	for _, h := range m.net.hostsOf(r.entries) {
		if len(best) > 0 && r.misses[h] < r.misses[best[0]] {
			best = best[:0]
		}
		if (len(best) == 0 || r.misses[h] == r.misses[best[0]]) && !slices.Contains(best, h) {
			best = append(best, h)
		}
	}
	if len(best) == 0 {
		m.warn("cannot reach another region", "region", r.name, "error", fmt.Sprintf("no host has the names %q", r.entries))
		r.scheduleStep(r.drawPause())
		return
	}
	h := best[m.rng.IntN(len(best))]
	there := h.process.member
	if there == nil {
		m.warn("cannot reach another region", "region", r.name, "host", h.name, "error", "no cluster runs on this host")
		r.misses[h]++
		r.scheduleStep(r.drawPause())
		return
	}
	p := m.foreign(there)
	r.at, p.region = p, r
	if !p.reaching { // if a cut or a freeze holds an attempt, no other is added
		p.reaching = true
		p.send(message{kind: reach, body: []byte(r.name)})
	}
	r.scheduleStep(patienceAbroad)
}

// handleWelcome handles the permission of the node in r.at to send it requests.
func (r *region) handleWelcome() {
	r.at.welcome, r.at.answered, r.since = true, time.Now(), time.Now()
	r.takeStep()
}

// giveUp ends the contact or the attempt with the node in r.at, and schedules the next
// attempt.
func (r *region) giveUp() {
	p := r.at
	if p.answered.After(r.since) && p.welcome {
		clear(r.misses)
		r.tries = 0
	}
	r.misses[p.to.host]++
	r.at, p.region, p.welcome = nil, nil, false
	p.failRequests()
	r.scheduleStep(r.drawPause())
}

// drawPause returns the wait before the next attempt.
func (r *region) drawPause() time.Duration {
	d := lastPauseAbroad
	if r.tries < 16 {
		d = min(d, firstPauseAbroad<<r.tries)
	}
	r.tries++
	return d/2 + time.Duration(r.member.rng.Int64N(int64(d/2)))
}

// handleRegional handles a message of a member of another region at the receiver. It
// ignores the gossip in the message.
func (m *message) handleRegional(there *peer) {
	switch m.kind {
	case reach:
		reason, problem := there.owner.refusal(there.to, string(m.body))
		if there.admitted = problem == ""; there.admitted {
			there.send(message{kind: welcome})
			return
		}
		if reason != "" {
			there.owner.refused[reason]++
			there.owner.warn("refused a peer", "reason", reason, "addr", there.to.host.name, "error", problem)
		}
		there.send(message{kind: refused, body: []byte(problem)})
	case welcome:
		there.reaching = false
		if there.region != nil && !there.welcome {
			there.region.handleWelcome()
		}
	case refused:
		there.reaching = false
		if r := there.region; r != nil {
			r.member.warn("cannot reach another region", "region", r.name, "host", there.to.host.name, "error", string(m.body))
			r.giveUp()
		}
	case ping:
		there.send(message{kind: pong})
	case pong:
		there.answered = time.Now()
	case request:
		if there.admitted {
			there.owner.enqueue(handlerItem{from: there, id: m.id, request: m.body})
		}
	case answer:
		there.finishRequest(m.id, m.body, nil)
	case reset:
		there.handleDrop()
	}
}

// handleDrop handles the end of the connection with a member of another region.
func (p *peer) handleDrop() {
	p.admitted, p.reaching = false, false
	if p.region != nil {
		p.region.giveUp()
	}
}

// refusal reports whether a node that requests a region may not ask this member. The
// problem describes why, and is empty if the node may ask. The refusal is counted under the
// reason, unless the reason is empty.
func (m *member) refusal(from *member, region string) (reason, problem string) {
	switch {
	case from.config.Seed != m.config.Seed:
		return "seed", "the node has another Seed"
	case region != m.config.Region:
		return "region", fmt.Sprintf("a node of region %q expected a node of region %q at the address, and found a node of region %q", from.config.Region, region, m.config.Region)
	case m.roster.Self().IsGone():
		return "", "the node has left"
	}
	return "", ""
}

// sendAway refuses further requests of other regions, so that the nodes there send their
// requests to another member.
func (m *member) sendAway() {
	for _, name := range slices.Sorted(maps.Keys(m.foreigners)) {
		if p := m.foreigners[name]; p.admitted {
			p.admitted = false
			p.send(message{kind: refused, body: []byte("the node has left")})
		}
	}
}

// warn logs a warning from the goroutine that calls the handler, if there is a Logger and no
// warning with the same text and the same value of the first attribute was logged within
// sayEvery.
func (m *member) warn(text string, args ...any) {
	kind := fmt.Sprint(text, args[1])
	if at, ok := m.warned[kind]; ok && time.Since(at) < sayEvery || m.config.Logger == nil {
		return
	}
	m.warned[kind] = time.Now()
	log := m.config.Logger
	m.enqueue(handlerItem{warn: func() { log.Warn(text, args...) }})
}
