package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

// memberlist does not repeat a join. If a partition lasted longer than memberlist keeps dead members, the
// two sides would never join again. So every member regularly tries the entries of Join and the addresses
// of the missing and dead members.

const (
	// firstRejoin is the pause after the first attempt of a node that knows no other member, for
	// example because the nodes that it joins start a moment later. The pause doubles up to
	// the normal pause.
	firstRejoin  = 250 * time.Millisecond
	rejoinLeast  = 2 * time.Second
	rejoinJitter = 2 * time.Second
	// hurryPause is the pause if a member of this side is dead in the roster, unless the normal pause is
	// shorter.
	hurryPause = 500 * time.Millisecond
	// skippedRounds is the number of attempts that a node skips after an attempt that had no address to
	// try and no entry without an answer, as long as the node reaches all members and its view does not
	// change. Otherwise the lookups of all replicas of a service would load the DNS servers.
	skippedRounds = 3
	// maxAttempts is how many addresses are tried at once. A node that knows no other member, or
	// seeks, tries as many more every furtherEvery, and when all attempts have ended.
	maxAttempts  = 4
	furtherEvery = 250 * time.Millisecond
	// joinTimeout bounds the probe of one address.
	joinTimeout = 2 * time.Second
	// joinGrace is how long attempts fail before the failure is logged. Nodes that start at the same
	// time find each other within joinGrace. joinGrace is below the default JoinTimeout, after which a
	// node counts alone.
	joinGrace = 5 * time.Second
)

// joinOutcome is the outcome of the last attempt to join.
type joinOutcome struct {
	problem    string            // empty without a problem
	since      time.Time         // when the first attempt with a problem ended; zero without a problem
	logged     bool              // the problem has been logged
	tried      int               // number of addresses that were tried
	reached    int               // number of addresses that were joined
	unanswered map[string]string // Stats.Unanswered; never modified
}

// isComplete reports whether each entry of Join has led to a member, and no address remains to be tried.
func (o *joinOutcome) isComplete() bool {
	return o.tried == 0 && o.problem == "" && len(o.unanswered) == 0
}

// untriedEntries returns Stats.Unanswered for entries before the first attempt.
func untriedEntries(entries []string) map[string]string {
	if len(entries) == 0 {
		return nil
	}
	unanswered := make(map[string]string, len(entries))
	for _, entry := range entries {
		unanswered[entry] = notTried
	}
	return unanswered
}

const notTried = "the entry has not been tried yet"

// firstJoin starts keepJoining, and waits for the first attempt until ctx is done. It returns an error
// if ctx was canceled, or if no member was joined and a member refuses the configuration of this node,
// because retries would not help. A deadline of ctx that passes is no error.
func (g *gossipCluster) firstJoin(ctx context.Context) error {
	attempt := make(chan error, 1)
	g.wg.Go(func() { g.keepJoining(attempt) })
	var refusal error
	select {
	case refusal = <-attempt:
	case <-ctx.Done(): // keepJoining continues
	}
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("cluster: Start: %w", err)
	}
	return refusal
}

func (g *gossipCluster) keepJoining(first chan<- error) {
	o, refusal := g.join(g.ctx)
	if o.reached > 0 {
		refusal = nil
	}
	first <- refusal
	var unchanged *View // the view before the last attempt, if nothing remained to be done; otherwise nil
	skipped := 0
	for early := firstRejoin; ; {
		pause := rejoinLeast + rand.N(rejoinJitter)
		if len(g.members()) == 1 {
			pause = min(pause, early)
			early = min(2*early, rejoinLeast+rejoinJitter)
		}
		hurried := time.Now().Add(min(pause, hurryPause))
		rest := time.NewTimer(pause)
		select {
		case <-g.ctx.Done():
		case <-rest.C:
		case <-g.hurry:
			sleep(g.ctx, time.Until(hurried))
			unsignal(g.hurry) // the next attempt also handles this signal
			unchanged = nil
		}
		rest.Stop()
		switch {
		case g.ctx.Err() != nil:
			return
		case g.hasLeft():
			g.catchUp()
		default:
			v := g.view.Load()
			if v.Self >= 0 && v.Members[v.Self].Announced == Joining {
				g.catchUp() // before join, which may wait for missing members
			}
			if v == unchanged && skipped < skippedRounds {
				skipped++
				continue
			}
			unchanged, skipped = nil, 0
			if o, _ := g.join(g.ctx); o.isComplete() && isWhole(v) && (len(v.Members) > 1 || len(g.cfg.Join) == 0) {
				unchanged = v
			}
		}
	}
}

// catchUp fetches the roster from a member. Gossip does not reach a node that has left, and does not
// report to a joiner the members that were missing before it joined. catchUp prefers a serving member,
// because another joiner may know as little as this node.
func (g *gossipCluster) catchUp() {
	now := time.Now()
	var at, serving []string
	for _, e := range g.members() {
		if e.Alive && !e.IsDead(now) && e.Name != g.cfg.Name {
			if at = append(at, e.At); e.Announced == Serving {
				serving = append(serving, e.At)
			}
		}
	}
	if len(serving) > 0 {
		at = serving
	}
	if len(at) == 0 {
		return
	}
	_ = g.gossip.Join(at[rand.N(len(at))]) // the gossip library logs its error
}

// join tries the addresses of Join and of missing or dead members, and records the outcome. It skips the addresses
// of this node, and of members that gossip reports as alive and that are not missing. It tries at most
// maxAttempts addresses. But a node that knows no other member, or seeks, tries further addresses as
// try does, because it counts alone unless a member answers. The result refusal is the error of a member that refuses the
// configuration of this node.
func (g *gossipCluster) join(ctx context.Context) (outcome joinOutcome, refusal error) {
	looked := g.lookUp(ctx, g.cfg.Join)
	wanted, problems := addresses(looked)
	own := g.ownAddresses(ctx)
	in, missing := g.inAndMissing(ctx)
	met, others := false, false
	for addr := range wanted {
		met = met || in[addr]
		others = others || !own[addr]
	}
	met = met || !others && len(problems) == 0 // Join leads to this node alone
	tries := alternate(wanted, missing, func(addr string) bool { return in[addr] || own[addr] })
	if len(in)+len(missing) > 0 && !g.seeks() {
		tries = tries[:min(len(tries), maxAttempts)]
	}
	said := make(map[string]error) // the errors of failed attempts, by address
	for _, a := range g.try(ctx, tries) {
		switch {
		case a.joined:
			outcome.reached++
			in[a.addr] = true
		case a.err == nil:
			own[a.addr] = true // an unknown address of this node
			g.logOwnAddress(a.addr)
		default:
			said[a.addr] = a.err
		}
		switch err := a.err; {
		case !wanted[a.addr]:
		case err == nil:
			met = true
		case errors.Is(err, errSecret), errors.Is(err, errCertificate), errors.Is(err, errSeed), errors.Is(err, errRegion), errors.Is(err, errUnproven):
			refusal = err
		default:
			problems = append(problems, err.Error())
		}
	}
	outcome.tried, outcome.unanswered = len(tries), g.unanswered(looked, in, own, said)
	switch {
	case refusal != nil:
		outcome.problem = refusal.Error()
	case !met:
		slices.Sort(problems)
		outcome.problem = strings.Join(problems, "; ")
	}
	if ctx.Err() == nil {
		g.recordJoin(outcome, refusal != nil, time.Now())
	}
	return outcome, refusal
}

// ownAddresses returns the addresses that are known to lead back to this node.
func (g *gossipCluster) ownAddresses(ctx context.Context) map[string]bool {
	own := map[string]bool{g.reachable.String(): true}
	if addrs, err := resolve(ctx, g.cfg.Network, g.cfg.Bind, g.port); err == nil {
		for _, addr := range addrs {
			own[addr] = true
		}
	}
	return own
}

// alternate returns the addresses of both sets, except the addresses to skip. Each set is in random
// order, and the sets alternate, so that neither stale names nor members that never return use up the
// attempts.
func alternate(one, two map[string]bool, skip func(addr string) bool) (addrs []string) {
	first, second := shuffle(one), shuffle(two)
	for i := range max(len(first), len(second)) {
		for _, from := range [][]string{first, second} {
			if i < len(from) && !skip(from[i]) && !slices.Contains(addrs, from[i]) {
				addrs = append(addrs, from[i])
			}
		}
	}
	return addrs
}

// attempt is the outcome of an attempt to join at one address.
type attempt struct {
	addr   string
	joined bool
	err    error
}

// seeks reports whether this node is Joining and has found no serving member yet. If any member were
// enough, nodes that start at the same time could form a separate cluster.
func (g *gossipCluster) seeks() bool {
	now := time.Now()
	return !slices.ContainsFunc(g.members(), func(e detect.Entry) bool {
		if e.Name == g.cfg.Name {
			return e.Announced != Joining
		}
		return e.Announced == Serving && e.Alive && !e.IsDead(now)
	})
}

// try tries maxAttempts addresses at once, and then further addresses until an address is joined and
// this node does not seek any more.
func (g *gossipCluster) try(ctx context.Context, addrs []string) (tried []attempt) {
	attempts := make(chan attempt)
	few := func() (n int) {
		for n < maxAttempts && len(addrs) > 0 {
			addr := addrs[0]
			addrs = addrs[1:]
			n++
			go func() {
				joined, err := g.joinOne(ctx, addr)
				attempts <- attempt{addr, joined, err}
			}()
		}
		return n
	}
	more := time.Tick(furtherEvery)
	for waiting := few(); waiting > 0; {
		select {
		case a := <-attempts:
			waiting--
			tried = append(tried, a)
			if a.joined && !g.seeks() {
				addrs = nil
			}
			if waiting == 0 {
				waiting = few()
			}
		case <-more:
			waiting += few()
		}
	}
	return tried
}

// unanswered returns Stats.Unanswered after an attempt. The argument looked has the addresses of the
// entries of Join, the argument in has the addresses of joined members, the argument own those of this
// node, and the argument said the errors of failed attempts.
func (g *gossipCluster) unanswered(looked []lookup, in, own map[string]bool, said map[string]error) map[string]string {
	g.mu.Lock()
	before := g.joined.unanswered
	g.mu.Unlock()
	var unanswered map[string]string
	for _, l := range looked {
		var problems []string
		others := l.err != nil
		if others {
			problems = append(problems, l.err.Error())
		}
		for _, addr := range l.addrs {
			others = others || !own[addr]
			g.answered[l.entry] = g.answered[l.entry] || in[addr]
			if err := said[addr]; err != nil {
				problems = append(problems, err.Error())
			}
		}
		if !others || g.answered[l.entry] {
			continue
		}
		if unanswered == nil {
			unanswered = make(map[string]string)
		}
		// If no address of an entry was tried, the problem of the entry stays.
		unanswered[l.entry] = cmp.Or(strings.Join(problems, "; "), before[l.entry], notTried)
	}
	return unanswered
}

// recordJoin records the outcome of an attempt. A problem is logged once: immediately if a member
// refuses this node, and otherwise after joinGrace.
func (g *gossipCluster) recordJoin(o joinOutcome, isRefused bool, now time.Time) {
	g.mu.Lock()
	was := g.joined
	if o.problem != "" {
		if o.since, o.logged = was.since, was.logged; o.since.IsZero() {
			o.since = now
		}
	}
	warn := o.problem != "" && !o.logged && (isRefused || now.Sub(o.since) >= joinGrace)
	o.logged = o.logged || warn
	g.joined = o
	g.mu.Unlock()
	if warn {
		g.log.Warn("no member of Join was joined; retrying: check DNS, firewall and Advertise",
			"error", o.problem)
	}
}

// maxOwn bounds the addresses in gossipCluster.own.
const maxOwn = 64

// logOwnAddress logs that addr leads back to this node, once for each address.
func (g *gossipCluster) logOwnAddress(addr string) {
	if g.own[addr] || len(g.own) >= maxOwn {
		return
	}
	g.own[addr] = true
	g.log.Info("an address of Join or of a member leads back to this node", "addr", addr, "advertise", g.advertise)
}

// joinOne probes addr, and exchanges rosters if a node other than this one answers there and accepts
// this node.
func (g *gossipCluster) joinOne(ctx context.Context, addr string) (joined bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	there, err := g.peers.probe(ctx, addr)
	switch {
	case there.Name == g.cfg.Name:
		return false, nil // addr leads back to this node
	case err != nil:
		return false, fmt.Errorf("%w (%s)", err, addr)
	case there.Addr == g.advertise:
		return false, fmt.Errorf("%w: %s, which answers at %s, advertises %s as this node does", errShared, there.Name, addr, g.advertise)
	}
	if err := g.gossip.Join(addr); err != nil {
		return false, fmt.Errorf("cluster: %s answers, but gossip does not join it: %w", addr, err)
	}
	return true, nil
}

// lookUp resolves entries to addresses.
func (g *gossipCluster) lookUp(ctx context.Context, entries []string) []lookup {
	_, port, _ := splitEntry(g.cfg.Bind, g.port)
	if port == "" || port == "0" {
		port = g.port
	}
	return lookUpAll(ctx, g.cfg.Network, entries, port)
}

// inAndMissing returns the addresses of the members that are alive according to gossip and not
// missing, and the addresses of at most maxAttempts of the other members.
func (g *gossipCluster) inAndMissing(ctx context.Context) (in, missing map[string]bool) {
	gone := make(map[string]bool)
	for _, m := range g.view.Load().Members {
		gone[m.Name] = m.State == Missing
	}
	in = make(map[string]bool)
	var absent []string
	for _, e := range g.members() {
		switch {
		case e.Name == g.cfg.Name:
		case e.Alive && !gone[e.Name]:
			in[e.At] = true
		default:
			absent = append(absent, e.Addr)
		}
	}
	rand.Shuffle(len(absent), func(i, j int) { absent[i], absent[j] = absent[j], absent[i] })
	missing, _ = addresses(g.lookUp(ctx, absent[:min(len(absent), maxAttempts)]))
	return in, missing
}

func shuffle(set map[string]bool) []string {
	s := slices.Sorted(maps.Keys(set))
	rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}
