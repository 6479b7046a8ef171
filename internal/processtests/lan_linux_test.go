package processtests

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// lan is a network of hosts. Each host is a network namespace, and a further namespace contains a
// bridge. A veth pair connects each host to the bridge.
//
// The receiver uses nftables to drop the packets of a single host. Without nftables, the sender
// gets a neighbour entry with an unused hardware address.
type lan struct {
	t        *testing.T
	prefix   string // prefix of all namespace names, and the name of a new tap device: at most 15 bytes
	hosts    int
	nftables bool
	astray   [][2]int // sender and receiver of each neighbour entry with an unused hardware address
}

// newLAN creates the network, and removes it when the test ends. It skips the test without root
// or iproute2.
func newLAN(t *testing.T, hosts int) *lan {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need the ip command (iproute2)")
	}
	l := &lan{t: t, prefix: fmt.Sprintf("weir%08x", rand.Uint32()), hosts: hosts}
	l.namespace(l.switches())
	l.need("a bridge", "-n", l.switches(), "link", "add", "br0", "type", "bridge")
	l.ip("-n", l.switches(), "link", "set", "br0", "up")
	for i := range hosts {
		l.namespace(l.host(i))
		l.need("a pair of veth", "link", "add", "eth0", "netns", l.host(i), "type", "veth", "peer", "name", l.port(i), "netns", l.switches())
		l.bringUp(i)
	}
	l.nftables = true
	for i := range hosts {
		const rules = "table inet cut { set gone { type ipv4_addr; }; chain in { type filter hook input priority 0; ip saddr @gone drop; }; }"
		if out, err := l.execute(i, "nft", rules); err != nil {
			t.Logf("no nftables here, so hosts are cut off by neighbour entries: %v %s", err, out)
			l.nftables = false
			break
		}
	}
	return l
}

func (l *lan) switches() string     { return l.prefix + "sw" }
func (l *lan) host(i int) string    { return fmt.Sprint(l.prefix, "h", i) }
func (l *lan) port(i int) string    { return fmt.Sprint("port", i) }
func (l *lan) address(i int) string { return fmt.Sprint("192.0.2.", i+1) } // an address of TEST-NET-1

// endpoint returns the address and the port of the node on host i.
func (l *lan) endpoint(i int) string { return l.address(i) + ":7946" }

// namespace creates a network namespace, or skips the test if it cannot.
func (l *lan) namespace(name string) {
	l.t.Helper()
	l.need("network namespaces", "netns", "add", name)
	l.t.Cleanup(func() { l.ip("netns", "del", name) })
}

// bringUp sets the address of eth0 on host i, and connects the other end of the pair to the bridge.
func (l *lan) bringUp(i int) {
	l.t.Helper()
	l.ip("-n", l.host(i), "addr", "add", l.address(i)+"/24", "dev", "eth0")
	l.ip("-n", l.host(i), "link", "set", "eth0", "up")
	l.ip("-n", l.host(i), "link", "set", "lo", "up")
	l.ip("-n", l.switches(), "link", "set", l.port(i), "up")
	l.ip("-n", l.switches(), "link", "set", l.port(i), "master", "br0")
}

func (l *lan) ip(args ...string) {
	l.t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(l.t, err, "ip %s: %s", strings.Join(args, " "), out)
}

// need runs the ip command. It skips the test if the command fails, which means that the
// kernel does not support the feature or that the user lacks the permission.
func (l *lan) need(what string, args ...string) {
	l.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.t.Skipf("this needs %s: ip %s: %v %s", what, strings.Join(args, " "), err, out)
	}
}

// execute runs a command in the network namespace of host i, and returns the output.
func (l *lan) execute(i int, command ...string) ([]byte, error) {
	return exec.Command("ip", append([]string{"netns", "exec", l.host(i)}, command...)...).CombinedOutput()
}

// run starts a node on host i, which joins the nodes of all hosts. A timeout of zero means the
// default.
func (l *lan) run(i int, timeout time.Duration) *remote {
	l.t.Helper()
	var join []string
	for j := range l.hosts {
		join = append(join, l.endpoint(j))
	}
	return newRemote(l.t, settings{Bind: l.endpoint(i), Join: join, Timeout: timeout, Secret: "sixteen-bytes..."}, "ip", "netns", "exec", l.host(i))
}

// cut drops all packets that the given other hosts send to a host. The sender gets no
// error.
func (l *lan) cut(to int, from ...int) {
	l.t.Helper()
	if !l.nftables {
		for _, i := range from {
			l.ip("-n", l.host(i), "neigh", "replace", l.address(to), "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")
			l.astray = append(l.astray, [2]int{i, to})
		}
		return
	}
	var gone []string
	for _, i := range from {
		gone = append(gone, l.address(i))
	}
	out, err := l.execute(to, "nft", "add element inet cut gone { "+strings.Join(gone, ", ")+" }")
	require.NoError(l.t, err, "%s", out)
}

// split cuts all links between the first k hosts and the other hosts, in both directions.
func (l *lan) split(k int) {
	l.t.Helper()
	var some, others []int
	for i := range l.hosts {
		if i < k {
			some = append(some, i)
		} else {
			others = append(others, i)
		}
	}
	for _, i := range some {
		l.cut(i, others...)
	}
	for _, i := range others {
		l.cut(i, some...)
	}
}

// heal ends all cuts.
func (l *lan) heal() {
	l.t.Helper()
	for _, entry := range l.astray {
		l.ip("-n", l.host(entry[0]), "neigh", "del", l.address(entry[1]), "dev", "eth0")
	}
	l.astray = nil
	for i := range l.hosts {
		if l.nftables {
			out, err := l.execute(i, "nft", "flush set inet cut gone")
			require.NoError(l.t, err, "%s", out)
		}
	}
}

// means returns the name of the method that cut uses.
func (l *lan) means() string {
	if l.nftables {
		return "nftables"
	}
	return "neighbour entries with an unused hardware address"
}

// The delay, the jitter and the loss rate of a slow link.
const (
	linkDelay  = 5 * time.Millisecond
	linkJitter = time.Millisecond
	linkLoss   = 0.01
)

// slow adds linkDelay, linkJitter and linkLoss to the frames that host i sends.
// It returns the name of the method: netem, or a goroutine that copies frames between two tap
// devices. The caller must call slow before run, because it may replace eth0.
func (l *lan) slow(i int) string {
	l.t.Helper()
	netem := []string{
		"tc", "qdisc", "add", "dev", "eth0", "root", "netem",
		"delay", linkDelay.String(), linkJitter.String(), "loss", fmt.Sprint(100*linkLoss, "%"),
	}
	out, err := l.execute(i, netem...)
	if err == nil {
		return "netem"
	}
	l.t.Logf("no netem here: %v %s", err, strings.TrimSpace(string(out)))
	l.ip("-n", l.host(i), "link", "del", "eth0")
	near := l.tap(l.host(i), "eth0")
	far := l.tap(l.switches(), l.port(i))
	l.bringUp(i)
	var wires sync.WaitGroup
	wires.Go(func() { slowWire(far, near) })
	wires.Go(func() { fastWire(near, far) })
	l.t.Cleanup(func() {
		near.Close()
		far.Close()
		wires.Wait()
	})
	return "a wire between two tap devices"
}

// tap creates a tap device in the given namespace.
func (l *lan) tap(namespace, name string) *os.File {
	l.t.Helper()
	const (
		tunSetIff = 0x400454ca
		iffTap    = 0x0002
		iffNoPI   = 0x1000
	)
	device, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		l.t.Skipf("a slow link needs netem or tap devices, and neither is available: /dev/net/tun: %v", err)
	}
	request := struct { // ifreq of netdevice(7)
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: iffTap | iffNoPI}
	made := l.prefix
	copy(request.name[:], made)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(device), tunSetIff, uintptr(unsafe.Pointer(&request))); errno != 0 {
		syscall.Close(device)
		l.t.Skipf("a slow link needs netem or tap devices, and neither is available: a tap device: %v", errno)
	}
	l.ip("link", "set", made, "netns", namespace, "name", name)
	return os.NewFile(uintptr(device), made)
}

// fastWire copies frames until the device that it reads from is closed.
func fastWire(to, from *os.File) {
	for frame := make([]byte, 1<<16); ; {
		n, err := from.Read(frame)
		if err != nil {
			return
		}
		to.Write(frame[:n]) // a frame is lost if the write fails
	}
}

// slowWire is like fastWire, with the delay, jitter and loss of a slow link. It keeps the order
// of the frames, and drops a frame if its queue is full.
func slowWire(to, from *os.File) {
	type frame struct {
		bytes []byte
		due   time.Time
	}
	underWay := make(chan frame, 1024)
	var sender sync.WaitGroup
	sender.Go(func() {
		for f := range underWay {
			time.Sleep(time.Until(f.due))
			to.Write(f.bytes)
		}
	})
	random := rand.New(rand.NewPCG(1, 2))
	for buffer := make([]byte, 1<<16); ; {
		n, err := from.Read(buffer)
		if err != nil {
			close(underWay)
			sender.Wait()
			return
		}
		if random.Float64() < linkLoss {
			continue
		}
		late := linkDelay + time.Duration((2*random.Float64()-1)*float64(linkJitter))
		select {
		case underWay <- frame{slices.Clone(buffer[:n]), time.Now().Add(late)}:
		default:
		}
	}
}
