package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
	"github.com/weir-go/weir/weirtest"
)

const (
	randomLasts = 60 * time.Second
	stopsTake   = 35 * time.Second // additional time of a scenario for a stop of all nodes and the recovery
	mayhemFrom  = 2 * time.Second
	mayhemUntil = 33 * time.Second // soon after this time, random moves have ended and most of their faults are undone, and the scenario shows recovery until it ends
	maxMoves    = 10
	randomAsks  = 20_000 // approximate number of checks
	mostAsks    = 24_000 // maximum number of checks, with the checks that adversaries add because extras add faults
	leastBurst  = 20     // minimum number of checks of a burst, even if the limit grants fewer
	manyAsks    = 25_000 // additional number of checks, for about 20,000 keys
	manyName    = "many"
	mostHolding = 40 // maximum number of checks per second of a load that holds or reserves units
)

// randomScenario returns a random scenario of 3 to 9 nodes and 60 s, or more if all nodes
// stop (addStops). The scenario has limits of all kinds, loads, and faults close to each
// other. All cut links have healed by about 35 s.
// The scenario depends only on the seed.
func randomScenario(seed uint64) *Scenario {
	d := newDice(fmt.Sprintf("random-%d", seed), seed, "weir")
	d.addNodes()
	d.drawSettings()
	d.addFaults()
	d.addLimits()
	d.addLoads()
	d.add(slow, bare, gossip, breaks, hot, holds, reserves, clients, snapshots, keeps, banning, pausing, many, capped)
	d.s.About = fmt.Sprintf("Drawn from seed %d: %s, %s, %s.", seed,
		count(len(d.s.Nodes), "node"), count(len(d.s.Limits), "limit"), count(len(d.s.Faults), "fault"))
	return d.s
}

// An extra is an optional feature of a scenario. Each extra has its own random source, so
// that a change to an extra does not change the scenarios without it.
type extra struct {
	word  string // the seed of the random source, at most eight bytes
	oneIn int    // the probability of the extra is 1/oneIn
	draw  func(own *dice)
}

var (
	slow = extra{"slow", 3, (*dice).addSlowness}
	bare = extra{"bare", 12, func(d *dice) { d.s.Replicas = -1 }}
	many = extra{"many", 9, (*dice).addManyKeys}
	// gossip uses memberlist and real frames. These runs do not replay.
	gossip    = extra{"goss", 50, func(d *dice) { d.s.Gossip = true }}
	breaks    = extra{"brek", 4, (*dice).setBreaks}
	capped    = extra{"caps", 6, (*dice).lowerCaps}
	hot       = extra{"hot", 6, func(d *dice) { d.s.Hot = int(d.logarithmic(50, 400)) }}
	holds     = extra{"holds", 4, func(d *dice) { d.addHolds("flight", d.logarithm(5e7, 1.5e10), 0) }}
	reserves  = extra{"reserves", 4, (*dice).addReservations}
	clients   = extra{"clients", 4, func(d *dice) { d.addHolds("clients", d.logarithm(2e8, 2.5e10), d.logarithm(1e9, 3e10)) }}
	keeps     = extra{"keeps", 4, (*dice).addKeeps}
	banning   = extra{"bans", 6, (*dice).addBans}
	pausing   = extra{"pauses", 6, (*dice).addKeyPauses}
	snapshots = extra{"snapshot", 6, (*dice).addStops}
)

// add draws whether the scenario has each of the extras.
func (d *dice) add(extras ...extra) {
	for _, x := range extras {
		if own := d.seeded(x.word); own.oneIn(x.oneIn) {
			x.draw(own)
		}
	}
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}

// dice draws a scenario.
type dice struct {
	*rand.Rand
	s        *Scenario
	regional bool // whether the faults of the network are between regions instead of between nodes
}

func newDice(name string, seed uint64, word string) *dice {
	d := &dice{s: &Scenario{Name: name, Seed: seed, Lasts: randomLasts, Network: weirtest.Link{Latency: defaultLatency}}}
	return d.seeded(word)
}

// seeded returns dice for the same scenario with a random source that depends on the seed
// of the scenario and on the word. The length of the word is at most 8 bytes.
func (d *dice) seeded(word string) *dice {
	name := uint64(0)
	for _, letter := range []byte(word) {
		name = name<<8 | uint64(letter)
	}
	return &dice{Rand: rand.New(rand.NewPCG(d.s.Seed, name)), s: d.s}
}

// oneIn returns true in one of n cases.
func (d *dice) oneIn(n int) bool { return d.IntN(n) == 0 }

func (d *dice) between(low, high time.Duration) time.Duration {
	return (low + time.Duration(d.Int64N(int64(high-low)))).Truncate(time.Millisecond)
}

// logarithmic returns a number from low to high. Orders of magnitude are equally likely.
func (d *dice) logarithmic(low, high float64) float64 {
	return low * math.Pow(high/low, d.Float64())
}

// logarithm returns the value of logarithmic as a duration in whole milliseconds.
func (d *dice) logarithm(low, high float64) time.Duration {
	return time.Duration(d.logarithmic(low, high)).Truncate(time.Millisecond)
}

// drawPolicy draws the partition policy of a limit. FairShare and MajorityShare are drawn
// most often, because their bounds are the sharpest.
func (d *dice) drawPolicy() weir.PartitionPolicy {
	return pick(d, weir.MajorityShare, weir.MajorityShare, weir.FairShare, weir.FairShare, weir.FailOpen, weir.FailClosed)
}

func pick[T any](d *dice, from ...T) T { return from[d.IntN(len(from))] }

func (d *dice) addNodes() {
	n := 3 + d.IntN(7)
	later := 0
	if n > 3 && d.oneIn(2) {
		later = 1 + d.IntN(min(2, n-3))
	}
	first := n - later
	regions := first >= 4 && d.oneIn(12)
	for i := range n {
		node := Node{Name: string(rune('a' + i)), Later: i >= first}
		if regions {
			node.Region = "east"
			if i >= first/2 && i < first || i > first {
				node.Region = "west"
			}
		}
		d.s.Nodes = append(d.s.Nodes, node)
	}
}

func (d *dice) drawSettings() {
	s := d.s
	s.Network.Latency = time.Duration(d.logarithmic(1e5, 2e6)).Truncate(time.Microsecond)
	if d.oneIn(2) {
		s.Network.Jitter = s.Network.Latency / 2
	}
	if d.oneIn(6) {
		s.Network.Loss = pick(d, 0.001, 0.005, 0.01)
		s.Network.Duplicates = pick(d, 0, 0.001, 0.01)
	}
	if d.oneIn(4) {
		s.Replicas = 2
	}
	if d.oneIn(4) && s.Nodes[0].Region == "" {
		s.Expect = len(d.initial())
	}
	if d.oneIn(6) {
		s.Timeout = pick[time.Duration](d, 10, 50, 100) * time.Millisecond
	}
	if d.oneIn(10) {
		s.Forget = pick[time.Duration](d, 5, 10, 15) * time.Second
	}
}

// initial returns the names of the nodes that run from the beginning.
func (d *dice) initial() []string { return d.s.nodeNames(func(n Node) bool { return !n.Later }) }

// shuffled returns at most n of the names, in random order.
func (d *dice) shuffled(names []string, n int) []string {
	names = slices.Clone(names)
	d.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names[:min(n, len(names))]
}

func (d *dice) addLimits() {
	for i := range 1 + d.IntN(3) {
		per := d.logarithm(1e9, 15e9)
		if d.oneIn(2) {
			per = per.Round(time.Second)
		}
		l := weir.Limit{
			Name:      [...]string{"api", "login", "search"}[i],
			Algorithm: weir.Algorithm(d.IntN(int(weir.LeakyBucket) + 1)),
			Per:       per,
			Partition: d.drawPolicy(),
		}
		l.Rate = int64(min(d.logarithmic(1, 500), 60*per.Seconds())) // each order of magnitude is equally likely, because faults of rounding appear at low rates
		if bounds.IsBucket(&l) && d.oneIn(2) {
			l.Burst = max(1, int64(float64(l.Rate)*d.logarithmic(0.2, 3)))
		}
		d.s.Limits = append(d.s.Limits, l)
	}
}

// addLoads draws loads for each limit, most above its rate, and bounds the sum of checks.
func (d *dice) addLoads() {
	d.spendChecks(func(limit weir.Limit, left *float64, add func(Load)) {
		if d.oneIn(10) {
			add(Load{Rate: round(0.5 * float64(limit.Rate) / limit.Per.Seconds())}) // an ordinary day
			return
		}
		if !d.oneIn(3) {
			add(d.s.newAdversary(limit, 0, *left*2/3))
		}
		saturating := d.logarithmic(1.3, 4) * float64(limit.Rate) / limit.Per.Seconds()
		l := Load{Rate: round(max(2, saturating))}
		switch {
		case d.oneIn(3):
			l.Keys = 2 + d.IntN(4)
			l.Rate = round(l.Rate * float64(l.Keys) * 0.7)
		case d.oneIn(3):
			l.Keys = 10 + d.IntN(40)
			l.Zipf = 1 + math.Ceil(100*d.Float64())/100
		}
		if d.oneIn(4) {
			l.From = d.shuffled(d.initial(), 1+d.IntN(3))
		}
		if d.oneIn(6) {
			l.Units = 1 + d.Int64N(max(1, bounds.Capacity(&limit)/5))
		}
		if most := *left / randomLasts.Seconds(); l.Rate > most {
			l.Rate = math.Floor(most)
		}
		if l.Rate > 0 {
			add(l)
		}
		for range d.IntN(3) {
			add(Load{Burst: int(min(max(limit.Rate, leastBurst), 300)), Begins: d.between(time.Second, 50*time.Second)})
		}
	})
}

// spendChecks calls the function loads for each limit. The value of *left is the number of
// checks that remain. The function add ignores a load that needs more.
func (d *dice) spendChecks(loads func(limit weir.Limit, left *float64, add func(Load))) {
	for _, limit := range d.s.Limits {
		left := float64(randomAsks) / float64(len(d.s.Limits))
		loads(limit, &left, func(l Load) {
			l.Limit = limit.Name
			if asks := d.s.countChecks(l, limit); asks <= left {
				left -= asks
				d.s.Loads = append(d.s.Loads, l)
			}
		})
	}
	if len(d.s.Loads) == 0 {
		d.s.Loads = append(d.s.Loads, Load{Limit: d.s.Limits[0].Name, Rate: 20})
	}
}

// newAdversary returns an adversary of a limit. The units of each check are doubled until
// the number of checks is at most the argument most, or the units reach the capacity.
func (s *Scenario) newAdversary(limit weir.Limit, keys int, most float64) Load {
	l := Load{Adversary: true, Units: 1, Limit: limit.Name, Keys: keys}
	for l.Units < bounds.Capacity(&limit) && s.countChecks(l, limit) > most {
		l.Units *= 2
	}
	if l.Units = min(l.Units, bounds.Capacity(&limit)); l.Units == 1 {
		l.Units = 0
	}
	return l
}

// round rounds a rate for readers.
func round(rate float64) float64 { return max(0.1, math.Round(rate*10)/10) }

// addFaults begins faults, and then calls endFaults. Moves are drawn independently of
// each other, so they may overlap. Faults that have no effect when they begin are
// dropped.
func (d *dice) addFaults() {
	at := mayhemFrom + d.between(0, 4*time.Second)
	moves, n := d.listMoves(), 2+d.IntN(maxMoves-1)
	if d.oneIn(3) { // a split that is longer than a window or two, and few other faults
		d.addFault(at, Fault{Kind: FaultSplit, Sides: d.drawSides()})
		at += d.between(time.Second, 20*time.Second)
		moves, n = d.crashes(), d.IntN(3)
	}
	d.addMoves(at, moves, n, 8*time.Second)
	d.endFaults()
}

// addMoves begins n random moves. In two of three cases the next move begins after 0.1 to
// 3 s, and otherwise after 2 s to the duration rest. Faults without an effect are
// dropped.
func (d *dice) addMoves(at time.Duration, moves []func(at time.Duration), n int, rest time.Duration) {
	for ; n > 0 && at < mayhemUntil; n-- {
		moves[d.IntN(len(moves))](at)
		if d.oneIn(3) {
			at += d.between(2*time.Second, rest)
		} else {
			at += d.logarithm(1e8, 3e9)
		}
	}
	if d.s.Faults = feasible(d.s); len(d.s.Faults) == 0 {
		d.addFault(mayhemFrom, Fault{Kind: FaultSplit, Sides: d.drawSides()})
	}
}

// listMoves returns the moves of a scenario. A scenario has few kinds of moves and
// repeats most of them, because repetitions in a different order find faults.
func (d *dice) listMoves() (moves []func(at time.Duration)) {
	type several = []func(at time.Duration)
	splits := several{d.addSplit, d.addSplit, d.addSplit, d.addFlapping, d.addHeal, d.addCuts}
	crashes := d.crashes()
	links := several{d.addSlowLink, d.addSlowLink, d.addCuts, d.addHeal}
	pauses := several{d.addFreeze, d.addFreeze, d.addClockStep}
	kinds := [][]several{
		{splits}, {splits, crashes}, {splits, crashes}, {crashes}, {pauses, crashes}, {splits, pauses}, {links, crashes},
		{splits, crashes, links, pauses},
	}
	return slices.Concat(kinds[d.IntN(len(kinds))]...)
}

func (d *dice) crashes() []func(at time.Duration) {
	return []func(time.Duration){d.addCrash, d.addCrash, d.addRestart, d.addJoin, d.addLeave}
}

func (d *dice) addFault(at time.Duration, f Fault) {
	if f.At = at; at < mayhemUntil+time.Second {
		d.s.Faults = append(d.s.Faults, f)
	}
}

// drawVictim draws any node of the scenario, even a node that does not run.
func (d *dice) drawVictim() []string { return d.shuffled(d.s.allNodes(), 1) }

// addNodeFault adds a fault of nodes. The fault ends after the time in the argument
// duration, or never if duration is 0.
func (d *dice) addNodeFault(at time.Duration, kind FaultKind, names []string, duration time.Duration) {
	f := Fault{Kind: kind, Nodes: names}
	d.addFault(at, f)
	if undo, _ := f.undo(); duration > 0 {
		d.addFault(at+duration, undo)
	}
}

// drawDuration draws how long a fault lasts. A fault between regions may last longer than the
// term of a grant.
func (d *dice) drawDuration() time.Duration {
	if d.regional {
		return d.logarithm(2e8, 2e10)
	}
	return d.logarithm(2e8, 1.2e10)
}

// drawSides returns the names of the nodes on each side of a split. If the faults are
// regional, it separates a region from the rest, or all regions from each other.
func (d *dice) drawSides() (sides [][]string) {
	if d.regional {
		regions := d.shuffled(d.s.regions(), len(d.s.Nodes))
		if len(regions) == 2 || d.oneIn(3) {
			for _, region := range regions {
				sides = append(sides, d.s.nodesOf(region))
			}
			return sides
		}
		return [][]string{d.s.nodesOf(regions[0]), d.s.nodeNames(func(n Node) bool { return n.Region != regions[0] })}
	}
	names := d.shuffled(d.s.allNodes(), len(d.s.Nodes))
	sides = make([][]string, 2)
	if len(names) > 3 && d.oneIn(4) {
		sides = make([][]string, 3)
	}
	for i, name := range names {
		side := i
		if i >= len(sides) {
			side = d.IntN(len(sides))
		}
		sides[side] = append(sides[side], name)
	}
	for _, side := range sides {
		slices.Sort(side)
	}
	return sides
}

// drawEnds returns the names of two nodes, or of two regions if the faults are regional.
func (d *dice) drawEnds() (from, to string) {
	names := d.s.allNodes()
	if d.regional {
		names = d.s.regions()
	}
	ends := d.shuffled(names, 2)
	return ends[0], ends[1]
}

func (d *dice) addSplit(at time.Duration) {
	d.addFault(at, Fault{Kind: FaultSplit, Sides: d.drawSides()})
	d.maybeHeal(at)
}

func (d *dice) addHeal(at time.Duration) { d.addFault(at, Fault{Kind: FaultHeal}) }

// maybeHeal adds a heal after a while, in half of the cases.
func (d *dice) maybeHeal(at time.Duration) {
	if d.oneIn(2) {
		d.addHeal(at + d.drawDuration())
	}
}

func (d *dice) addFlapping(at time.Duration) {
	sides := d.drawSides()
	for range 2 + d.IntN(3) {
		d.addFault(at, Fault{Kind: FaultSplit, Sides: sides})
		at += d.between(200*time.Millisecond, 3*time.Second)
		d.addHeal(at)
		at += d.between(200*time.Millisecond, 3*time.Second)
	}
}

func (d *dice) addCuts(at time.Duration) {
	for range 1 + d.IntN(3) {
		f := Fault{Kind: FaultCut}
		f.From, f.To = d.drawEnds()
		d.addFault(at, f)
		at += d.between(time.Millisecond, time.Second)
	}
	if d.regional {
		d.maybeHeal(at)
	}
}

func (d *dice) addSlowLink(at time.Duration) {
	f, least, most := Fault{Kind: FaultLink, Link: d.s.Network}, 2e6, 1e8
	if d.regional {
		f.Link, least, most = d.s.wanLink(), 1e8, 2e9
	}
	f.From, f.To = d.drawEnds()
	if d.oneIn(3) {
		f.Link.Loss = pick(d, 0.02, 0.05, 0.2)
	} else {
		f.Link.Latency = d.logarithm(least, most)
		f.Link.Jitter = f.Link.Latency / 4
	}
	switch {
	case d.regional: // an empty name would also match links within a region
	case d.oneIn(6):
		f.From, f.To = "", ""
	case d.oneIn(3):
		f.From = ""
	case d.oneIn(3):
		f.To = ""
	}
	d.addFault(at, f)
}

func (d *dice) addCrash(at time.Duration) {
	names, lasts := d.shuffled(d.initial(), 1), time.Duration(0)
	if d.oneIn(2) {
		lasts = d.drawDuration()
	}
	d.addNodeFault(at, FaultKill, names, lasts)
}

func (d *dice) addRestart(at time.Duration) {
	d.addNodeFault(at, FaultKill, d.drawVictim(), d.between(50*time.Millisecond, 3*time.Second))
}

// addJoin starts a node that does not run from the beginning or, if all do, any node.
func (d *dice) addJoin(at time.Duration) {
	names := d.s.allNodes()
	if later := names[len(d.initial()):]; len(later) > 0 {
		names = later
	}
	d.addNodeFault(at, FaultStart, d.shuffled(names, 1), 0)
}

func (d *dice) addLeave(at time.Duration) {
	names, lasts := d.drawVictim(), time.Duration(0)
	if d.oneIn(2) {
		lasts = d.between(2*time.Second, 8*time.Second)
	}
	d.addNodeFault(at, FaultLeave, names, lasts)
}

func (d *dice) addFreeze(at time.Duration) {
	d.addNodeFault(at, FaultFreeze, d.drawVictim(), d.drawDuration())
}

func (d *dice) addClockStep(at time.Duration) {
	by := d.logarithm(1e8, 6e10)
	if d.oneIn(2) {
		by = -by
	}
	d.addFault(at, Fault{Kind: FaultSkew, Nodes: d.drawVictim(), By: by})
}

// addManyKeys adds a burst for about 20,000 keys at the beginning. In half of the cases, a
// node has room for only 1,000 to 3,000 counts. The other limits must hold nevertheless.
func (d *dice) addManyKeys() {
	l := weir.Limit{Name: manyName, Rate: 100_000, Per: time.Hour, Partition: weir.FairShare}
	l.Algorithm = weir.Algorithm(d.IntN(int(weir.LeakyBucket) + 1))
	d.addLimit(l, Load{Keys: 60_000, Burst: manyAsks})
	if d.oneIn(2) {
		d.s.MaxKeys = 1000 + d.IntN(2000)
	}
}

func (d *dice) addLimit(l weir.Limit, load Load) {
	load.Limit = l.Name
	d.s.Limits, d.s.Loads = append(d.s.Limits, l), append(d.s.Loads, load)
}

// setBreaks sets the field Breaks of each cut and each split, so that these faults close
// connections.
func (d *dice) setBreaks() {
	for i := range d.s.Faults {
		f := &d.s.Faults[i]
		f.Breaks = f.Kind == FaultSplit || f.Kind == FaultCut
	}
}

// lowerCaps lowers the caps of the stream, which are for millions of counts: frames have
// few items, and a scan adds the rest of a queue. It does not lower them in scenarios
// with thousands of keys, because the checks of so many keys would need all of the time.
func (d *dice) lowerCaps() {
	if slices.ContainsFunc(d.s.Limits, func(l weir.Limit) bool { return l.Name == manyName }) {
		return
	}
	least := []float64{200, 1, 8, 1, 1, 1, 8, 1, 1}
	most := []float64{2000, 64, 100, 32, 256, 16, 128, 16, 16}
	fields := reflect.ValueOf(&d.s.Caps).Elem()
	for i := range least {
		if !d.oneIn(3) {
			fields.Field(i).SetInt(int64(d.logarithmic(least[i], most[i])))
		}
	}
}

// addHolds adds a limit, and callers that hold its units. If ttl is above 0, clients in
// other processes hold the units instead.
func (d *dice) addHolds(name string, keeps, ttl time.Duration) {
	l := weir.Limit{Name: name, Algorithm: weir.InFlight, Rate: int64(d.logarithmic(1, 20)), Partition: d.drawPolicy()}
	load := Load{Keys: 1 + d.IntN(3), Keeps: keeps, TTL: ttl}
	if d.oneIn(2) {
		load.Units = 1 + d.Int64N(max(1, l.Rate/3))
	}
	held := float64(l.Rate) * float64(load.Keys) / float64(max(1, load.Units)) // number of holds at the same time, if callers ask for more
	load.Rate = round(min(mostHolding, d.logarithmic(0.8, 4)*held/(load.Keeps.Seconds()/2)))
	if ttl > 0 {
		load.Rate = min(load.Rate, math.Floor((mostAsks-d.countChecks())/d.s.Lasts.Seconds()))
	}
	if load.Rate > 0 {
		d.addLimit(l, load)
	}
}

// drawLimit returns a limit of random algorithm, rate and policy, but no InFlight limit.
func (d *dice) drawLimit(name string, least, most float64, per time.Duration) weir.Limit {
	l := weir.Limit{Name: name, Algorithm: weir.Algorithm(d.IntN(int(weir.LeakyBucket) + 1)), Rate: int64(d.logarithmic(least, most)), Per: per}
	l.Partition = pick(d, weir.MajorityShare, weir.FairShare, weir.FailOpen, weir.FailClosed)
	return l
}

// addKeeps makes some limits keep units, and adds critical checks for them.
func (d *dice) addKeeps() {
	for i := range d.s.Limits {
		l := &d.s.Limits[i]
		most := bounds.Capacity(l)
		if l.Algorithm == weir.LeakyBucket || inFlightLimit(*l) || d.s.hasReservations(l.Name) || most < 2 || d.oneIn(4) {
			continue
		}
		keep := int64(d.logarithmic(1, float64(most)))
		critical := Load{Limit: l.Name, Critical: true, Keys: 1}
		for j := range d.s.Loads {
			if load := &d.s.Loads[j]; load.Limit == l.Name {
				critical.Keys = max(critical.Keys, load.Keys)
			}
		}
		if critical.Units = d.Int64N(1 + min(3, keep)); d.oneIn(4) {
			critical.Adversary = true
		} else {
			spent := float64(critical.Keys) * float64(keep) / float64(max(1, critical.Units))
			critical.Rate = round(d.logarithmic(0.2, 2) * spent / l.Per.Seconds())
		}
		if d.countChecks()+d.s.countChecks(critical, *l) > mostAsks {
			critical.Adversary, critical.Rate = false, 2
		}
		if d.countChecks()+d.s.countChecks(critical, *l) > mostAsks {
			continue
		}
		l.Keep, d.s.Loads = keep, append(d.s.Loads, critical)
		for j := range d.s.Loads {
			if load := &d.s.Loads[j]; load.Limit == l.Name && !load.Critical {
				load.Units = min(load.Units, most-keep)
			}
		}
	}
}

// addReservations adds a limit, and callers that reserve its units and settle them later.
func (d *dice) addReservations() {
	l := d.drawLimit("budget", 20, 2000, d.between(time.Second, 20*time.Second))
	if d.oneIn(3) {
		l.Per = 24 * time.Hour
		l.Rate = min(100*l.Rate, 100_000)
	}
	load := Load{Keys: 1 + d.IntN(3), Units: 1 + d.Int64N(max(1, l.Rate/10)), Rate: round(d.logarithmic(1, mostHolding))}
	load.Settles = d.logarithm(5e7, 1e10)
	d.addLimit(l, load)
}

// addStops makes nodes write snapshots. After the random faults, or in place of them, all
// nodes stop at once, once or twice.
func (d *dice) addStops() {
	s := d.s
	s.Lasts += stopsTake
	s.Snapshots = d.logarithm(1e9, 2e10)
	s.Shared = d.oneIn(3)
	if d.oneIn(3) {
		s.Faults = nil
	}
	l := d.drawLimit("kept", 20, 500, 24*time.Hour)
	l.NoLeases = d.oneIn(2)
	load := Load{Keys: 1 + d.IntN(4)}
	load.Rate = round(min(mostHolding, float64(load.Keys)*float64(l.Rate)/d.logarithmic(20, 150)))
	d.addLimit(l, load)
	at := mayhemUntil + d.between(5*time.Second, 12*time.Second)
	for range 1 + d.IntN(2) {
		at = d.addStop(at) + d.between(time.Second, 8*time.Second)
	}
	d.separateFaults()
	if d.countChecks() > mostAsks {
		s.Loads = slices.DeleteFunc(s.Loads, func(l Load) bool { return l.Adversary })
	}
}

// addStop stops all running nodes, then starts these or other nodes, and returns the time after
// the start.
func (d *dice) addStop(at time.Duration) time.Duration {
	hosts := d.s.beginning().apply(d.s.Faults...).hosts
	dead := make(map[string]bool)
	for _, f := range d.s.Faults {
		for _, name := range f.Nodes {
			dead[name] = f.Kind == FaultKill || dead[name] && f.Kind != FaultStart
		}
	}
	runs := d.s.nodeNames(func(n Node) bool { return hosts[n.Name] == running })
	add := func(f Fault) {
		f.At = at
		d.s.Faults = append(d.s.Faults, f)
		at += d.between(time.Millisecond, 2*time.Second)
	}
	kind := pick(d, FaultKill, FaultLeave)
	add(Fault{Kind: kind, Nodes: runs})
	if kind == FaultLeave && slices.Contains(slices.Collect(maps.Values(dead)), true) {
		// The last nodes retry to leave for leaveWithin if ranges belong to a dead member.
		at += leaveWithin
		d.s.Lasts += leaveWithin
	}
	if d.oneIn(4) {
		add(Fault{Kind: FaultLose, Nodes: d.shuffled(runs, 1+d.IntN(len(runs)))})
	}
	if d.oneIn(4) {
		add(Fault{Kind: FaultRevert, Nodes: d.shuffled(runs, 1)})
	}
	if d.oneIn(3) {
		by := d.logarithm(1e8, 6e10)
		add(Fault{Kind: FaultSkew, Nodes: d.drawVictim(), By: pick(d, by, -by)})
	}
	if d.oneIn(4) && d.s.Nodes[0].Region == "" {
		all := d.s.allNodes()
		runs = d.shuffled(all, 2+d.IntN(len(all)-1))
	}
	add(Fault{Kind: FaultStart, Nodes: runs})
	return at
}

// addSlowness makes nodes slow for a while, and in some scenarios a link as well.
func (d *dice) addSlowness() {
	before := slices.Clone(d.s.Faults)
	if d.oneIn(3) && d.s.Nodes[0].Region == "" {
		d.addFarMembers(mayhemFrom + d.between(0, mayhemUntil-mayhemFrom))
	}
	for range 1 + d.IntN(2) {
		d.addPauses(d.between(time.Second, mayhemUntil))
	}
	d.separateFaults()
	if d.countChecks() > mostAsks {
		d.s.Faults = before
		d.addFault(mayhemFrom, d.drawPauses(d.drawVictim()))
		d.separateFaults()
	}
}

// addPauses adds pauses for a random set of nodes. The pauses end by mayhemUntil, or in
// a quarter of the cases do not end. If no check times out because of them, the bounds are
// those of a healthy cluster.
func (d *dice) addPauses(at time.Duration) {
	names := d.s.allNodes()
	switch {
	case d.oneIn(3):
		names = d.shuffled(names, 1)
	case d.oneIn(2):
		names = d.shuffled(names, 1+d.IntN(len(names)))
		slices.Sort(names)
	}
	d.addFault(at, d.drawPauses(names))
	if !d.oneIn(4) {
		d.addFault(min(at+d.drawDuration(), mayhemUntil), Fault{Kind: FaultSlow, Nodes: names})
	}
}

// drawPauses returns a fault with pauses of a few milliseconds to 300 ms. The pauses
// recur every 100 ms, like the pauses of a CPU quota, or at an interval of up to a
// second.
func (d *dice) drawPauses(names []string) Fault {
	f := Fault{Kind: FaultSlow, Nodes: names, Every: defaultEvery}
	if d.oneIn(2) {
		f.Every = d.logarithm(2e7, 1e9)
	}
	f.Pauses = time.Duration(d.logarithmic(3e6, min(3e8, 0.9*float64(f.Every)))).Truncate(time.Millisecond)
	return f
}

// addFarMembers makes the link between two members slow for a while, but not so slow that
// they are not connected.
func (d *dice) addFarMembers(at time.Duration) {
	ends := d.shuffled(d.s.allNodes(), 2)
	f := Fault{Kind: FaultLink, From: ends[0], To: ends[1], Link: d.s.Network}
	f.Link.Loss = 0
	f.Link.Latency, f.Link.Jitter = d.between(50*time.Millisecond, 200*time.Millisecond), 0
	d.addFault(at, f)
	f.From, f.To = f.To, f.From
	d.addFault(at, f)
	d.addFault(min(at+d.drawDuration(), mayhemUntil), Fault{Kind: FaultHeal})
}

// countChecks returns the approximate number of checks of all loads.
func (d *dice) countChecks() (asks float64) {
	for _, l := range d.s.Loads {
		for _, limit := range d.s.Limits {
			if limit.Name == l.Limit {
				asks += d.s.countChecks(l, limit)
			}
		}
	}
	return asks
}

// separateFaults sorts the faults, and delays faults so that no two are at the same time.
func (d *dice) separateFaults() {
	d.s.sort()
	for i := 1; i < len(d.s.Faults); i++ {
		d.s.Faults[i].At = max(d.s.Faults[i].At, d.s.Faults[i-1].At+time.Millisecond)
	}
}

// feasible returns the faults that have an effect and leave at least two running nodes in
// each region.
func feasible(s *Scenario) (faults []Fault) {
	s.sort()
	now := s.beginning()
	for _, f := range s.Faults {
		switch f.Kind {
		case FaultSplit, FaultCut, FaultLink:
		case FaultHeal:
			if !now.cut {
				continue
			}
		case FaultSkew:
			if now.hosts[f.Nodes[0]] == down {
				continue
			}
		default:
			m := transitions[f.Kind]
			if !slices.Contains(m.needs, now.hosts[f.Nodes[0]]) || m.makes != running && s.lonely(now.hosts, f.Nodes[0]) {
				continue
			}
		}
		now.apply(f)
		faults = append(faults, f)
	}
	return faults
}

// lonely reports whether fewer than two other nodes run in the region of a node.
func (s *Scenario) lonely(hosts map[string]condition, name string) bool {
	region := s.Nodes[slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Name == name })].Region
	return len(s.nodeNames(func(n Node) bool { return n.Region == region && n.Name != name && hosts[n.Name] == running })) < 2
}

// endFaults ends the faults that last, in random order: nodes thaw, most nodes that are
// down start again, and links heal.
func (d *dice) endFaults() {
	now := d.s.beginning().apply(d.s.Faults...)
	until := mayhemUntil + time.Second
	var last []Fault
	for _, n := range d.s.Nodes {
		switch is := now.hosts[n.Name]; {
		case is == frozen:
			last = append(last, Fault{Kind: FaultThaw, Nodes: []string{n.Name}})
		case is == down && !n.Later && !d.oneIn(5):
			last = append(last, Fault{Kind: FaultStart, Nodes: []string{n.Name}})
		}
	}
	if now.cut {
		last = append(last, Fault{Kind: FaultHeal})
	}
	d.Shuffle(len(last), func(i, j int) { last[i], last[j] = last[j], last[i] })
	for _, f := range last {
		f.At = until
		d.s.Faults = append(d.s.Faults, f)
		until += d.between(10*time.Millisecond, 500*time.Millisecond)
	}
	d.separateFaults()
}
