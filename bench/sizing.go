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

// sizerRole is a process that has a node as it is deployed: with secrets, a replica of each
// count, and the check API.
const sizerRole = "Sizer"

// Sizer is the service of such a process.
type Sizer struct {
	node    *weir.Node
	limiter *weir.Limiter // which admits all
	daily   *weir.Limiter // whose counts last
	checks  *http.Server
	asked   int
	keys    map[string][]string // by the way
}

// SizerSetup names the cluster that it is in. Its own address is the answer.
type SizerSetup struct {
	Join  []string
	Keys  int // that it has room for
	Asked int // keys that Load asks for, of each kind
}

// SizerAddrs are where it is reached.
type SizerAddrs struct{ Peers, Checks string }

// Close closes the node.
func (s *Sizer) Close() error {
	if s.node == nil {
		return nil
	}
	return errors.Join(s.checks.Close(), s.node.Close())
}

// Start starts the node, and serves its check API.
func (s *Sizer) Start(o SizerSetup, addrs *SizerAddrs) (err error) {
	// It is a secret of nobody: all nodes are processes of this one machine.
	secret := bytes.Repeat([]byte{1}, 32)
	s.asked = o.Asked
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
	checks, err := admin.CheckHandler(s.node, nil, admin.CheckOptions{Open: true, Logger: quiet()})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.checks = &http.Server{Handler: checks, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.checks.Serve(l) }() // until Close
	addrs.Checks = l.Addr().String()
	addrs.Peers = addrOf(s.node)
	return nil
}

// sizedKeys is how many keys the command asks for, each by turns: so many that none is asked for
// often enough to be lent, but for those that are meant to be.
const sizedKeys = 200_000

// Meet waits for so many members, and chooses the keys.
func (s *Sizer) Meet(members int, _ *int) error {
	if err := errors.Join(untilMet(s.node, members, worker.StartWait), untilExact(s.limiter, worker.StartWait)); err != nil {
		return err
	}
	others := worker.KeysThat(s.asked, func(key string) bool { return !s.limiter.Owner(key).Self })
	s.keys = map[string][]string{
		"owned":     worker.KeysThat(s.asked, func(key string) bool { return s.limiter.Owner(key).Self }),
		"forwarded": others,
		"leased":    others[:min(len(others), 10)],
		"nothing":   others,
	}
	return nil
}

// SizerLoad is what a node is asked.
type SizerLoad struct {
	Way  string  // how checks are decided; "nothing" asks for none
	Rate float64 // a second
	For  time.Duration
}

// SizerSpent is what that took.
type SizerSpent struct {
	Checks, Other int // Other were not decided as the way has it, or not by authority
	CPU           time.Duration
}

// sizerCallers ask at one node.
const sizerCallers = 64

// Load asks as often as it is told, and answers with how much CPU time the process took.
func (s *Sizer) Load(o SizerLoad, spent *SizerSpent) error {
	before := lab.CPU()
	want := map[string]weir.Source{"owned": weir.Owner, "forwarded": weir.Forwarded, "leased": weir.Leased}[o.Way]
	keys := s.keys[o.Way]
	var other atomic.Int64
	spent.Checks = paced(sizerCallers, o.Rate, o.For, func(_ int, r *rand.Rand) {
		key := keys[r.IntN(len(keys))]
		if o.Way == "nothing" {
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

// paced has callers do something at a rate, at random moments, and answers with how often.
// A caller that is late goes on at once.
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

// Fill asks once for each of so many keys that the node owns.
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

// SizerMemory is what a node holds.
type SizerMemory struct {
	Keys int
	Peak int64 // bytes of the process, at most
}

// Memory waits until the node has a count of so many keys, its own and copies, and has sent
// all copies of its own.
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

// sizers are nodes that know each other.
type sizers struct {
	asked int
	all   []*lab.Service
	addrs []SizerAddrs
}

// startSizers starts nodes that have room for so many keys each, and are asked for asked of
// each kind.
func startSizers(nodes, keys, asked int, env ...string) (s *sizers, err error) {
	s = &sizers{asked: asked}
	defer func() {
		if err != nil {
			err = errors.Join(err, endAll(s.all))
		}
	}()
	setup := SizerSetup{Keys: keys, Asked: asked}
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
		setup.Join = append(setup.Join, addrs.Peers)
	}
	_, err = callAll[int](s.all, sizerWait, "Sizer.Meet", nodes)
	return s, err
}

// sizerWait bounds a call.
const sizerWait = 10 * time.Minute

// load has the nodes together asked at a rate, and answers with their CPU time, and how many
// checks that were.
func (s *sizers) load(way string, rate float64, d time.Duration) (spent SizerSpent, err error) {
	all, err := callAll[SizerSpent](s.all, sizerWait, "Sizer.Load", SizerLoad{way, rate / float64(len(s.all)), d})
	for _, one := range all {
		spent.Checks, spent.Other, spent.CPU = spent.Checks+one.Checks, spent.Other+one.Other, spent.CPU+one.CPU
	}
	return spent, err
}

// overHTTP is load by this process, over the check API: any key at any node.
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

// sizedRates are those that checks are asked at, of the cluster.
var sizedRates = [...]float64{1_000, 10_000, 100_000}

// sizingNodes is how many nodes the cluster has that is asked.
const sizingNodes = 3

// size prints what checks of asked keys of each kind take of CPU, each rate for d, and what
// keys take of memory.
func size(ctx context.Context, d time.Duration, asked, keys int, out io.Writer) (err error) {
	if !lab.Signals {
		return errors.New("bench: -sizing needs getrusage: run it on a Unix")
	}
	fmt.Fprintf(out, "CPU time of all of %d nodes for a check, µs, of so many a second in all:\n\n| a check | 1,000 | 10,000 | 100,000 |\n|---|---|---|---|\n", sizingNodes)
	s, err := startSizers(sizingNodes, 4*sizingNodes*asked, asked)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endAll(s.all)) }()
	idle, err := s.load("nothing", 1, d)
	if err != nil {
		return err
	}
	for _, way := range []string{"owned", "forwarded", "leased", "over HTTP"} {
		fmt.Fprintf(out, "| %s ", way)
		for _, rate := range sizedRates {
			if err := ctx.Err(); err != nil {
				return err
			}
			var spent, besides SizerSpent
			switch {
			case way == "over HTTP" && rate > 10_000: // the callers take more of the machine than the nodes
				fmt.Fprint(out, "| - ")
				continue
			case way == "over HTTP":
				spent, err = s.overHTTP(rate, d)
				besides = idle
			default:
				if _, err = s.load(way, rate, d/4); err == nil { // buckets are made, and leases
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
				fmt.Fprintf(out, "(%.0f %% by others) ", 100*part)
			}
		}
		fmt.Fprintln(out, "|")
	}
	fmt.Fprintf(out, "\nA node that is asked nothing takes %.1f ms of CPU a second.\n", float64(idle.CPU.Milliseconds())/d.Seconds()/sizingNodes)
	return sizeMemory(ctx, keys, out)
}

// sizeMemory prints the memory of a node in a cluster of two. Each node has so many keys, and half of
// them are copies.
func sizeMemory(ctx context.Context, keys int, out io.Writer) error {
	fmt.Fprint(out, "\nMemory of each of two nodes, of which each has all keys, its own and copies:\n\n| keys | GOMEMLIMIT | process at most, MiB | bytes a key |\n|---|---|---|---|\n")
	for _, limit := range []int64{0, memoryFor(keys)} {
		name, env := "-", []string(nil)
		if limit > 0 {
			name, env = fmt.Sprintf("%d MiB", limit>>20), []string{fmt.Sprintf("GOMEMLIMIT=%d", limit)}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		m, err := filled(keys, env...)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "| %d | %s | %d | %.0f |\n", m.Keys, name, m.Peak>>20, float64(m.Peak)/float64(m.Keys))
	}
	return nil
}

// A node's memory, as docs/deploy.md sizes it.
const (
	sizedKeyBytes  = 96        // for each count that it holds, its own or a copy, with what is to be collected
	sizedBaseBytes = 128 << 20 // for all else: the process, connections, what requests leave behind
)

// memoryFor is what a node is given for so many counts.
func memoryFor(counts int) int64 { return int64(counts)*sizedKeyBytes + sizedBaseBytes }

// filled fills two nodes with so many keys, and answers with what the larger one takes.
func filled(n int, env ...string) (m SizerMemory, err error) {
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
