package processtests

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster/gossip/gossiptest"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
)

var siegeFor = flag.Duration("siege", 300*time.Millisecond, "duration of each attack of TestNodeServesHonestChecksDuringSiege")

// siegeMemory is the maximum address space of an attacked node, in KiB. It is more than a node
// needs and less than the memory of the machine.
const siegeMemory = 6 << 20

// besiegedNode is a node in another process, with its address.
type besiegedNode struct {
	*remote
	addr string
}

// besiege starts a node, which joins the member at the address join unless join is empty.
// The argument files is the maximum number of file descriptors of the node. If files is
// 0, the node has the limit of this process.
func besiege(t *testing.T, secret, join string, files int) *besiegedNode {
	t.Helper()
	limits := ""
	if files > 0 {
		limits = fmt.Sprintf("ulimit -n %d; ", files)
	}
	if !testenv.Race { // the detector reserves terabytes of addresses
		limits += fmt.Sprintf("ulimit -v %d; ", siegeMemory)
	}
	n := &besiegedNode{remote: newRemote(t, settings{Join: strings.Fields(join), Secret: secret}, "sh", "-c", limits+`exec "$0"`)}
	n.addr = n.do(t, Order{}).Addr
	return n
}

// besiegedLoad returns the load of each node during an attack: at most 1,000 checks per second.
func besiegedLoad() Order {
	limit := weir.Limit{Name: "siege", Rate: 1_000_000_000, Per: time.Minute}
	return Order{Load: &load{Limits: []keyed{{limit, 1000}}, Callers: 1, Rest: time.Millisecond, For: *siegeFor}}
}

// attack describes an attack on the peer port of a node.
type attack struct {
	name  string
	do    func(ctx context.Context, addr string) // runs until ctx is done
	files int                                    // maximum number of file descriptors of the node, or 0 for the limit of this process
}

// packets returns a function that repeatedly calls the function next, sends the result as
// a packet, and sleeps for the time pace.
func packets(pace time.Duration, next func(i int) []byte) func(context.Context, string) {
	return func(ctx context.Context, addr string) {
		conn, err := net.Dial("udp", addr)
		if err != nil {
			return
		}
		defer conn.Close()
		for i := 0; ctx.Err() == nil; i++ {
			conn.Write(next(i))
			if pace > 0 {
				time.Sleep(pace)
			}
		}
	}
}

// connections returns a function that keeps n connections to an address open. Each connection has sent the bytes in
// first, and is replaced when the node closes it. The argument addresses is the number of source addresses.
func connections(n, addresses int, first []byte) func(context.Context, string) {
	return func(ctx context.Context, addr string) {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				i %= addresses
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, byte(i>>8), byte(i))}}
				for ctx.Err() == nil {
					conn, err := dialer.DialContext(ctx, "tcp", addr)
					if err != nil {
						time.Sleep(time.Millisecond)
						continue
					}
					stop := context.AfterFunc(ctx, func() { conn.Close() })
					conn.Write(first)
					io.Copy(io.Discard, conn)
					stop()
					conn.Close()
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
	}
}

// phantom returns a report that member i is alive. This member does not exist.
func phantom(i int) []byte {
	seed, ip := identity.New(nil).Fingerprint(), []byte{127, byte(1 + i>>16&0x7f), byte(i >> 8), byte(i)}
	meta := gossiptest.Message(0, gossiptest.Fields{"v": 1, "a": fmt.Sprint(net.IP(ip), ":9"), "r": "", "s": seed[:], "b": time.Now().UnixNano(), "e": 0, "n": 1, "t": 1})[1:]
	return gossiptest.Message(gossiptest.TypeAlive, gossiptest.Fields{
		"Incarnation": 1, "Node": fmt.Sprint("phantom-", i), "Addr": ip, "Port": 9, "Vsn": []byte{1, 5, 2, 1, 1, 1}, "Meta": meta,
	})
}

func attacks() []attack {
	sender := gossiptest.Sender{Label: gossiptest.LabelOf(identity.New(nil).Fingerprint(), "")}
	claim := func(nodes, state int) []byte {
		return append([]byte{0xC8}, sender.Stream(gossiptest.Message(gossiptest.TypePushPull, gossiptest.Header{Nodes: nodes, UserStateLen: state, Join: true}))...)
	}
	bomb := gossiptest.Compressed(39 << 20)
	junk := make([]byte, 1400)
	many := func(part []byte) []byte {
		b, n := []byte{gossiptest.TypeCompound, 0}, 1300/(len(part)+2)
		b[1] = byte(min(n, 255))
		for range b[1] {
			b = append(b, byte(len(part)>>8), byte(len(part)))
		}
		return append(b, bytes.Repeat(part, int(b[1]))...)
	}
	elsewhere := []byte{127, 0, 0, 2}
	pings := many(gossiptest.Message(gossiptest.TypePing, gossiptest.Fields{"SeqNo": 1, "SourceAddr": elsewhere, "SourcePort": 9}))
	indirect := many(gossiptest.Message(gossiptest.TypeIndirectPing, gossiptest.Fields{"SeqNo": 1, "Target": elsewhere, "Port": 9, "Nack": true}))
	return []attack{
		{name: "nothing", do: func(ctx context.Context, _ string) { <-ctx.Done() }},
		{name: "60 push/pulls that claim 1,048,576 nodes", do: connections(60, 1, claim(1<<20, 0))},
		{name: "60 push/pulls that claim 20 MB of state", do: connections(60, 1, claim(0, 20<<20))},
		{name: fmt.Sprintf("packets of %d KB, 39 MB when decompressed, 20 a second", len(bomb)>>10), do: packets(50*time.Millisecond, func(int) []byte { return sender.Packet(bomb) })},
		{name: "2,000 packets of phantom members a second", do: packets(500*time.Microsecond, func(i int) []byte { return sender.Packet(phantom(i)) })},
		{name: "packets of pings", do: packets(0, func(int) []byte { return sender.Packet(pings) })},
		{name: "packets of pings on others' behalf", do: packets(0, func(int) []byte { return sender.Packet(indirect) })},
		{name: "packets of junk", do: packets(0, func(int) []byte { return junk })},
		{name: "2,000 silent connections", do: connections(2000, 1, nil)},
		{name: "2,000 silent connections from 2,000 addresses", do: connections(2000, 2000, nil)},
		{name: "1,000 silent connections, of 256 file descriptors", do: connections(1000, 1000, nil), files: 256},
		{name: "2,000 connections of half a handshake", do: connections(2000, 1, []byte{0xC7, 2})},
		{name: "500 connections of half a push/pull", do: connections(500, 1, claim(1, 0))},
	}
}

// TestNodeServesHonestChecksDuringSiege attacks one of two nodes from outside in each known way, and logs the cost:
// go test ./internal/processtests -run Siege -v -siege 5s
func TestNodeServesHonestChecksDuringSiege(t *testing.T) {
	wantsTheMachine(t)
	for _, secret := range []string{"", "sixteen-bytes..."} {
		mode := "open"
		if secret != "" {
			mode = "Secrets"
		}
		for _, a := range attacks() {
			if secret != "" && *siegeFor < time.Second && !strings.HasPrefix(a.name, "2,000") {
				continue // the other attacks do not cost more with Secrets
			}
			t.Run(mode+" "+a.name, func(t *testing.T) {
				victim := besiege(t, secret, "", a.files)
				other := besiege(t, secret, victim.addr, 0)
				lab.Eventually(t, "both are members", func() bool { return victim.do(t, Order{}).Members == 2 })
				time.Sleep(200 * time.Millisecond)
				before, begin := lab.CPUOf(victim.PID()), time.Now()
				ctx, stop := context.WithTimeout(t.Context(), *siegeFor)
				defer stop()
				var attacked sync.WaitGroup
				attacked.Go(func() { a.do(ctx, victim.addr) })
				victimLoad, otherLoad := victim.begin(t, besiegedLoad()), other.begin(t, besiegedLoad())
				resident, descriptors := int64(0), int64(0)
				for ctx.Err() == nil {
					resident, descriptors = max(resident, lab.Resident(victim.PID())), max(descriptors, lab.OpenFiles(victim.PID()))
					time.Sleep(5 * time.Millisecond)
				}
				processor := float64(lab.CPUOf(victim.PID())-before) / float64(time.Since(begin))
				t.Logf("%-8s %-62s RSS %4d MB  fds %4d  CPU %4.2f", mode, a.name, resident>>20, descriptors, processor) // logged now, because the node may have died
				s, o := victimLoad().Loaded, otherLoad().Loaded
				after := victim.do(t, Order{})
				attacked.Wait()
				joined := joinsMeanwhile(t, a, secret, victim)
				resident = max(resident, lab.Resident(victim.PID()))
				t.Logf("p50 %v  p99 %v  max %v  (other: p99 %v)  another joins in %v  RSS then %d MB  members %d  checks %v  refused %v",
					rounded(s.Took.Quantile(0.5)), rounded(s.Took.Quantile(0.99)), rounded(s.Took.Most), rounded(o.Took.Quantile(0.99)),
					rounded(joined), resident>>20, after.Members, s.Sources, after.Refused)
				require.Empty(t, append(s.Errors, o.Errors...))
				if !testenv.Race { // the race detector uses several bytes for each byte of the program
					require.Less(t, resident, siegeResident)
				}
				require.Less(t, descriptors, siegeDescriptors)
				require.LessOrEqual(t, after.Members, siegeMembers)
				require.Less(t, joined, siegeJoin, "a new member can join")
				require.LessOrEqual(t, s.Took.Most, 5*time.Second, "no check stalls")
			})
		}
	}
}

// joinsMeanwhile attacks the victim again, and returns the time that a new node takes to join it.
func joinsMeanwhile(t *testing.T, a attack, secret string, victim *besiegedNode) time.Duration {
	ctx, stop := context.WithCancel(t.Context())
	var attacked sync.WaitGroup
	defer attacked.Wait()
	defer stop()
	attacked.Go(func() { a.do(ctx, victim.addr) })
	time.Sleep(100 * time.Millisecond)
	begin, machine := time.Now(), lab.MeasureDelay()
	defer machine.Stop()
	late := besiege(t, secret, victim.addr, 0)
	for {
		members := late.do(t, Order{}).Members
		// The lateness of this process is not part of the time.
		if took := time.Since(begin) - machine.Total(); members >= 2 || took > siegeJoin {
			return took
		}
		time.Sleep(time.Millisecond)
	}
}

// The maximum cost of an attack. An idle node uses 20 MB, and each connection that has not
// authenticated uses about 10 KB.
const (
	siegeResident    = int64(160 << 20)
	siegeDescriptors = int64(1500)
	siegeMembers     = 2 + 512 + 32*60
	siegeJoin        = 20 * time.Second
)
