package ports

import (
	"log/slog"
	"time"
)

// Parts of the file descriptors of the process, in eighths. What remains is for peers and
// files: package cluster bounds the connections of the peer port by the same limit.
const (
	clientsEighths = 3
	probesEighths  = 1
)

// Of its pool a port has one of so many parts for connections that are new. Together they
// are half of the pool at most, so that connections that are of use keep the other half.
const (
	newOfClients = 6 // there are three such ports
	newOfProbes  = 2
)

// Bounds where there are many file descriptors: they bound memory.
const (
	maxClients = 1 << 16
	maxProbes  = 256
	maxNew     = 512  // of each port, some 30 KiB each
	maxKept    = 8192 // of each port, that are kept for the next request
)

// Bounds where there are very few.
const (
	minClients = 12
	minProbes  = 4
)

// Budget shares the file descriptors of the process out to ports.
type Budget struct {
	log     *slog.Logger
	start   time.Time
	clients *pool // of the ports that services ask, together
	probes  *pool // of the port that is asked whether the process lives
}

// NewBudget returns the budget of a process that may have so many files open.
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

// now returns how long the budget has existed, in nanoseconds, and never 0.
func (b *Budget) now() int64 { return int64(time.Since(b.start)) + 1 }
