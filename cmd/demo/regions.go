package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// regionNames are those of a run with regions, as many as are wanted.
var regionNames = []string{"eu", "us", "ap", "sa"}

// Regions with a part of their own in what happens.
const (
	firstBusy = 0 // all demand moves here,
	thenBusy  = 1 // and then here; and this one is cut off while it has all
)

// journey is what happens in a run with regions, spread over it.
func journey(regions []string, nodes int, duration time.Duration) []step {
	at := func(percent int, k kind, asks []int, phase string) step {
		return step{kind: k, gateway: thenBusy * nodes, asks: asks, phase: phase, after: duration * time.Duration(percent) / 100}
	}
	all := slices.DeleteFunc([]int{0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3}, func(region int) bool { return region >= len(regions) })
	others := slices.Delete(slices.Clone(regions), thenBusy, thenBusy+1)
	return []step{
		at(0, demand, all, "all regions ask"),
		at(17, demand, []int{firstBusy}, "demand moves: all of it to "+regions[firstBusy]),
		at(30, demand, []int{thenBusy}, fmt.Sprintf("demand moves: all of it from %s to %s", regions[firstBusy], regions[thenBusy])),
		at(43, sever, all, fmt.Sprintf("cut: %s, which has nearly all, is cut off from %s, and all ask again", regions[thenBusy], strings.Join(others, " and "))),
		at(87, rejoin, all, "heal: all regions reach each other again"),
	}
}

// oneWay is how much longer connections between two regions take each way.
const oneWay = 50 * time.Millisecond

// Of a run with regions.
const (
	customers = 2
	// planetPer is the limits' Per: beside it, the way to another region and back is
	// short.
	planetPer = 2 * time.Second
	// localPart is which part of the requests meets the Regional limit and not the
	// Global one.
	localPart = 4
	localPath = "/local"
	// patience is Config.Timeout there: longer than to another region and back, so
	// that a check which waited for one would be seen to.
	patience = 250 * time.Millisecond
	// planetStall is the longest that a request may take there: a check's Timeout, and what
	// a busy machine may keep processes waiting.
	planetStall = patience + 480*time.Millisecond
	// returned is how long a region that is cut off can keep what others granted it
	// from them: a term of 10 s and its margin.
	returned = 11250 * time.Millisecond
)

// drawCustomer draws all customers alike, and some requests that the Regional limit has.
func drawCustomer(random *rand.Rand) func() account {
	return func() account {
		of := account{"/", random.IntN(customers)}
		if random.IntN(localPart) == 0 {
			of.path = localPath
		}
		return of
	}
}

// localRate is the Regional limit beside a Global one.
func localRate(limit int64) int64 { return max(1, limit/10) }

// leastRate is how many requests a second are five times what the limits grant: with
// less some of it is left because nobody comes for it in time.
func leastRate(limit int64, per time.Duration) int {
	granted := float64(customers*limit) / per.Seconds()
	return int(math.Ceil(5 * granted * localPart / (localPart - 1)))
}
