package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/freeport"
	"github.com/weir-go/weir/internal/lab"
)

// fleet is the processes of a run, and what has come of it. Its methods but told are
// called by one goroutine, which is locked to its thread.
type fleet struct {
	o        options
	out      io.Writer
	draw     *mathrand.Rand
	dir      string
	rules    string // the file
	version  int
	secrets  [][]byte
	members  []*member
	round    int64
	begun    time.Time
	stopping bool          // the last part of the run, in which all nodes stop
	skew     time.Duration // of all clocks

	mu       sync.Mutex
	accounts map[string]*account // by limit and key
	total    harvest             // but for what accounts have
	faults   []fault
	calmly   []span // when nothing was done, from long enough after what was done before
	outages  []outage
	problems []string
	played   [kinds]int
	cut      int // connections
}

// member is a node's place: an address, and the process that has it.
type member struct {
	addr    string
	release func() // the port, which nobody else is given while its node restarts
	process *lab.Child
	starts  int
	dir     string // of its snapshots

	// What follows is under the fleet's mu.
	last   report
	at     time.Time // of last
	series []figures // of a process that was never killed
	saved  []int64   // when the snapshots of its process began
}

const (
	wholeWithin = 60 * time.Second
	// before is how long nothing happens before a fault: long enough to use up the
	// round's keys. after is how long nothing happens after it: windows that no fault
	// has a part in are in the rest of it.
	before = 2 * time.Second
	after  = aftermath + 1500*time.Millisecond
)

const ruledMost = 25

func newFleet(o options, out io.Writer) (*fleet, error) {
	f := &fleet{o: o, out: out, draw: mathrand.New(mathrand.NewPCG(o.seed, 0)), accounts: make(map[string]*account)}
	var err error
	if f.dir, err = os.MkdirTemp("", "weir-soak-"); err != nil {
		return nil, err
	}
	f.rules = filepath.Join(f.dir, "rules.yaml")
	if err := f.writeRules(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	f.secrets = [][]byte{newSecret()}
	for i := range o.nodes {
		addr, release, err := freeport.Hold()
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.members = append(f.members, &member{addr: addr, release: release, dir: filepath.Join(f.dir, fmt.Sprint("snapshots-", i+1))})
	}
	return f, nil
}

func newSecret() []byte {
	secret := make([]byte, 32)
	rand.Read(secret)
	return secret
}

// writeRules swaps the next version in, of which the limit is another one.
func (f *fleet) writeRules() error {
	f.version++
	text := fmt.Sprintf("version: %d\nrules:\n  - name: %s\n    key: user\n    limit: {algorithm: sliding_log, rate: %d, per: %v}\n",
		f.version, ruledLimit, ruledMost-5*(f.version%2), per)
	return lab.Replace(f.rules, []byte(text))
}

// start starts a process in a node's place.
func (f *fleet) start(i int) error {
	m := f.members[i]
	s := settings{
		Label: f.label(i), Bind: m.addr, Expect: f.o.nodes, Secrets: f.secrets, Rules: f.rules,
		Rate: f.o.rate, Seed: f.o.seed + uint64(i)<<32 + uint64(m.starts)<<48, Round: f.round,
		Dir: m.dir, Skew: f.skew, Stops: f.stopping,
	}
	for j, other := range f.members {
		if j != i {
			s.Join = append(s.Join, other.addr)
		}
	}
	m.starts++
	f.mu.Lock()
	m.last, m.at, m.saved = report{}, time.Time{}, nil
	f.mu.Unlock()
	p, err := lab.StartJSON(nodeVariable, s, func(r report) { f.told(i, r) })
	if err != nil {
		return fmt.Errorf("soak: node %d does not start: %w", i+1, err)
	}
	m.process = p
	return nil
}

// startAll starts a process in each node's place, and waits until every one has all others.
func (f *fleet) startAll(ctx context.Context) error {
	for i := range f.members {
		if err := f.start(i); err != nil {
			return err
		}
	}
	return f.whole(ctx)
}

// told takes in a node's report. It is called by the goroutine that reads it.
func (f *fleet) told(i int, r report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, h := f.members[i], &r.Harvest
	if r.Error != "" {
		f.problems = append(f.problems, fmt.Sprintf("node %d: %s", i+1, r.Error))
		return
	}
	if r.Figures != nil && i < steadfast {
		m.series = append(m.series, *r.Figures)
	}
	m.saved = append(m.saved, r.Saved...)
	m.saved = m.saved[max(0, len(m.saved)-1):]
	f.cut += r.Cut
	m.last, m.at = r, time.Now()
	for name, more := range h.Accounts {
		a := accountOf(f.accounts, name)
		a.Admitted = append(a.Admitted, more.Admitted...)
		a.Alone = append(a.Alone, more.Alone...)
		a.Shared = append(a.Shared, more.Shared...)
		a.Denied = max(a.Denied, more.Denied)
	}
	t := &f.total
	t.Asked, t.Denied, t.Given, t.Errors = t.Asked+h.Asked, t.Denied+h.Denied, t.Given+h.Given, t.Errors+h.Errors
	if h.Slowest.Took > t.Slowest.Took {
		t.Slowest = h.Slowest
		t.Slowest.Node = i + 1
	}
	if t.Error == "" && h.Error != "" {
		t.Error = fmt.Sprintf("node %d: %s", i+1, h.Error)
	}
	if t.Sources == nil {
		t.Sources = make(map[string]int)
	}
	for source, n := range h.Sources {
		t.Sources[source] += n
	}
}

// await waits until every node has said something since the call that is as it should
// be, and reports whether that came in time.
func (f *fleet) await(ctx context.Context, what func(*report) bool) bool {
	since := time.Now()
	return lab.Await(ctx, wholeWithin, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !slices.ContainsFunc(f.members, func(m *member) bool { return !m.at.After(since) || !what(&m.last) })
	})
}

// whole waits until every node has all others.
func (f *fleet) whole(ctx context.Context) error {
	if f.await(ctx, func(r *report) bool { return r.Whole == f.o.nodes && r.Rules == uint64(f.version) }) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var seen []string
	for i, m := range f.members {
		how := ""
		select {
		case <-m.process.Ended():
			how = ", ended: " + m.process.How()
		default:
		}
		seen = append(seen, fmt.Sprintf("node %d sees %d members serving (-1: others too, or it is not ready) and rules %d%s", i+1, m.last.Whole, m.last.Rules, how))
	}
	return errors.Join(ctx.Err(), fmt.Errorf("soak: %v after the last fault, not every node has all %d: %s", wholeWithin, f.o.nodes, strings.Join(append(seen, f.problems...), "; ")))
}

func (f *fleet) tell(o order) error {
	var errs []error
	for _, m := range f.members {
		errs = append(errs, m.process.Order(o))
	}
	return errors.Join(errs...)
}

// play is the whole run.
func (f *fleet) play(ctx context.Context) error {
	f.begun = time.Now()
	if err := f.startAll(ctx); err != nil {
		return err
	}
	if err := f.rotate(ctx); err != nil {
		return err
	}
	var deck []kind
	for decks := 0; ctx.Err() == nil; {
		if err := f.nextRound(ctx); err != nil {
			return err
		}
		if time.Since(f.begun) >= f.o.duration && (decks > 1 || len(deck) == 0) { // each was played
			break
		}
		if len(deck) == 0 { // each as often as the others
			decks++
			deck = []kind{reload, deploy, kill, freeze, sever}
			f.draw.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		lab.Sleep(ctx, before)
		if err := f.strike(ctx, deck[0]); err != nil {
			return err
		}
		deck = deck[1:]
		f.calm(ctx)
	}
	for n := 0; ctx.Err() == nil && (n < fewestStops || time.Since(f.begun) < f.o.duration+f.o.duration/stopsPart); n++ {
		if err := f.stopAll(ctx, n); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// label returns the name of a node, which begins with its number (traffic.ownerOf).
func (f *fleet) label(i int) string { return fmt.Sprint("node-", i+1) }

// calm lets nothing happen for a while.
func (f *fleet) calm(ctx context.Context) {
	lab.Sleep(ctx, aftermath+per) // until what was denied before has recovered
	from := time.Now()
	lab.Sleep(ctx, after-aftermath-per)
	lab.Sleep(ctx, per)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calmly = append(f.calmly, lab.Between(from.UnixNano(), time.Now().UnixNano()))
}

// settle is how long the traffic has rested before figures are taken: longer than a
// lease, and than the longest check.
const settle = 700 * time.Millisecond

// nextRound has the traffic rest, takes the figures, and goes on with other keys.
func (f *fleet) nextRound(ctx context.Context) error {
	if err := f.tell(order{Do: doRest}); err != nil {
		return err
	}
	if !f.await(ctx, func(r *report) bool { return r.Resting }) {
		return errors.Join(ctx.Err(), fmt.Errorf("soak: not every node's checks have ended within %v", wholeWithin))
	}
	lab.Sleep(ctx, settle)
	taken := func() (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		n = len(f.members[0].series)
		for _, m := range f.members[:steadfast] {
			n = min(n, len(m.series))
		}
		return n
	}
	had := taken()
	if err := f.tell(order{Do: doFigure}); err != nil {
		return err
	}
	if !lab.Await(ctx, wholeWithin, func() bool { return taken() > had }) {
		return errors.Join(ctx.Err(), fmt.Errorf("soak: not every node has said its figures within %v", wholeWithin))
	}
	f.round++
	return errors.Join(f.tell(order{Do: doRound, Round: f.round}), f.tell(order{Do: doGoOn}))
}

// strike plays a fault, and waits until every node has all others again.
func (f *fleet) strike(ctx context.Context, k kind) error {
	i := f.draw.IntN(f.o.nodes)
	if k == kill || k == deploy {
		i = steadfast + f.draw.IntN(f.o.nodes-steadfast)
	}
	fmt.Fprintf(f.out, "%6.1f s  %v, node %d\n", time.Since(f.begun).Seconds(), k, i+1)
	from, m := time.Now(), f.members[i]
	var err error
	switch k {
	case reload:
		err = f.writeRules()
	case deploy:
		err = f.redeploy(i)
	case kill:
		err = m.process.Kill()
		<-m.process.Ended()
		lab.Sleep(ctx, time.Duration(f.draw.Int64N(int64(2*time.Second)))) // the others are without it
		err = errors.Join(err, f.start(i))
	case freeze:
		err = m.process.Freeze()
		lab.Sleep(ctx, 300*time.Millisecond+time.Duration(f.draw.Int64N(int64(2*time.Second))))
		err = errors.Join(err, m.process.Thaw())
	case sever:
		err = m.process.Order(order{Do: doBreak})
		lab.Sleep(ctx, 100*time.Millisecond)
	}
	return errors.Join(err, f.over(ctx, k, i, from))
}

// over waits until every node has all others again, and records the fault, which began at from.
func (f *fleet) over(ctx context.Context, k kind, i int, from time.Time) error {
	if err := f.whole(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, fault{kind: k, node: int64(i), span: lab.Between(from.UnixNano(), time.Now().UnixNano())})
	f.played[k]++
	return nil
}

// redeploy has a node leave in order, and starts another one in its place.
func (f *fleet) redeploy(i int) error {
	m := f.members[i]
	if err := m.process.Leave(); err != nil {
		return err
	}
	if err := m.left(i); err != nil {
		return err
	}
	return f.start(i)
}

// left waits until the process of node i has ended, which leaves.
func (m *member) left(i int) error {
	if err := m.process.Await(2 * leaveWithin); err != nil {
		return fmt.Errorf("soak: node %d left in disorder: %w: %s", i+1, err, m.process.How())
	}
	return nil
}

// rotate replaces the secret as docs/rotation.md says, in three rollouts.
func (f *fleet) rotate(ctx context.Context) error {
	old, next := f.secrets[0], newSecret()
	for step, secrets := range [][][]byte{{old, next}, {next, old}, {next}} {
		fmt.Fprintf(f.out, "%6.1f s  rotation of the secret, rollout %d of 3\n", time.Since(f.begun).Seconds(), step+1)
		f.secrets = secrets
		for i := range f.members {
			from := time.Now()
			if err := f.redeploy(i); err != nil {
				return err
			}
			if err := f.over(ctx, deploy, i, from); err != nil {
				return err
			}
		}
	}
	return nil
}

// close ends all processes, and leaves nothing behind.
func (f *fleet) close() error {
	var ends sync.WaitGroup
	for _, m := range f.members {
		if m.process != nil {
			_ = m.process.Thaw()
			ends.Go(func() { _ = m.process.Stop(leaveWithin) })
		}
		m.release()
	}
	ends.Wait()
	return os.RemoveAll(f.dir)
}
