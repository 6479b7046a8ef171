package ports

import (
	"log/slog"
	"time"
)

// Parts of the file descriptors of the process, in eighths. The rest is for peers and
// files: package cluster bounds the connections of the peer port by the same limit.
const (
	clientsEighths = 3
	probesEighths  = 1
)

// The part of a pool that a port may use for new connections is 1/newOfClients or
// 1/newOfProbes. These parts together are half of the pool, so that proven
// connections keep the other half. A port may exceed its part while none of its new
// connections has stalled, because then it has no connection to close.
const (
	newOfClients = 6 // there are three such ports
	newOfProbes  = 2
)

// Upper bounds, which limit memory if there are many file descriptors. A port may exceed maxNew or
// maxKept while none of these connections has stalled.
const (
	maxClients = 1 << 16
	maxProbes  = 256
	maxNew     = 512  // new connections of a port, of about 30 KiB each
	maxKept    = 8192 // proven connections of a port, which are kept for the next request
)

// Lower bounds, for a process with very few file descriptors.
const (
	minClients = 12
	minProbes  = 4
)

// Budget divides the file descriptors of the process among ports.
type Budget struct {
	log     *slog.Logger
	start   time.Time
	clients *pool // pool of all ports for services
	probes  *pool // pool of the port for probes
}

// NewBudget returns the budget of a process that may open the given number of files.
func NewBudget(files uint64, log *slog.Logger) *Budget {
	part := func(eighths uint64, least, most int) int {
		return max(least, int(min(files/8*eighths, uint64(most))))
	}
	return &Budget{
		log: log, start: time.Now(),
		clients: newPool(part(clientsEighths, minClients, maxClients)),
		probes:  newPool(part(probesEighths, minProbes, maxProbes)),
	}
}

// age returns how long the budget has existed, in nanoseconds, and never 0.
func (b *Budget) age() int64 { return int64(time.Since(b.start)) + 1 }
