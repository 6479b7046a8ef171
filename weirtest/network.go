package weirtest

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Link is how one direction between two hosts behaves. The zero Link delivers
// everything within a microsecond.
type Link struct {
	Latency time.Duration // one way
	Jitter  time.Duration // up to this much more, drawn evenly for each packet
	// Loss is the part of the packets that is lost, from 0 to 1. On a stream each loss
	// costs a resend 200 ms later, as where a kernel cannot be told to resend sooner.
	Loss float64
	// Duplicates is the part of the datagrams that arrive twice, from 0 to 1.
	// What a stream has read already it does not read again.
	Duplicates float64
}

const (
	resend      = 200 * time.Millisecond // Linux's least retransmission timeout
	maxResends  = 8
	maxBackoff  = 120 * time.Second // Linux's longest retransmission timeout
	dialTimeout = 127 * time.Second // when Linux gives up a connection that nobody answers
	spread      = 1000              // ns; drawn on top of every latency, so that arrivals hardly ever share an instant
	maxParked   = 4096              // datagrams held for frozen hosts; those above are lost
)

// Network is hosts and the links between them. Its methods, and those of all
// that stands on it, are safe for concurrent use.
type Network struct {
	// mu guards everything on the network. It is never held while waiting:
	// in a bubble a goroutine that waits for a mutex stops the clock.
	mu       sync.Mutex
	seed     uint64
	standard func(from, to string) Link
	hosts    []*Host
	names    map[string][]*Host
	links    map[[2]*Host]*link
	members  map[string]*member // simulated, by name and address
	held     []*flow            // the flows with messages on a link that is held
	parked   []*datagram        // the datagrams for a frozen host
	agenda   agenda
	wrote    func(bytes int) // nil if the bytes are not counted
}

// count calls wrote with the number of bytes that a node sends. The caller must hold n.mu.
func (n *Network) count(bytes int) {
	if n.wrote != nil {
		n.wrote(bytes)
	}
}

// NewNetwork is a network without hosts, whose links are all like l until
// SetLink says otherwise.
func NewNetwork(seed uint64, l Link) *Network {
	return &Network{
		seed:     seed,
		standard: func(string, string) Link { return l },
		names:    make(map[string][]*Host),
		links:    make(map[[2]*Host]*link),
		members:  make(map[string]*member),
		agenda:   agenda{start: time.Now(), last: -1},
	}
}

// Host is the host of that name. It is made when it is first asked for, with
// an address of its own that the name resolves to.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.host(name)
}

func (n *Network) host(name string) *Host {
	for _, h := range n.hosts {
		if h.name == name {
			return h
		}
	}
	i := len(n.hosts) + 1
	h := &Host{net: n, name: name, number: i, ip: net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)).To4()}
	h.process = newProcess(h)
	n.hosts = append(n.hosts, h)
	if _, taken := n.names[name]; !taken {
		n.names[name] = []*Host{h}
	}
	return h
}

// SetName says what a name resolves to from now on, in this order: one
// address for each host, none if there are no hosts.
func (n *Network) SetName(name string, hosts ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	to := make([]*Host, len(hosts))
	for i, h := range hosts {
		to[i] = n.host(h)
	}
	n.names[name] = to
}

// SetLink says how what is sent from one host to another fares from now on;
// what is on its way stays as it was.
func (n *Network) SetLink(from, to string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(n.host(from), n.host(to)).Link = l
}

// Cut takes down the link from one host to the other, in this direction only.
// Datagrams on it are lost, and dials find nobody. The bytes of streams wait
// until it has healed and then, as with TCP, for the next resend, which comes
// the later the longer the cut was: 27 s after one of 75 s. Break ends them instead.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(n.host(from), n.host(to)).cut = true
}

// Break ends all connections between two hosts at once, in both directions: both ends
// read an error, and what is on its way is lost, as where a link goes down with its
// machine's interface, or a firewall rejects what it passed before. Links stay as they
// are: it follows a Cut, in one direction or both, that is not to be silent. Datagrams
// and dials are not connections, and fare as the links have it.
func (n *Network) Break(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ends := [2]*Host{n.host(a), n.host(b)}
	for i, h := range ends {
		other := ends[1-i]
		for _, c := range h.process.conns {
			if c.out.to == other && c.peer != nil {
				c.breakOff()
			}
		}
		if m := h.process.member; m != nil {
			m.breakOff(other)
		}
	}
}

// Reject closes all connections between the two hosts. Until Heal, dials fail with ECONNREFUSED
// even if a process listens, and datagrams are lost. A firewall that rejects packets has the same
// effect.
func (n *Network) Reject(a, b string) {
	n.mu.Lock()
	n.link(n.host(a), n.host(b)).rejects = true
	n.link(n.host(b), n.host(a)).rejects = true
	n.mu.Unlock()
	n.Break(a, b)
}

// Split cuts every link between hosts of different sides, both ways. Links
// within a side, and those of hosts on no side, stay as they are.
func (n *Network) Split(sides ...[]string) {
	for i, side := range sides {
		for j, other := range sides {
			if i == j {
				continue
			}
			for _, from := range side {
				for _, to := range other {
					n.Cut(from, to)
				}
			}
		}
	}
}

// Heal mends all links that are cut.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.cut, l.rejects = false, false
	}
	n.release()
}

// reset mends all links, and makes them like those that nothing was said of.
func (n *Network) reset() {
	n.mu.Lock()
	for pair, l := range n.links {
		l.Link = n.standard(pair[0].name, pair[1].name)
	}
	n.mu.Unlock()
	n.Heal()
}

// link is one direction between two hosts. It has its own randomness, so that
// what happens to it does not depend on what other links carry.
type link struct {
	Link
	cut     bool
	rejects bool
	number  int // of all links
	rng     *rand.Rand
}

func (n *Network) link(from, to *Host) *link {
	l := n.links[[2]*Host{from, to}]
	if l == nil {
		l = &link{Link: n.standard(from.name, to.name), number: from.number<<16 | to.number, rng: n.rand(from.name, to.name)}
		n.links[[2]*Host{from, to}] = l
	}
	return l
}

// rand is the randomness of what these names name.
func (n *Network) rand(names ...string) *rand.Rand {
	d := xxhash.NewWithSeed(n.seed)
	for _, name := range names {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(name)))
		_, _ = d.Write(length[:])
		_, _ = d.WriteString(name)
	}
	return rand.New(rand.NewPCG(n.seed, d.Sum64()))
}

func (l *link) delay() time.Duration {
	return l.Latency + time.Duration(l.rng.Int64N(int64(max(l.Jitter, 0))+spread))
}

func (l *link) lost() bool    { return l.Loss > 0 && l.rng.Float64() < l.Loss }
func (l *link) doubled() bool { return l.Duplicates > 0 && l.rng.Float64() < l.Duplicates }

// flow is one direction of something ordered and reliable.
type flow struct {
	from, to *Host
	stream   bool      // of bytes: what a cut has held is resent as TCP does
	link     *link     // nil until something is sent
	queue    []parcel  // what is on its way, in order
	due      int       // how many of these have come to a link that holds them
	lost     int       // how many were on their way when the connection broke, and do not arrive
	cut      time.Time // when the first of these came to a cut, zero if none did
	resumes  time.Time // when the resend arrives that the rest has to wait for
	last     time.Time // when the last of the queue arrives
}

// parcel is something sent. Network.mu is held when it arrives.
type parcel interface{ arrive() }

// call is a parcel that does something else in each place.
type call func()

func (c call) arrive() { c() }

// send has the parcel arrive after the link's latency, in the order of the
// sends. n.mu is held.
func (n *Network) send(f *flow, p parcel) {
	f.queue = append(f.queue, p)
	n.schedule(f)
}

func (n *Network) schedule(f *flow) {
	if f.link == nil {
		f.link = n.link(f.from, f.to)
	}
	d := f.link.delay()
	for i := 0; i < maxResends && f.link.lost(); i++ {
		d += resend
	}
	f.last = later(arrival(f.from, f.to, d), f.last.Add(1))
	n.at(f.last, f.link.number, false, f)
}

// lose has what is on its way, or held, not arrive. What is sent later does.
func (f *flow) lose() {
	n := f.from.net
	n.held = slices.DeleteFunc(n.held, func(held *flow) bool { return held == f })
	f.lost += len(f.queue) - f.due // the held are on no agenda
	f.queue, f.due, f.cut = nil, 0, time.Time{}
}

// arrival is when something is there that takes so long on its way, and is sent now.
func arrival(from, to *Host, takes time.Duration) time.Time {
	return to.resumes(from.resumes(time.Now()).Add(takes))
}

func (f *flow) void() bool { return false }

// occur is the arrival of the first that is on its way.
func (f *flow) occur() {
	n := f.from.net
	switch {
	case f.lost > 0:
		f.lost--
	case f.from.frozen || f.to.frozen || f.link.cut:
		if f.due == 0 {
			n.held = append(n.held, f)
		}
		f.due++
		if f.link.cut && f.cut.IsZero() {
			f.cut = time.Now()
		}
	case !f.resumes.IsZero() && time.Now().Before(f.resumes):
		n.schedule(f)
	case f.to.resumes(time.Now()).After(time.Now()): // paused since it was sent
		f.last = later(f.to.resumes(time.Now()), f.last.Add(1))
		n.at(f.last, f.link.number, false, f)
	case len(f.queue) > 0:
		p := f.queue[0]
		f.queue[0] = nil
		if len(f.queue) == 1 {
			f.queue = f.queue[:0] // most queues are short, and keep their array
		} else {
			f.queue = f.queue[1:]
		}
		if !f.link.rejects {
			p.arrive()
		} else if m, ok := p.(*message); ok {
			m.from.reset()
		}
	}
}

// datagram is what may be lost, may arrive twice, and may overtake others.
type datagram struct {
	from, to *Host
	link     *link
	deliver  func()
}

func (n *Network) sendDatagram(d *datagram) {
	d.link = n.link(d.from, d.to)
	if d.link.cut || d.link.rejects || d.link.lost() {
		return
	}
	n.at(arrival(d.from, d.to, d.link.delay()), d.link.number, false, d)
	if d.link.doubled() {
		n.at(arrival(d.from, d.to, d.link.delay()), d.link.number, false, d)
	}
}

func (d *datagram) void() bool { return false }

func (d *datagram) occur() {
	n := d.from.net
	switch {
	case d.link.cut, d.link.rejects:
	case d.from.frozen || d.to.frozen:
		if len(n.parked) < maxParked {
			n.parked = append(n.parked, d)
		}
	case d.to.resumes(time.Now()).After(time.Now()): // paused since it was sent
		n.at(d.to.resumes(time.Now()), d.link.number, false, d)
	default:
		d.deliver()
	}
}

// release sends on what was held and is held no longer.
func (n *Network) release() {
	held := n.held
	n.held = nil
	for _, f := range held {
		if f.from.frozen || f.to.frozen || n.link(f.from, f.to).cut {
			n.held = append(n.held, f)
			continue
		}
		if f.stream && !f.cut.IsZero() {
			f.resumes = nextResend(f.cut, time.Now()).Add(n.link(f.from, f.to).Latency)
			f.last = later(f.last, f.resumes)
		}
		for ; f.due > 0; f.due-- {
			n.schedule(f)
		}
		f.cut = time.Time{}
	}
	parked := n.parked
	n.parked = nil
	for _, d := range parked {
		if d.from.frozen || d.to.frozen {
			n.parked = append(n.parked, d)
			continue
		}
		n.sendDatagram(d)
	}
}

// nextResend is when bytes that were lost at some time are sent again, at a
// time after now.
func nextResend(lost, now time.Time) time.Time {
	next := lost
	for backoff := resend; !next.After(now); backoff = min(2*backoff, maxBackoff) {
		next = next.Add(backoff)
	}
	return next
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lookup is the hosts that a name or an address stands for.
func (n *Network) lookup(name string) []*Host {
	if ip := net.ParseIP(name); ip != nil {
		i := slices.IndexFunc(n.hosts, func(h *Host) bool { return h.ip.Equal(ip) })
		if i < 0 {
			return nil
		}
		return n.hosts[i : i+1]
	}
	return n.names[name]
}

// hostsOf is the hosts that entries stand for, names with or without a port.
func (n *Network) hostsOf(entries []string) (hosts []*Host) {
	for _, entry := range entries {
		name, _, err := net.SplitHostPort(entry)
		if err != nil {
			name = entry
		}
		hosts = append(hosts, n.lookup(name)...)
	}
	return hosts
}

// signal wakes all who wait for a change. Network.mu guards it.
type signal struct{ c chan struct{} }

func (s *signal) wait() <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) wake() {
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}

// await returns at a wake or when the deadline has passed.
func await(changed <-chan struct{}, deadline time.Time) {
	if deadline.IsZero() {
		<-changed
		return
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	}
}

// passed reports whether a deadline has passed; the zero one never does.
func passed(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}
