package main

import (
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/weirtest"
)

var crowdSize = flag.Int("crowd", 0, "`number` of members of TestCrowdAgreesAtABoundedCost; if 0, the default of the run")
var crowdCut = flag.Duration("crowdcut", 0, "additional time for which TestCrowdAgreesAtABoundedCost keeps the split")

// Maximum traffic of a member in a second.
const (
	idleMessages = 60
	idleBytes    = 6000
	busyMessages = 200 // in the five seconds after an event
	healMessages = 400 // after a heal, when each side receives the rows of the other side
)

// leastMessages is more than the datagrams that a member sends in a second, and less than its pings
// over connections.
const leastMessages = 10

// crowd is a set of members that gossip, and send each other pings and requests, as in
// production. The network is in memory and time is virtual. The test uses package cluster
// without the packages above it.
type crowd struct {
	*testing.T
	network *weirtest.Network
	secret  []byte
	members []*crowdMember // all members that have started
	running []*crowdMember
	begun   time.Time // when the event began whose messages are counted
}

// crowdMember is a member whose sent messages are counted.
type crowdMember struct {
	cluster.Cluster
	name string // name of the host
	host *weirtest.Host
	sent atomic.Pointer[traffic]
}

// traffic counts the messages and bytes that a member has sent since an event began. A
// message is a segment or a datagram.
type traffic struct {
	mu             sync.Mutex
	messages       int
	bytes          int
	second         int64 // the current second
	inSecond, peak int   // messages in the current second, and in the second with the most messages
}

func (t *traffic) count(bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now().Unix(); now != t.second {
		t.second, t.inSecond = now, 0
	}
	t.messages++
	t.bytes += bytes
	t.inSecond++
	t.peak = max(t.peak, t.inSecond)
}

func (m *crowdMember) Changed()                               {}
func (m *crowdMember) Answered()                              {}
func (m *crowdMember) HandleLate(_ cluster.Peer, _, _ []byte) {}
func (m *crowdMember) Serve(b *cluster.Batch) {
	for i, request := range b.Requests {
		b.Reply(i, request)
	}
}

// start starts n members at the same time, each on a new host.
func (c *crowd) start(n int) {
	c.Helper()
	var starting sync.WaitGroup
	for range n {
		m := &crowdMember{name: fmt.Sprintf("h%04d", len(c.members))}
		m.sent.Store(new(traffic))
		c.members, c.running = append(c.members, m), append(c.running, m)
		m.host = c.network.Host(m.name)
		m.Cluster = cluster.NewGossip(cluster.Config{
			Name: m.name + "-1", Bind: ":7946", Join: []string{"members"}, Secrets: [][]byte{c.secret},
			Logger: slog.New(slog.DiscardHandler), Network: testnode.TappedNetwork{Network: m.host.Network(), Sent: func(b []byte) { m.sent.Load().count(len(b)) }},
		})
	}
	c.network.SetName("members", hosts(c.running[:min(3, len(c.running))])...)
	for _, m := range c.members[len(c.members)-n:] {
		starting.Go(func() {
			if err := m.Start(c.Context(), m); err != nil {
				c.Errorf("%s does not start: %v", m.name, err)
				return
			}
			if err := m.Announce(cluster.Serving); err != nil {
				c.Error(err)
			}
		})
	}
	starting.Wait()
}

func hosts(members []*crowdMember) (names []string) {
	for _, m := range members {
		names = append(names, m.name)
	}
	return names
}

// kill stops the processes of the members, so that their connections are closed by the kernel.
func (c *crowd) kill(members ...*crowdMember) {
	for _, m := range members {
		m.host.Kill()
		_ = m.Close()
	}
	c.running = slices.DeleteFunc(c.running, func(m *crowdMember) bool { return slices.Contains(members, m) })
}

// begin begins to count the messages of an event.
func (c *crowd) begin() {
	c.begun = time.Now()
	for _, m := range c.running {
		m.sent.Store(new(traffic))
	}
}

// end returns the average number of messages and bytes that a member has sent in a second
// since begin, and the maximum number of messages of a member in a second.
func (c *crowd) end() (messages, bytes float64, peak int) {
	for _, m := range c.running {
		t := m.sent.Load()
		t.mu.Lock()
		messages, bytes, peak = messages+float64(t.messages), bytes+float64(t.bytes), max(peak, t.peak)
		t.mu.Unlock()
	}
	all := time.Since(c.begun).Seconds() * float64(len(c.running))
	return messages / all, bytes / all, peak
}

// awaitIdle waits until the members are idle again, begins to count, and returns the time that it has waited.
// Members watch former neighbours for some seconds, and gossip has a pace.
func (c *crowd) awaitIdle() time.Duration {
	begun := time.Now()
	for {
		c.begin()
		time.Sleep(5 * time.Second)
		if messages, bytes, _ := c.end(); messages <= idleMessages && bytes <= idleBytes {
			c.begin()
			return time.Since(begun)
		}
		if time.Since(begun) > 10*time.Minute {
			c.Fatal("after ten minutes, the members still send more than idle members")
		}
	}
}

// awaitAgreement waits until the serving members in the view of each member are exactly the members of its
// side. It returns the time since begin.
func (c *crowd) awaitAgreement(most time.Duration, sides ...[]*crowdMember) time.Duration {
	c.Helper()
	for _, side := range sides {
		for k := 0; k < len(side); {
			problem := disagreement(side[k], side)
			switch {
			case problem == "":
				k++
				continue
			case time.Since(c.begun) > most:
				c.Fatalf("after %v, %s", time.Since(c.begun), problem)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return time.Since(c.begun)
}

// disagreement returns a difference between the serving members in the view of m and the
// members of its side.
func disagreement(m *crowdMember, side []*crowdMember) string {
	missing := make(map[string]bool, len(side))
	for _, other := range side {
		missing[other.name+"-1"] = true
	}
	states := make(map[string]cluster.State)
	for _, other := range m.View().Members {
		switch {
		case other.State != cluster.Serving:
			states[other.Name] = other.State
		case !missing[other.Name]:
			return fmt.Sprintf("%s has %s as serving", m.name, other.Name)
		default:
			delete(missing, other.Name)
		}
	}
	for name := range missing {
		state := "unknown"
		if s, known := states[name]; known {
			state = s.String()
		}
		return fmt.Sprintf("for %s, %d members do not serve: %s is %s", m.name, len(missing), name, state)
	}
	return ""
}

// leave calls Leave for each of the members, and then closes them.
func (c *crowd) leave(members ...*crowdMember) {
	c.Helper()
	var leaving sync.WaitGroup
	for _, m := range members {
		leaving.Go(func() {
			if err := m.Leave(c.Context()); err != nil {
				c.Errorf("%s does not leave: %v", m.name, err)
			}
		})
	}
	leaving.Wait()
	c.kill(members...)
}

// ask sends a request to a member that has ended, from each of the other given members. It
// returns the longest time until a request fails.
func (c *crowd) ask(to *crowdMember, from []*crowdMember) (longest time.Duration) {
	c.Helper()
	for _, m := range from {
		v, begun := m.View(), time.Now()
		i := slices.IndexFunc(v.Members, func(o cluster.Member) bool { return o.Name == to.name+"-1" })
		if _, err := v.Members[i].Peer.Ask(c.Context(), []byte("x"), nil, time.Second); err == nil {
			c.Errorf("%s answers %s after its end", to.name, m.name)
		}
		longest = max(longest, time.Since(begun))
	}
	return longest
}

// A crash, a freeze, a cut, a lost rack, joins and a deploy change the view of every member within
// seconds, at a bounded cost.
func TestCrowdAgreesAtABoundedCost(t *testing.T) {
	size := *crowdSize
	if size == 0 {
		size = testenv.PickRace(12, testenv.PickFull(t, 16, 30))
	}
	synctest.Test(t, func(t *testing.T) { playCrowd(t, size) })
}

// crowdMemory bounds the memory of the test, in bytes. Below the bound, garbage collection would only take
// time: a third of the time of a heal of 1,000 members.
const crowdMemory = 14500 << 20

func playCrowd(t *testing.T, size int) {
	if size >= 500 {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(crowdMemory))
	}
	c := &crowd{T: t, network: weirtest.NewNetwork(1, weirtest.Link{Latency: 200 * time.Microsecond}), secret: make([]byte, 32)}
	_, _ = rand.Read(c.secret) // rand.Read never fails
	c.network.AllowTies()
	defer c.close()
	// after reports an event, the time until the members agreed, and the messages during
	// that time and the given number of seconds after it.
	after := func(event string, took time.Duration, seconds int, most float64) {
		t.Helper()
		time.Sleep(time.Duration(seconds) * time.Second)
		messages, bytes, peak := c.end()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		t.Logf("| %s | %.2f s | %.0f | %d | %.1f KB | %d MB |", event, took.Seconds(), messages, peak, bytes/1000, m.Sys>>20)
		require.Greater(t, messages, float64(leastMessages), "%s: connections are not counted", event)
		require.LessOrEqual(t, messages, most, event)
		c.begin()
	}
	t.Logf("| %d members | takes | messages a member sends a second | at most, in one second | bytes a second | memory |", size)
	c.begin()
	c.start(size)
	after("start at once", c.awaitAgreement(time.Minute, c.running), 5, busyMessages)
	after("idle", c.awaitIdle(), 5, idleMessages)

	victim := c.running[size/2]
	c.kill(victim)
	time.Sleep(10 * time.Millisecond)
	if took := c.ask(victim, c.running[:min(size-1, 50)]); took > 50*time.Millisecond {
		t.Errorf("a request to a member that has crashed waits %v", took)
	}
	after("a crash", c.awaitAgreement(2*time.Second, c.running), 5, busyMessages)
	after("idle, with a dead member", c.awaitIdle(), 5, idleMessages)

	frozen := c.running[size/3]
	awake := slices.DeleteFunc(slices.Clone(c.running), func(m *crowdMember) bool { return m == frozen })
	frozen.host.Freeze()
	after("a freeze", c.awaitAgreement(3*time.Second, awake), 5, busyMessages)
	frozen.host.Thaw()
	after("its thaw", c.awaitAgreement(5*time.Second, c.running), 5, busyMessages)

	half := len(c.running) / 2
	sides := [][]*crowdMember{c.running[:half], c.running[half:]}
	c.network.Split(hosts(sides[0]), hosts(sides[1]))
	after("a split in halves", c.awaitAgreement(4*time.Second, sides...), 5, busyMessages)
	if *crowdCut > 0 {
		time.Sleep(*crowdCut)
		after("all of the split", c.awaitAgreement(time.Hour, sides...), 0, busyMessages)
	}
	c.network.Heal()
	after("its heal", c.awaitAgreement(10*time.Second, c.running), 5, healMessages)

	c.kill(c.running[:max(1, size/10)]...)
	after("the loss of a tenth", c.awaitAgreement(5*time.Second, c.running), 5, busyMessages)
	c.leave(c.running[0])
	c.start(1)
	after("a restart after it", c.awaitAgreement(2*time.Second, c.running), 5, busyMessages)

	joining := max(2, size/20)
	c.start(joining)
	after(fmt.Sprintf("%d join at once", joining), c.awaitAgreement(20*time.Second, c.running), 5, busyMessages)

	deployed := c.running[:max(1, min(5, size/10))]
	for _, m := range deployed {
		begun := time.Now()
		c.leave(m)
		c.start(1)
		c.awaitAgreement(begun.Sub(c.begun)+20*time.Second, c.running)
		t.Logf("a restart in order takes %v", time.Since(begun))
	}
	after("a restart in order, each", time.Since(c.begun)/time.Duration(len(deployed)), 5, busyMessages)
	after("idle, at the end", c.awaitIdle(), 5, idleMessages)
}

// close ends all members.
func (c *crowd) close() {
	var closing sync.WaitGroup
	for _, m := range c.members {
		closing.Go(func() { _ = m.Close() })
	}
	closing.Wait()
	time.Sleep(time.Minute) // for the last probes of memberlist
}
