package main

import (
	"fmt"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
)

// guarantee is a row of the table of guarantees. A window is judged by the last
// of those that it holds something of.
type guarantee uint8

const (
	healthy  guarantee = iota // nothing happens
	deployed                  // gateways start, and leave in order
	crashed                   // a gateway dies
	timedOut                  // a gateway is frozen or thawed, or a check timed out though the owner was up
	guarantees
)

// promise is what a client gets at most.
type promise struct {
	limit    int64
	inFlight int // of a window with a crash: what it was admitted in two round trips around that
}

// most is how much the client gets in a window at most, of a limit whose windows admit no
// more than its rate.
func (p promise) most(g guarantee) int {
	var s bounds.Situation
	switch g {
	case crashed:
		s.Crashes, s.InFlight = 1, int64(p.inFlight)
	case timedOut:
		s.Late = 1
	}
	return int(bounds.Bound(&weir.Limit{Algorithm: weir.SlidingLog, Rate: p.limit}, s))
}

// closest is what was found in the windows of all clients that one guarantee
// judges.
type closest struct {
	windows int
	most    int     // of the client that came closest to its promise, or went beyond it
	promise promise // of that client
}

// add takes in what was found for a client.
func (c *closest) add(g guarantee, found finding, limit int64) {
	p := promise{limit, found.inFlight}
	if c.windows == 0 || found.most-p.most(g) > c.most-c.promise.most(g) {
		c.most, c.promise = found.most, p
	}
	c.windows += found.windows
}

func (g guarantee) String() string {
	return [...]string{"healthy", "deploy", "crash", "timeout"}[g]
}

// means says which windows a guarantee judges, and where its figure comes from.
func (p promise) means(g guarantee) string {
	switch g {
	case deployed:
		return "in which gateways started, or left in order: the limit"
	case crashed:
		return fmt.Sprintf("in which a gateway was killed: L + L/16 + %d in two round trips around that", p.inFlight)
	case timedOut:
		return "in which one was frozen or thawed, or a check timed out: 2L"
	}
	return "in which all was well: the limit"
}
