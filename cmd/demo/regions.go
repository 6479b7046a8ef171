package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// regionNames are the names of regions. A run with n regions uses the first n names.
var regionNames = []string{"eu", "us", "ap", "sa"}

const (
	firstBusy = 0 // all demand moves here first
	thenBusy  = 1 // all demand moves here next, and then this region is cut off
)

// journey returns the steps of a run with regions, distributed over the run.
func journey(regions []string, nodes int, duration time.Duration) []step {
	at := func(percent int, k kind, asks []int, phase string) step {
		return step{kind: k, gateway: thenBusy * nodes, asks: asks, phase: phase, after: duration * time.Duration(percent) / 100}
	}
	all := slices.DeleteFunc([]int{0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3}, func(region int) bool { return region >= len(regions) })
	others := slices.Delete(slices.Clone(regions), thenBusy, thenBusy+1)
	return []step{
		at(0, demand, all, "demand is in all regions"),
		at(17, demand, []int{firstBusy}, "demand moves: all of it to "+regions[firstBusy]),
		at(30, demand, []int{thenBusy}, fmt.Sprintf("demand moves: all of it from %s to %s", regions[firstBusy], regions[thenBusy])),
		at(43, sever, all, fmt.Sprintf("cut: %s, which has nearly all units, is cut off from %s; demand is in all regions again", regions[thenBusy], strings.Join(others, " and "))),
		at(87, rejoin, all, "heal: all regions reach each other again"),
	}
}

// oneWay is the additional delay between two regions in each direction.
const oneWay = 50 * time.Millisecond

const (
	customers = 2
	// planetPer is the Per of the limits, long in comparison with a round trip between
	// regions.
	planetPer = 2 * time.Second
	// One in localPart requests uses the Regional limit, and the other requests use the
	// Global limit.
	localPart = 4
	localPath = "/local"
	// patience is the Config.Timeout in such a run, longer than a round trip to
	// another region, so that a check that waits for another region is noticed.
	patience = 250 * time.Millisecond
	// planetStall is the maximum time of a request in such a run: the Timeout of a check,
	// and the time that a busy machine may delay processes.
	planetStall = patience + 480*time.Millisecond
	// returned is the maximum time for which a region that is cut off can keep the units
	// that other regions granted to it: a term of 10 s and its margin.
	returned = 11250 * time.Millisecond
)

// drawCustomer draws customers evenly, and sends some requests to the Regional limit.
func drawCustomer(random *rand.Rand) func() account {
	return func() account {
		of := account{"/", random.IntN(customers)}
		if random.IntN(localPart) == 0 {
			of.path = localPath
		}
		return of
	}
}

// localRate returns the rate of the Regional limit that accompanies a Global limit.
func localRate(limit int64) int64 { return max(1, limit/10) }

// leastRate returns the minimum rate of a run, at which the requests for the Global limit are
// five times the units that the limit grants. If the rate is lower, there are not enough requests to use all units in time.
func leastRate(limit int64, per time.Duration) int {
	granted := float64(customers*limit) / per.Seconds()
	return int(math.Ceil(5 * granted * localPart / (localPart - 1)))
}
