package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/lab"
)

// sizerRole is the role of a process with a node as it is deployed: with secrets, a
// replica of each count, and the check API.
const sizerRole = "Sizer"

// Sizer is the service of such a process.
type Sizer struct {
	node    *weir.Node
	limiter *weir.Limiter // admits everything
	daily   *weir.Limiter // has long-lived counts
	banning *weir.Limiter // bans at the first denial
	checks  *http.Server
	echo    *worker.Instance
	asked   int
	keys    map[string][]string // keyed by SizerLoad.Way
}

// SizerSetup contains the cluster and the sizes of a node.
type SizerSetup struct {
	Join  []string
	Keys  int // capacity for keys
	Asked int // number of keys that Load checks, for each kind of decision
}

type SizerAddrs struct{ Peers, Checks, Echo string }

func (s *Sizer) Close() error {
	if s.node == nil {
		return nil
	}
	return errors.Join(s.checks.Close(), s.node.Close(), s.echo.Close())
}

// Start starts the node, and serves its check API.
func (s *Sizer) Start(o SizerSetup, addrs *SizerAddrs) (err error) {
	// This secret is public: all nodes are processes of this machine.
	secret := bytes.Repeat([]byte{1}, 32)
	s.asked = o.Asked
	if s.echo, err = newEcho(); err != nil {
		return err
	}
	addrs.Echo = s.echo.Addr
	s.node, err = weir.Start(context.Background(), weir.Config{
		Bind: "127.0.0.1:0", Join: o.Join, Secrets: [][]byte{secret}, Seed: secret, MaxKeys: o.Keys, Logger: quiet(),
	})
	if err != nil {
		return err
	}
	s.limiter, err = s.node.Limiter(weir.Limit{Name: "sizing", Algorithm: weir.TokenBucket, Rate: worker.Million, Per: time.Hour, Burst: worker.Million})
	if err != nil {
		return err
	}
	if s.daily, err = s.node.Limiter(weir.Limit{Name: "daily", Algorithm: weir.SlidingWindow, Rate: 1000, Per: 24 * time.Hour}); err != nil {
		return err
	}
	ban := weir.Ban{Denials: 1, Within: time.Minute, For: weir.BanLengths{24 * time.Hour}}
	if s.banning, err = s.node.Limiter(weir.Limit{Name: "banning", Rate: 1, Per: time.Hour, Ban: ban}); err != nil {
		return err
	}
	checks, err := admin.CheckHandler(s.node, nil, admin.CheckOptions{Open: true, Logger: quiet()})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.checks = &http.Server{Handler: checks, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.checks.Serve(l) }() // ends with Close
	addrs.Checks = l.Addr().String()
	addrs.Peers = addrOf(s.node)
	return nil
}

// sizedKeys is the number of keys among which the command chooses at random. There are so
// many that no key is checked often enough for a lease, except for the keys of the checks
// that leases decide.
const sizedKeys = 200_000

// Meet waits until the nodes of all processes are members, connects to one of the given addresses for
// echoes, and chooses the keys.
func (s *Sizer) Meet(echoes []string, _ *int) error {
	if err := errors.Join(awaitMembers(s.node, len(echoes), worker.StartWait), awaitAuthority(s.limiter, worker.StartWait), s.echo.Meet(echoes)); err != nil {
		return err
	}
	others := worker.KeysThat(s.asked, func(key string) bool { return !s.limiter.Owner(key).Self })
	s.keys = map[string][]string{
		"owned":     worker.KeysThat(s.asked, func(key string) bool { return s.limiter.Owner(key).Self }),
		"forwarded": others,
		"leased":    others[:min(len(others), 10)],
		"echo":      others,
		"nothing":   others,
		bannedWay:   {bannedKey},
	}
	return nil
}

// SizerLoad is the load of a node.
type SizerLoad struct {
	Way  string  // the kind of decision of all checks, such as "owned" or "leased"; "nothing" if no checks are sent
	Rate float64 // checks per second
	For  time.Duration
}

// SizerSpent is the cost of a load.
type SizerSpent struct {
	Checks, Other int  // Other counts the checks that failed, or were decided in another way
	Owns          bool // the node owns the key of bannedWay
	CPU           time.Duration
}

// sizerCallers is the number of callers of a node.
const sizerCallers = 64

// bannedWay is the way of checks of a banned key, at all nodes except the owner of the
// key.
const (
	bannedWay = "banned"
	bannedKey = "banned"
)

// Load makes checks at the given rate. The reply contains the CPU time of the process.
func (s *Sizer) Load(o SizerLoad, spent *SizerSpent) error {
	if spent.Owns = s.banning.Owner(bannedKey).Self; spent.Owns && o.Way == bannedWay {
		o.Way = "nothing"
		o.Rate = 1
	}
	before := lab.CPU()
	want := map[string]weir.Source{"owned": weir.Owner, "forwarded": weir.Forwarded, "leased": weir.Leased}[o.Way]
	keys := s.keys[o.Way]
	var other atomic.Int64
	spent.Checks = paced(sizerCallers, o.Rate, o.For, func(_ int, r *rand.Rand) {
		key := keys[r.IntN(len(keys))]
		switch o.Way {
		case "nothing":
			return
		case bannedWay:
			if d, err := s.banning.Allow(context.Background(), key); err != nil || !d.Banned {
				other.Add(1)
			}
			return
		case "echo":
			if s.echo.Allow(key)&worker.Failed != 0 {
				other.Add(1)
			}
			return
		}
		if d, err := s.limiter.Allow(context.Background(), key); err != nil || d.Source != want {
			other.Add(1)
		}
	})
	spent.Other = int(other.Load())
	spent.CPU = lab.CPU() - before
	return nil
}

// paced runs callers that call the function do at the given total rate, at random
// moments, and returns the number of calls. A late caller makes its next call at once.
func paced(callers int, rate float64, d time.Duration, do func(caller int, r *rand.Rand)) (done int) {
	var all sync.WaitGroup
	var count atomic.Int64
	begun := time.Now()
	for i := range callers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for at := 0.0; ; count.Add(1) {
				if at += r.ExpFloat64() * float64(callers) / rate; at > d.Seconds() || time.Since(begun) > d {
					return
				}
				time.Sleep(time.Until(begun.Add(time.Duration(at * float64(time.Second)))))
				do(i, r)
			}
		})
	}
	all.Wait()
	return int(count.Load())
}

// Fill makes a check for each of n keys that the node owns.
func (s *Sizer) Fill(n int, _ *int) error {
	var b [worker.KeyBytes]byte
	for i := 0; n > 0; i++ {
		key := string(worker.AppendKey(b[:0], i))
		if !s.daily.Owner(key).Self {
			continue
		}
		if _, err := s.daily.Allow(context.Background(), key); err != nil {
			return err
		}
		n--
	}
	return nil
}

// SizerMemory contains the memory of a node, and the number of keys that it has.
type SizerMemory struct {
	Keys int
	Peak int64 // maximum bytes of the process
}

// Memory waits until the node has counts of the given number of keys, as owner and as
// replica, and has sent all replicas of its own counts.
func (s *Sizer) Memory(keys int, m *SizerMemory) error {
	at := s.node.Stats()
	for begun := time.Now(); at.Keys < keys || at.Stream.Unsent > 0; at = s.node.Stats() {
		if time.Since(begun) > sizerWait {
			return fmt.Errorf("bench: a node has %d of %d keys, and %d copies to send, after %v", at.Keys, keys, at.Stream.Unsent, sizerWait)
		}
		time.Sleep(50 * time.Millisecond)
	}
	m.Keys, m.Peak = at.Keys, lab.PeakMemory()
	return nil
}

// sizers is a set of nodes that know each other.
type sizers struct {
	asked int // number of checked keys of each kind
	all   []*lab.Service
	addrs []SizerAddrs
}

// startSizers starts nodes, each with capacity for the given number of keys. The
// argument asked is the number of checked keys of each kind.
func startSizers(nodes, keys, asked int, env ...string) (s *sizers, err error) {
	s = &sizers{asked: asked}
	defer func() {
		if err != nil {
			err = errors.Join(err, endAll(s.all))
		}
	}()
	setup, echoes := SizerSetup{Keys: keys, Asked: asked}, []string(nil)
	for range nodes {
		r, err := startRemote("", sizerRole, env...)
		if err != nil {
			return s, err
		}
		s.all = append(s.all, r)
		var addrs SizerAddrs
		if err := r.Call("Sizer.Start", setup, &addrs); err != nil {
			return s, err
		}
		s.addrs = append(s.addrs, addrs)
		setup.Join, echoes = append(setup.Join, addrs.Peers), append(echoes, addrs.Echo)
	}
	_, err = callAll[int](s.all, sizerWait, "Sizer.Meet", echoes)
	return s, err
}

// sizerWait bounds each call of all sizers, and the wait of Memory.
const sizerWait = 10 * time.Minute

// load makes checks on all nodes at a total rate, and returns their number and CPU time.
func (s *sizers) load(way string, rate float64, d time.Duration) (spent SizerSpent, err error) {
	all, err := callAll[SizerSpent](s.all, sizerWait, "Sizer.Load", SizerLoad{way, rate / float64(len(s.all)), d})
	for _, one := range all {
		spent.Checks, spent.Other, spent.CPU = spent.Checks+one.Checks, spent.Other+one.Other, spent.CPU+one.CPU
	}
	return spent, err
}

// overHTTP sends checks from this process over the check API, each for a random key and
// to a random node.
func (s *sizers) overHTTP(rate float64, d time.Duration) (spent SizerSpent, err error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 3 * sizerCallers}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: worker.StartWait}
	var measured sync.WaitGroup
	measured.Go(func() { spent, err = s.load("nothing", 1, d) })
	errs := make([]error, 3*sizerCallers)
	checks := paced(len(errs), rate, d, func(caller int, r *rand.Rand) {
		key := worker.AppendKey(nil, r.IntN(s.asked))
		body := fmt.Sprintf(`{"key":%q,"name":"sizing","limit":%d,"window_ms":3600000}`, key, worker.Million)
		a, err := client.Post("http://"+s.addrs[r.IntN(len(s.addrs))].Checks+"/v1/check", "application/json", strings.NewReader(body))
		if err != nil {
			errs[caller] = err
			return
		}
		if _, err := io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != http.StatusOK {
			errs[caller] = errors.Join(fmt.Errorf("bench: a check over HTTP is answered with %s", a.Status), err)
		}
		_ = a.Body.Close()
	})
	measured.Wait()
	spent.Checks = checks
	return spent, errors.Join(append(errs, err)...)
}

// sizedRates contains the rates of the cluster, in checks per second.
var sizedRates = [...]float64{1_000, 10_000, 100_000}

const sizingNodes = 3

// size prints the CPU time of checks of each kind at each rate, the CPU time of the owner
// of a banned key, and the memory of keys. Each measurement of CPU time takes d.
func size(ctx context.Context, d time.Duration, asked, keys int, out io.Writer) (err error) {
	if !lab.Signals {
		return errors.New("bench: -sizing needs getrusage: run it on a Unix")
	}
	fmt.Fprintf(out, "CPU time of all %d nodes for a check, in µs, at this total number of checks a second:\n\n| a check | 1,000 | 10,000 | 100,000 |\n|---|---|---|---|\n", sizingNodes)
	s, err := startSizers(sizingNodes, 4*sizingNodes*asked, asked)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endAll(s.all)) }()
	idle, err := s.load("nothing", 1, d)
	if err != nil {
		return err
	}
	for _, way := range []string{"owned", "echo", "forwarded", "leased", "over HTTP"} {
		fmt.Fprintf(out, "| %s ", way)
		for _, rate := range sizedRates {
			if err := ctx.Err(); err != nil {
				return err
			}
			var spent, besides SizerSpent
			switch {
			case way == "over HTTP" && rate > 10_000: // the callers use more of the machine than the nodes
				fmt.Fprint(out, "| - ")
				continue
			case way == "over HTTP":
				spent, err = s.overHTTP(rate, d)
				besides = idle
			default:
				if _, err = s.load(way, rate, d/4); err == nil { // creates the buckets and the leases before the measurement
					besides, err = s.load("nothing", rate, d)
				}
				if err == nil {
					spent, err = s.load(way, rate, d)
				}
			}
			if err != nil {
				return err
			}
			each := float64((spent.CPU - besides.CPU).Nanoseconds()) / 1000 / float64(spent.Checks)
			fmt.Fprintf(out, "| %.1f ", each)
			if got := float64(spent.Checks) / d.Seconds(); got < .9*rate {
				fmt.Fprintf(out, "(at %.0f) ", got)
			}
			if part := float64(spent.Other) / float64(spent.Checks); part > .02 {
				fmt.Fprintf(out, "(%.0f %% decided otherwise) ", 100*part)
			}
		}
		fmt.Fprintln(out, "|")
	}
	fmt.Fprintf(out, "\nA node without checks uses %.1f ms of CPU time a second.\n", float64(idle.CPU.Milliseconds())/d.Seconds()/sizingNodes)
	if err := sizeBan(d, out); err != nil {
		return err
	}
	return sizeMemory(ctx, keys, out)
}

// banFlood is the number of checks per second of a banned key, over four nodes.
const banFlood = 100_000

// sizeBan prints the CPU time of the owner of a banned key during a flood of its checks at the four other
// nodes, and without a flood.
func sizeBan(d time.Duration, out io.Writer) (err error) {
	const nodes = 5
	s, err := startSizers(nodes, 1000, 100)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endAll(s.all)) }()
	fmt.Fprintf(out, "\nOf %d nodes, four get checks of a banned key that the fifth owns:\n\n| checks a second | not banned | CPU time of the owner, ms a second |\n|---|---|---|\n", nodes)
	for _, load := range []SizerLoad{{bannedWay, 100, d / 4}, {"nothing", 1, d}, {bannedWay, banFlood / (nodes - 1), d}} {
		all, err := callAll[SizerSpent](s.all, sizerWait, "Sizer.Load", load)
		if err != nil {
			return err
		}
		checks, other, owner := 0, 0, time.Duration(0)
		for _, one := range all {
			if one.Owns {
				owner = one.CPU
			} else if load.Way == bannedWay {
				checks, other = checks+one.Checks, other+one.Other
			}
		}
		if load.For == d {
			fmt.Fprintf(out, "| %.0f | %d | %.2f |\n", float64(checks)/d.Seconds(), other, owner.Seconds()*1000/d.Seconds())
		}
	}
	return nil
}

// sizeMemory prints the memory of a node in a cluster of two. Each node has the given
// number of keys, half of them as replicas.
func sizeMemory(ctx context.Context, keys int, out io.Writer) error {
	fmt.Fprint(out, "\nMemory of each of two nodes. Each has all keys, half of them as replicas:\n\n| keys | GOMEMLIMIT | peak of the process, MiB | bytes a key |\n|---|---|---|---|\n")
	for _, limit := range []int64{0, memoryFor(keys)} {
		name, env := "-", []string(nil)
		if limit > 0 {
			name, env = fmt.Sprintf("%d MiB", limit>>20), []string{fmt.Sprintf("GOMEMLIMIT=%d", limit)}
		}
		m, err := measureFilled(keys, env...)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		fmt.Fprintf(out, "| %d | %s | %d | %.0f |\n", m.Keys, name, m.Peak>>20, float64(m.Peak)/float64(m.Keys))
	}
	return nil
}

// The memory of a node, as docs/deploy.md states it.
const (
	sizedKeyBytes  = 96        // bytes for each count, own or replica, including garbage
	sizedBaseBytes = 128 << 20 // bytes for everything else: the process, connections, and garbage of requests
)

// memoryFor returns the memory for the given number of counts.
func memoryFor(counts int) int64 { return int64(counts)*sizedKeyBytes + sizedBaseBytes }

// measureFilled fills two nodes with n keys, and returns the memory of the larger node.
func measureFilled(n int, env ...string) (m SizerMemory, err error) {
	s, err := startSizers(2, 2*n, 0, env...)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, endAll(s.all)) }()
	if _, err := callAll[int](s.all, sizerWait, "Sizer.Fill", n/2); err != nil {
		return m, err
	}
	all, err := callAll[SizerMemory](s.all, sizerWait, "Sizer.Memory", n)
	if err != nil {
		return m, err
	}
	return slices.MaxFunc(all, func(a, b SizerMemory) int { return cmp.Compare(a.Peak, b.Peak) }), nil
}
