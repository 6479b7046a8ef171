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

// Link describes the packets from one host to another. The zero Link delivers every
// packet within a microsecond.
type Link struct {
	Latency time.Duration // minimum time that a packet takes
	Jitter  time.Duration // maximum additional time; the time of each packet is drawn evenly
	// Loss is the part of the packets that are lost, from 0 to 1. On a stream, and
	// between nodes with Host.Cluster, a lost packet is sent again 200 ms later, which is
	// the minimum retransmission timeout of Linux.
	Loss float64
	// Duplicates is the part of the datagrams that arrive twice, from 0 to 1. A stream
	// does not read data twice.
	Duplicates float64
}

const (
	resend      = 200 * time.Millisecond // minimum retransmission timeout of Linux
	maxResends  = 8                      // maximum number of retransmissions of a packet; the last one is never lost
	maxBackoff  = 120 * time.Second      // maximum retransmission timeout of Linux
	dialTimeout = 127 * time.Second      // after this time, Linux gives up a connection without an answer
	spread      = 1000                   // upper limit of a random addition to each latency, in nanoseconds, so that two arrivals are rarely at the same instant
	maxParked   = 4096                   // maximum number of datagrams that wait because a host is frozen; further datagrams are lost
)

// Network is a set of hosts and the links between them. Its methods, and the methods of all
// objects on it, are safe for concurrent use.
type Network struct {
	// mu guards all state of the network, and is never held while waiting: in a bubble, a
	// goroutine that waits for a mutex stops the clock.
	mu       sync.Mutex
	seed     uint64
	standard func(from, to string) Link
	hosts    []*Host
	names    map[string][]*Host
	links    map[[2]*Host]*link
	members  map[string]*member // the simulated members, by name and address
	held     []*flow            // the flows whose messages wait at a cut link or a frozen host
	parked   []*datagram        // the datagrams to and from frozen hosts
	agenda   agenda
	wrote    func(bytes int) // nil if the bytes are not counted
}

// count calls wrote with the number of bytes that a node sends. The caller must hold n.mu.
func (n *Network) count(bytes int) {
	if n.wrote != nil {
		n.wrote(bytes)
	}
}

// NewNetwork returns a network without hosts. All links have the values of l until
// SetLink changes them.
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

// AllowTies lets packets arrive in the same instant. Each packet arrives up to 200 µs earlier, to join other
// packets. Otherwise each packet arrives in a separate instant, and its effects are complete before the
// next packet arrives. With ties, a cluster of hundreds of nodes runs on all processors, but no run replays
// exactly. Call AllowTies before the first packet.
func (n *Network) AllowTies() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.agenda.ties = true
}

// Host returns the host with this name. The first call creates the host, with its own
// address, to which the name resolves.
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

// SetName sets the hosts to which a name resolves from now on, in this order. Without
// hosts, the name has no address.
func (n *Network) SetName(name string, hosts ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	to := make([]*Host, len(hosts))
	for i, h := range hosts {
		to[i] = n.host(h)
	}
	n.names[name] = to
}

// SetLink sets the values of the link from one host to another from now on. SetLink does
// not affect packets that are already on their way.
func (n *Network) SetLink(from, to string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(n.host(from), n.host(to)).Link = l
}

// Cut takes down the link from one host to the other, in this direction only. Datagrams
// on the link are lost, and a dial gets no answer. The bytes of streams wait until the
// link has healed and then, as with TCP, for the next retransmission. The longer the cut
// was, the later is the retransmission: 27 s after a cut of 75 s. Break ends streams
// instead.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(n.host(from), n.host(to)).cut = true
}

// Break ends all connections between two hosts at once, in both directions. Both ends
// read an error, and data on its way is lost, as if the link went down together with the
// interface of its machine, or a firewall began to reject packets. Links do not change:
// to break connections at a Cut, in one direction or both, call Break after it. Datagrams
// and dials are not connections, and follow the state of the links.
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
			m.breakConnections(other)
		}
	}
}

// Reject closes all connections between the two hosts. Until Heal, dials fail with
// ECONNREFUSED even if a process listens, and datagrams are lost. A firewall that rejects
// packets has the same effect.
func (n *Network) Reject(a, b string) {
	n.mu.Lock()
	n.link(n.host(a), n.host(b)).rejects = true
	n.link(n.host(b), n.host(a)).rejects = true
	n.mu.Unlock()
	n.Break(a, b)
}

// Split disconnects hosts of different sides, in both directions. Split does not change
// links within a side, or links of a host that is on no side.
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

// Heal ends the effect of Cut, Split and Reject on all links.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.cut, l.rejects = false, false
	}
	n.release()
}

// reset restores all links, with their values from before any SetLink.
func (n *Network) reset() {
	n.mu.Lock()
	for pair, l := range n.links {
		l.Link = n.standard(pair[0].name, pair[1].name)
	}
	n.mu.Unlock()
	n.Heal()
}

// link is the link from one host to another. Each link has its own random source, so that
// the traffic of other links does not affect the link.
type link struct {
	Link
	cut     bool
	rejects bool
	number  int // unique among all links
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

// rand returns the random source of these names.
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

func (l *link) drawLoss() bool      { return l.Loss > 0 && l.rng.Float64() < l.Loss }
func (l *link) drawDuplicate() bool { return l.Duplicates > 0 && l.rng.Float64() < l.Duplicates }

// flow sends the parcels of an ordered and reliable connection in one direction.
type flow struct {
	from, to *Host
	stream   bool      // a stream of bytes, which are sent again after a cut, as by TCP
	link     *link     // nil before the first parcel is sent
	queue    []parcel  // parcels on their way, in order
	due      int       // number of the first parcels of queue that have become due, but are held by a cut link or a frozen host
	lost     int       // number of parcels that were on their way when the connection broke, and do not arrive
	cut      time.Time // when the first parcel reached the cut; zero if no held parcel has reached a cut
	resumes  time.Time // arrival time of the retransmission; later parcels do not arrive earlier
	last     time.Time // when the last parcel of the queue arrives
}

// parcel is an item that was sent. The caller of arrive must hold Network.mu.
type parcel interface{ arrive() }

// call is a parcel that calls a function on arrival.
type call func()

func (c call) arrive() { c() }

// send sends a parcel. Parcels arrive after the latency of the link, in the order of the
// sends. The caller must hold n.mu.
func (n *Network) send(f *flow, p parcel) {
	f.queue = append(f.queue, p)
	n.schedule(f)
}

func (n *Network) schedule(f *flow) {
	if f.link == nil {
		f.link = n.link(f.from, f.to)
	}
	d := f.link.delay()
	for i := 0; i < maxResends && f.link.drawLoss(); i++ {
		d += resend
	}
	f.last = laterTime(arrivalTime(f.from, f.to, d), f.last.Add(1))
	n.addEvent(f.last, f.link.number, false, f)
}

// dropAll drops the parcels that are on their way or held. Later parcels arrive.
func (f *flow) dropAll() {
	n := f.from.net
	n.held = slices.DeleteFunc(n.held, func(held *flow) bool { return held == f })
	f.lost += len(f.queue) - f.due // held parcels are not on the agenda
	f.queue, f.due, f.cut = nil, 0, time.Time{}
}

// arrivalTime returns the arrival time of a packet that is sent now and spends the given
// time on the link. A paused host neither sends nor receives packets.
func arrivalTime(from, to *Host, takes time.Duration) time.Time {
	return to.resumeTime(from.resumeTime(time.Now()).Add(takes))
}

func (f *flow) isVoid() bool { return false }

// occur handles the arrival of the first parcel on its way.
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
	case f.to.resumeTime(time.Now()).After(time.Now()): // Throttle has paused the receiver after the parcel was sent
		f.last = laterTime(f.to.resumeTime(time.Now()), f.last.Add(1))
		n.addEvent(f.last, f.link.number, false, f)
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
			m.from.handleReset()
		}
	}
}

// datagram is a packet that may be lost, may arrive twice, and may overtake other
// packets.
type datagram struct {
	from, to *Host
	link     *link
	deliver  func()
}

func (n *Network) sendDatagram(d *datagram) {
	d.link = n.link(d.from, d.to)
	if d.link.cut || d.link.rejects || d.link.drawLoss() {
		return
	}
	n.addEvent(arrivalTime(d.from, d.to, d.link.delay()), d.link.number, false, d)
	if d.link.drawDuplicate() {
		n.addEvent(arrivalTime(d.from, d.to, d.link.delay()), d.link.number, false, d)
	}
}

func (d *datagram) isVoid() bool { return false }

func (d *datagram) occur() {
	n := d.from.net
	switch {
	case d.link.cut, d.link.rejects:
	case d.from.frozen || d.to.frozen:
		if len(n.parked) < maxParked {
			n.parked = append(n.parked, d)
		}
	case d.to.resumeTime(time.Now()).After(time.Now()): // Throttle has paused the receiver after the packet was sent
		n.addEvent(d.to.resumeTime(time.Now()), d.link.number, false, d)
	default:
		d.deliver()
	}
}

// release sends the held packets again, unless their link is still cut or one of their
// hosts is still frozen.
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
			f.last = laterTime(f.last, f.resumes)
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

// nextResend returns the time of the next retransmission, after the present time, of
// bytes that were first lost at an earlier time.
func nextResend(lost, now time.Time) time.Time {
	next := lost
	for backoff := resend; !next.After(now); backoff = min(2*backoff, maxBackoff) {
		next = next.Add(backoff)
	}
	return next
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lookUp returns the hosts of a name or an address.
func (n *Network) lookUp(name string) []*Host {
	if ip := net.ParseIP(name); ip != nil {
		i := slices.IndexFunc(n.hosts, func(h *Host) bool { return h.ip.Equal(ip) })
		if i < 0 {
			return nil
		}
		return n.hosts[i : i+1]
	}
	return n.names[name]
}

// hostsOf returns the hosts of entries, which are names or addresses with or without a
// port.
func (n *Network) hostsOf(entries []string) (hosts []*Host) {
	for _, entry := range entries {
		name, _, err := net.SplitHostPort(entry)
		if err != nil {
			name = entry
		}
		hosts = append(hosts, n.lookUp(name)...)
	}
	return hosts
}

// signal wakes all goroutines that wait for a change. Network.mu guards it.
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

// await waits until the signal wakes its waiters, or until the deadline has passed. The
// zero deadline never passes.
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

// hasPassed reports whether a deadline has passed. The zero deadline never passes.
func hasPassed(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}
