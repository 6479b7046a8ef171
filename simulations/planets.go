package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// randomPlanet returns a random scenario of two or three regions and 60 s, with Global limits of
// all kinds, demand that moves, and regions that are cut off from each other in one or both
// directions. In a quarter of the scenarios, there are also faults within regions. In a third of
// the scenarios, some of the nodes are slow. The scenario depends only on the seed.
func randomPlanet(seed uint64) *Scenario {
	d := newDice(fmt.Sprintf("random-regions-%d", seed), seed, "planet")
	d.regional = true
	inside := d.oneIn(4)
	d.addRegions(inside)
	d.addRegionCuts(inside)
	d.addLimits()
	for i := range d.s.Limits {
		if i == 0 || !d.oneIn(6) {
			d.s.Limits[i].Scope = weir.Global
		}
	}
	d.addDemand()
	d.add(slow, capped, hot, keeps, banning)
	d.s.About = fmt.Sprintf("Drawn from seed %d: %s of %s, %s, %s.", seed, count(len(d.s.regions()), "region"),
		count(len(d.s.Nodes), "node"), count(len(d.s.Limits), "limit"), count(len(d.s.Faults), "fault"))
	return d.s
}

// addRegions draws regions, of three nodes each if inside is true: then a node can crash.
func (d *dice) addRegions(inside bool) {
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
	if d.oneIn(4) {
		d.s.RegionShares = shares
	}
	d.s.WAN.Latency = time.Duration(d.logarithmic(5e6, 1e8)).Truncate(time.Millisecond)
	if !d.oneIn(3) {
		d.s.WAN.Jitter = time.Duration(float64(d.s.WAN.Latency) * d.Float64()).Truncate(time.Millisecond)
	}
	if d.oneIn(3) {
		d.s.WAN.Loss = pick(d, 0.001, 0.005, 0.02)
	}
}

// addRegionCuts draws faults between regions and, if inside is true, within regions, and
// ends the faults.
func (d *dice) addRegionCuts(inside bool) {
	moves := []func(time.Duration){d.addSplit, d.addSplit, d.addCuts, d.addCuts, d.addFlapping, d.addSlowLink, d.addHeal}
	restart := inside && d.oneIn(2)
	if inside && !restart {
		in := &dice{Rand: d.Rand, s: d.s}
		moves = slices.Concat(moves, in.crashes(), []func(time.Duration){in.addFreeze, in.addSplit, in.addCuts})
	}
	d.addMoves(mayhemFrom+d.between(0, 4*time.Second), moves, 1+d.IntN(maxMoves-1), 14*time.Second) // 14 s is longer than the term of a grant
	if restart {
		d.addNodeFault(mayhemFrom+d.between(0, 25*time.Second), FaultKill, d.s.nodesOf(pick(d, d.s.regions()...)), d.between(100*time.Millisecond, 5*time.Second))
		d.s.sort()
	}
	d.endFaults()
}

// addDemand draws loads for each limit, in all regions at once or one by one, and
// keeps the sum of all checks in bounds.
func (d *dice) addDemand() {
	regions := d.s.regions()
	d.spendChecks(func(limit weir.Limit, left *float64, add func(Load)) {
		keys := 0
		if d.oneIn(4) {
			keys = 2 + d.IntN(4)
		}
		if !d.oneIn(4) {
			add(d.s.newAdversary(limit, keys, *left/2))
		}
		full := float64(limit.Rate) / limit.Per.Seconds() * float64(max(1, keys))
		if d.oneIn(3) { // a user who moves
			at, from := time.Duration(0), d.shuffled(regions, len(regions))
			for i := 0; at < 55*time.Second; i++ {
				ends := min(at+d.between(3*time.Second, 25*time.Second), randomLasts)
				add(Load{Keys: keys, From: d.s.nodesOf(from[i%len(from)]), Rate: round(min(d.logarithmic(0.8, 3)*full, *left/70)), Begins: at, Ends: ends})
				at = ends
			}
		} else {
			for _, region := range regions {
				if rate := d.logarithmic(0.2, 2) * full; !d.oneIn(5) {
					add(Load{Keys: keys, From: d.s.nodesOf(region), Rate: round(max(1, math.Floor(min(rate, *left/70))))})
				}
			}
		}
		for range d.IntN(3) {
			add(Load{Keys: keys, From: d.s.nodesOf(pick(d, regions...)), Burst: int(min(limit.Rate, 300)), Begins: d.between(time.Second, 50*time.Second)})
		}
	})
}
