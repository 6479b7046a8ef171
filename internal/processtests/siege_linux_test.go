package processtests

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/lzw"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/internal/realtime"
)

// siegeVariable makes TestANodeUnderSiege, in a process of its own, a node: one that joins
// the address that it holds, after its secret and how many file descriptors it may have,
// 0 for as many as there are.
const siegeVariable = "WEIR_TEST_SIEGE"

var siegeFor = flag.Duration("siege", 300*time.Millisecond, "how long each attack of TestSiege goes on")

// besieged is what a node says of the time since it was asked last.
type besieged struct {
	P50, P99, Max time.Duration // of its own checks, of which it decides half
	Checks        int
	Sources       map[string]int
	Members       int
	Refused       map[string]uint64
}

// siegeMemory is all the address space that a node under siege may have: more than it
// is ever to need, and less than the machine.
const siegeMemory = 6 << 30

// serveBesieged is the other process: a node that checks a thousand times a second, and
// says how that went whenever it is asked.
func serveBesieged(told string) error {
	told, join, _ := strings.Cut(told, " ")
	secret, files, _ := strings.Cut(told, ",")
	_ = syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: siegeMemory, Max: siegeMemory})
	if n, _ := strconv.ParseUint(files, 10, 64); n > 0 {
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
	}
	cfg := weir.Config{Bind: "127.0.0.1:0", Join: strings.Fields(join), Logger: quiet}
	if secret != "" {
		cfg.Secrets = [][]byte{[]byte(secret)}
	}
	n, err := weir.Start(context.Background(), cfg)
	if err != nil {
		return err
	}
	defer n.Close()
	limit, err := n.Limiter(weir.Limit{Name: "siege", Rate: 1_000_000_000, Per: time.Minute})
	if err != nil {
		return err
	}
	for !n.Ready() {
		time.Sleep(time.Millisecond)
	}
	for _, m := range n.Members() {
		if m.Self {
			fmt.Println(m.Addr)
		}
	}
	var (
		mu    sync.Mutex
		took  []time.Duration
		s     besieged
		clear = func() { took, s = nil, besieged{Sources: map[string]int{}} }
	)
	clear()
	go func() {
		for range time.Tick(time.Millisecond) {
			begin := time.Now()
			d, err := limit.Allow(context.Background(), strconv.Itoa(rand.IntN(1000)))
			source := d.Source.String()
			if err != nil {
				source = err.Error()
			}
			mu.Lock()
			took = append(took, time.Since(begin))
			s.Sources[source]++
			mu.Unlock()
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		mu.Lock()
		slices.Sort(took)
		if s.Checks = len(took); s.Checks > 0 {
			s.P50, s.P99, s.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
		}
		s.Members, s.Refused = len(n.Members()), n.Stats().Cluster.Refused
		line, _ := json.Marshal(s)
		clear()
		mu.Unlock()
		fmt.Println(string(line))
	}
	return nil
}

func TestANodeUnderSiege(t *testing.T) {
	if told := os.Getenv(siegeVariable); told != "" {
		require.NoError(t, serveBesieged(told))
	}
}

// besiegedNode is a process with one.
type besiegedNode struct {
	*lab.Child
	t     *testing.T
	lines chan string // that it prints
	addr  string
}

func besiege(t *testing.T, secret, join string, files int) *besiegedNode {
	t.Helper()
	n := &besiegedNode{t: t, lines: make(chan string)}
	cmd := exec.Command(os.Args[0], "-test.run=^TestANodeUnderSiege$", "-test.timeout=1h")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%d %s", siegeVariable, secret, files, join))
	over, end := context.WithCancel(t.Context())
	var err error
	n.Child, err = lab.StartCommand(cmd, nil, func(line []byte) {
		select {
		case n.lines <- string(line):
		case <-over.Done():
		}
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		end()
		_ = n.Kill()
		<-n.Ended()
	})
	line, lives := n.next()
	require.True(t, lives)
	n.addr = line
	_, _, err = net.SplitHostPort(n.addr)
	require.NoError(t, err)
	return n
}

// next is the next line that the node prints; false if it has died.
func (n *besiegedNode) next() (line string, lives bool) {
	select {
	case line = <-n.lines:
		return line, true
	case <-n.Ended():
		return "", false
	}
}

// says is what the node says; false if it has died.
func (n *besiegedNode) says() (s besieged, lives bool) {
	_ = n.Order(struct{}{}) // any line asks
	line, lives := n.next()
	if lives {
		require.NoError(n.t, json.Unmarshal([]byte(line), &s))
	}
	return s, lives
}

// processor is the time that the process has had one.
func (n *besiegedNode) processor() time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID()))
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	var ticks int
	for _, field := range fields[11:13] {
		n, _ := strconv.Atoi(field)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// attack goes on until ctx is done.
type attack struct {
	name  string
	do    func(ctx context.Context, addr string)
	files int // that the node may have open, 0 for as many as there are
}

func msgpack(v any) (b []byte) {
	codec.NewEncoderBytes(&b, new(codec.MsgpackHandle)).MustEncode(v)
	return b
}

// The types of memberlist's messages.
const (
	attackPing         = 0
	attackIndirectPing = 1
	attackAlive        = 4
	attackPushPull     = 6
	attackCompound     = 7
	attackCompressed   = 9
)

// attackLabel is what all gossip of a cluster without a Seed begins with.
func attackLabel() []byte {
	seed := identity.New(nil).Fingerprint()
	sum := sha256.Sum256(seed[:])
	label := "weir" + base64.RawURLEncoding.EncodeToString(sum[:9])
	return append([]byte{244, byte(len(label))}, label...)
}

func gossiped(kind byte, v any) []byte { return append([]byte{kind}, msgpack(v)...) }

// packets sends what next makes as fast as it can, or at a pace.
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

// connections keeps so many open that have sent first, and opens new ones for those
// that are closed. They come from so many addresses.
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

func phantom(i int) []byte {
	seed := identity.New(nil).Fingerprint()
	addr := fmt.Sprintf("127.%d.%d.%d:9", 1+i>>16&0x7f, i>>8&0xff, i&0xff)
	ip := net.ParseIP(strings.TrimSuffix(addr, ":9")).To4()
	return gossiped(attackAlive, map[string]any{
		"Incarnation": 1, "Node": fmt.Sprint("phantom-", i), "Addr": []byte(ip), "Port": 9, "Vsn": []byte{1, 5, 2, 1, 1, 1},
		"Meta": msgpack(map[string]any{"v": 1, "a": addr, "r": "", "s": seed[:], "b": time.Now().UnixNano(), "e": 0, "n": 1, "t": 1}),
	})
}

func compressed(size int) []byte {
	var b bytes.Buffer
	w := lzw.NewWriter(&b, lzw.LSB, 8)
	w.Write(make([]byte, size))
	w.Close()
	return gossiped(attackCompressed, map[string]any{"Algo": 0, "Buf": b.Bytes()})
}

func attacks() []attack {
	labelled := func(b []byte) []byte { return append(attackLabel(), b...) }
	stream := func(b []byte) []byte { return append([]byte{0xC8}, labelled(b)...) }
	claim := func(nodes, state int) []byte {
		return stream(gossiped(attackPushPull, map[string]any{"Nodes": nodes, "UserStateLen": state, "Join": true}))
	}
	bomb := compressed(39 << 20)
	junk := make([]byte, 1400)
	many := func(part []byte) []byte {
		b, n := []byte{attackCompound, 0}, (1300)/(len(part)+2)
		b[1] = byte(min(n, 255))
		for range b[1] {
			b = append(b, byte(len(part)>>8), byte(len(part)))
		}
		return append(b, bytes.Repeat(part, int(b[1]))...)
	}
	elsewhere := []byte{127, 0, 0, 2}
	pings := many(gossiped(attackPing, map[string]any{"SeqNo": 1, "SourceAddr": elsewhere, "SourcePort": 9}))
	indirect := many(gossiped(attackIndirectPing, map[string]any{"SeqNo": 1, "Target": elsewhere, "Port": 9, "Nack": true}))
	return []attack{
		{name: "nothing", do: func(ctx context.Context, _ string) { <-ctx.Done() }},
		{name: "60 push/pulls that claim 1,048,576 nodes", do: connections(60, 1, claim(1<<20, 0))},
		{name: "60 push/pulls that claim 20 MB of state", do: connections(60, 1, claim(0, 20<<20))},
		{name: fmt.Sprintf("packets of %d KB, 39 MB when decompressed, 20 a second", len(bomb)>>10), do: packets(50*time.Millisecond, func(int) []byte { return labelled(bomb) })},
		{name: "2,000 packets of phantom members a second", do: packets(500*time.Microsecond, func(i int) []byte { return labelled(phantom(i)) })},
		{name: "packets of pings", do: packets(0, func(int) []byte { return labelled(pings) })},
		{name: "packets of pings on others' behalf", do: packets(0, func(int) []byte { return labelled(indirect) })},
		{name: "packets of junk", do: packets(0, func(int) []byte { return junk })},
		{name: "2,000 silent connections", do: connections(2000, 1, nil)},
		{name: "2,000 silent connections from 2,000 addresses", do: connections(2000, 2000, nil)},
		{name: "1,000 silent connections, of 256 file descriptors", do: connections(1000, 1000, nil), files: 256},
		{name: "2,000 connections of half a handshake", do: connections(2000, 1, []byte{0xC7, 2})},
		{name: "500 connections of half a push/pull", do: connections(500, 1, claim(1, 0))},
	}
}

// TestSiege attacks one of two nodes in each way that is known, from outside, and says
// what it costs: go test -run TestSiege -v -siege 5s ./internal/processtests
func TestSiege(t *testing.T) {
	wantsTheMachine(t)
	for _, secret := range []string{"", "sixteen-bytes..."} {
		mode := "open"
		if secret != "" {
			mode = "Secrets"
		}
		for _, a := range attacks() {
			if secret != "" && *siegeFor < time.Second && !strings.HasPrefix(a.name, "2,000") {
				continue // what costs nothing without Secrets costs nothing with them
			}
			t.Run(mode+" "+a.name, func(t *testing.T) {
				victim := besiege(t, secret, "", a.files)
				other := besiege(t, secret, victim.addr, 0)
				realtime.Eventually(t, "both are members", func() bool {
					s, _ := victim.says()
					return s.Members == 2
				})
				time.Sleep(200 * time.Millisecond)
				victim.says() // what came before is not counted
				other.says()
				before, begin := victim.processor(), time.Now()
				ctx, stop := context.WithTimeout(t.Context(), *siegeFor)
				defer stop()
				var attacked sync.WaitGroup
				attacked.Go(func() { a.do(ctx, victim.addr) })
				resident, descriptors := int64(0), int64(0)
				for ctx.Err() == nil {
					resident, descriptors = max(resident, lab.Resident(victim.PID())), max(descriptors, lab.OpenFiles(victim.PID()))
					time.Sleep(5 * time.Millisecond)
				}
				processor := float64(victim.processor()-before) / float64(time.Since(begin))
				s, lives := victim.says()
				o, _ := other.says()
				attacked.Wait()
				joined := joinsMeanwhile(t, a, secret, victim)
				resident = max(resident, lab.Resident(victim.PID()))
				if !lives {
					t.Fatalf("%-8s %-62s it has died with %d MB: %s", mode, a.name, resident>>20, victim.How())
				}
				t.Logf("%-8s %-62s RSS %4d MB  fds %4d  CPU %4.2f  p50 %7v  p99 %7v  max %7v  (other: p99 %7v)  another joins in %6v  members %4d  checks %v  refused %v",
					mode, a.name, resident>>20, descriptors, processor, s.P50.Round(time.Microsecond), s.P99.Round(time.Microsecond), s.Max.Round(time.Microsecond),
					o.P99.Round(time.Microsecond), joined.Round(time.Millisecond), s.Members, s.Sources, s.Refused)
				if !race.Enabled { // which keeps several bytes of its own for each
					require.Less(t, resident, siegeResident)
				}
				require.Less(t, descriptors, siegeDescriptors)
				require.LessOrEqual(t, s.Members, siegeMembers)
				require.Less(t, joined, siegeJoin, "a member that joins is let in")
				require.Less(t, cmp.Compare(s.Max, 5*time.Second), 1, "no check stalls")
			})
		}
	}
}

// joinsMeanwhile is how long it takes until one more node has met the victim that is
// attacked again.
func joinsMeanwhile(t *testing.T, a attack, secret string, victim *besiegedNode) time.Duration {
	ctx, stop := context.WithCancel(t.Context())
	var attacked sync.WaitGroup
	defer attacked.Wait()
	defer stop()
	attacked.Go(func() { a.do(ctx, victim.addr) })
	time.Sleep(100 * time.Millisecond)
	begin, machine := time.Now(), realtime.MeasureLateness()
	defer machine.Stop()
	late := besiege(t, secret, victim.addr, 0)
	for {
		s, lives := late.says()
		// What this process was late itself is the machine's, and nobody's join.
		if took := time.Since(begin) - machine.Total(); lives && s.Members >= 2 || took > siegeJoin {
			return took
		}
		time.Sleep(time.Millisecond)
	}
}

// What a siege may cost: a node at rest has 20 MB, and each connection that has proved
// nothing some 10 KB.
const (
	siegeResident    = int64(160 << 20)
	siegeDescriptors = int64(1500)
	siegeMembers     = 2 + 512 + 32*60
	siegeJoin        = 20 * time.Second
)
