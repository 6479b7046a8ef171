package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// randomPlanet is a scenario of two or three regions and 60 s that nobody thought
// of: Global limits of all kinds, demand that moves, and regions that are cut from
// each other, both ways or one; in one of four a region has faults of its own
// as well. It is a function of the seed alone.
func randomPlanet(seed uint64) *Scenario {
	d := newDice(fmt.Sprintf("random-regions-%d", seed), seed, "planet")
	inside := d.one(4)
	d.regions(inside)
	d.cuts(inside)
	d.limits()
	for i := range d.s.Limits {
		if i == 0 || !d.one(6) {
			d.s.Limits[i].Scope = weir.Global
		}
	}
	d.demand()
	d.slowness()
	d.smallness()
	d.heat()
	d.s.About = fmt.Sprintf("Drawn from seed %d: %s of %s, %s, %s.", seed, count(len(d.s.regions()), "region"),
		count(len(d.s.Nodes), "node"), count(len(d.s.Limits), "limit"), count(len(d.s.Faults), "fault"))
	return d.s
}

// regions have so many nodes that one can crash, where that is to happen.
func (d *dice) regions(inside bool) {
	names := []string{"ap", "eu", "us"}[:2+d.IntN(2)]
	shares := make(map[string]int64)
	for _, region := range names {
		n := 1 + d.IntN(3)
		if inside {
			n = 3
		}
		for i := range n {
			d.s.Nodes = append(d.s.Nodes, Node{Name: fmt.Sprintf("%s-%d", region, i+1), Region: region})
		}
		shares[region] = 1 + d.Int64N(20)
	}
	if d.one(4) {
		d.s.RegionShares = shares
	}
	d.s.WAN.Latency = time.Duration(d.logarithmic(5e6, 1e8)).Truncate(time.Millisecond)
	if !d.one(3) {
		d.s.WAN.Jitter = time.Duration(float64(d.s.WAN.Latency) * d.Float64()).Truncate(time.Millisecond)
	}
	if d.one(3) {
		d.s.WAN.Loss = pick(d, 0.001, 0.005, 0.02)
	}
}

// cuts are the faults between regions, which end again.
func (d *dice) cuts(inside bool) {
	moves := []func(time.Duration){d.regionsApart, d.regionsApart, d.regionOneWay, d.regionOneWay, d.regionFlaps, d.regionSlow, d.heal}
	restart := inside && d.one(2)
	if inside && !restart {
		moves = slices.Concat(moves, d.crashes(), []func(time.Duration){d.freeze, d.split, d.oneWay})
	}
	at := mayhemFrom + d.between(0, 4*time.Second)
	d.happen(at, moves, 1+d.IntN(maxMoves-1), 14*time.Second) // beyond a grant's term
	if d.s.Faults = feasible(d.s); len(d.s.Faults) == 0 {
		d.regionsApart(mayhemFrom)
	}
	if restart {
		names := d.s.of(pick(d, d.s.regions()...))
		at := mayhemFrom + d.between(0, 25*time.Second)
		d.fault(at, Fault{Kind: FaultKill, Nodes: names})
		d.fault(at+d.between(100*time.Millisecond, 5*time.Second), Fault{Kind: FaultStart, Nodes: names})
		d.s.sort()
	}
	d.mend()
}

// regionsApart cuts one region off, or each.
func (d *dice) regionsApart(at time.Duration) {
	regions := d.s.regions()
	var sides [][]string
	if alone := d.IntN(len(regions)); len(regions) == 2 || d.one(3) {
		for _, region := range regions {
			sides = append(sides, d.s.of(region))
		}
	} else {
		others := d.s.names(func(n Node) bool { return n.Region != regions[alone] })
		sides = [][]string{d.s.of(regions[alone]), others}
	}
	d.fault(at, Fault{Kind: FaultSplit, Sides: sides})
	if d.one(2) {
		d.fault(at+time.Duration(d.logarithmic(2e8, 2e10)).Truncate(time.Millisecond), Fault{Kind: FaultHeal})
	}
}

func (d *dice) twoRegions() (from, to string) {
	names := d.shuffled(d.s.regions(), 2)
	return names[0], names[1]
}

func (d *dice) regionOneWay(at time.Duration) {
	for range 1 + d.IntN(2) {
		from, to := d.twoRegions()
		d.fault(at, Fault{Kind: FaultCut, From: from, To: to})
		at += d.between(time.Millisecond, 2*time.Second)
	}
	if d.one(2) {
		d.fault(at+d.while(), Fault{Kind: FaultHeal})
	}
}

func (d *dice) regionFlaps(at time.Duration) {
	for range 2 + d.IntN(3) {
		from, to := d.twoRegions()
		d.fault(at, Fault{Kind: FaultCut, From: from, To: to})
		if d.one(2) {
			d.fault(at+time.Millisecond, Fault{Kind: FaultCut, From: to, To: from})
		}
		at += d.between(100*time.Millisecond, 4*time.Second)
		d.fault(at, Fault{Kind: FaultHeal})
		at += d.between(100*time.Millisecond, 3*time.Second)
	}
}

func (d *dice) regionSlow(at time.Duration) {
	f := Fault{Kind: FaultLink, Link: d.s.wan()}
	f.From, f.To = d.twoRegions()
	if d.one(2) {
		f.Link.Loss = pick(d, 0.02, 0.05, 0.2)
	} else {
		f.Link.Latency = time.Duration(d.logarithmic(1e8, 2e9)).Truncate(time.Millisecond)
		f.Link.Jitter = f.Link.Latency / 4
	}
	d.fault(at, f)
}

// demand asks each limit for more than it grants, in all regions or in one after
// the other, and keeps the sum of all asks in bounds.
func (d *dice) demand() {
	regions := d.s.regions()
	for _, limit := range d.s.Limits {
		left := float64(randomAsks) / float64(len(d.s.Limits))
		keys := 0
		if d.one(4) {
			keys = 2 + d.IntN(4)
		}
		add := func(l Load) {
			l.Limit, l.Keys = limit.Name, keys
			if asks := d.s.asks(l, limit); asks <= left {
				left -= asks
				d.s.Loads = append(d.s.Loads, l)
			}
		}
		if !d.one(4) {
			add(d.s.adversary(limit, keys, left/2))
		}
		full := float64(limit.Rate) / limit.Per.Seconds() * float64(max(1, keys))
		if d.one(3) { // a user who moves
			at, from := time.Duration(0), d.shuffled(regions, len(regions))
			for i := 0; at < 55*time.Second; i++ {
				ends := min(at+d.between(3*time.Second, 25*time.Second), randomLasts)
				add(Load{From: d.s.of(from[i%len(from)]), Rate: round(min(d.logarithmic(0.8, 3)*full, left/70)), Begins: at, Ends: ends})
				at = ends
			}
		} else {
			for _, region := range regions {
				if rate := d.logarithmic(0.2, 2) * full; !d.one(5) {
					add(Load{From: d.s.of(region), Rate: round(max(1, math.Floor(min(rate, left/70))))})
				}
			}
		}
		for range d.IntN(3) {
			add(Load{From: d.s.of(pick(d, regions...)), Burst: int(min(limit.Rate, 300)), Begins: d.between(time.Second, 50*time.Second)})
		}
	}
	if len(d.s.Loads) == 0 {
		d.s.Loads = append(d.s.Loads, Load{Limit: d.s.Limits[0].Name, Rate: 20})
	}
}
