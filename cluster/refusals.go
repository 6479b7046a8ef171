package cluster

import (
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"
)

// The reasons in Stats.Refused.
const (
	reasonGarbage        = "garbage"
	reasonVersion        = "version"
	reasonOversized      = "oversized"
	reasonAuthentication = "authentication"
	reasonRecord         = "record"
	reasonTLS            = "tls"
	reasonSeed           = "seed"
	reasonRegion         = "region"
	reasonIdentity       = "identity" // not what its secret or certificate says
	reasonTimeout        = "timeout"
	reasonCrowded        = "crowded"
	reasonPacket         = "packet" // of gossip: not this cluster's, or what no member sends
	reasonFlood          = "flood"  // of packets
	reasonMembers        = "members"
)

// What refusals log.
const (
	refusedConnection = "refused a connection"
	refusedGossip     = "refused gossip"
)

// logPace is how often one kind of trouble is logged, whoever causes it.
const logPace = 10 * time.Second

// refusals counts by reason what is turned away, connections above all, and logs the first of each
// reason and then at most one in logPace. Reasons are a fixed few, so neither
// the counts nor the log can be flooded.
type refusals struct {
	log     *slog.Logger
	message string // what is logged

	mu     sync.Mutex
	counts map[string]uint64
	said   map[string]time.Time
	hushed map[string]uint64 // not logged since then
}

func newRefusals(log *slog.Logger, message string) *refusals {
	return &refusals{log: log, message: message, counts: map[string]uint64{}, said: map[string]time.Time{}, hushed: map[string]uint64{}}
}

// add counts one connection from addr that is closed for reason. An empty
// reason is not counted: the other side just went away.
func (r *refusals) add(reason string, addr net.Addr, err error) { r.addAll(reason, 1, addr, err) }

// addAll is add of so many together.
func (r *refusals) addAll(reason string, n int, addr net.Addr, err error) {
	if reason == "" || n == 0 {
		return
	}
	now := time.Now()
	r.mu.Lock()
	r.counts[reason] += uint64(n)
	if last, ok := r.said[reason]; ok && now.Sub(last) < logPace {
		r.hushed[reason] += uint64(n)
		r.mu.Unlock()
		return
	}
	hushed := r.hushed[reason]
	r.said[reason], r.hushed[reason] = now, 0
	r.mu.Unlock()
	r.log.Warn(r.message, "reason", reason, "from", addr, "error", err, "unlogged", hushed)
}

func (r *refusals) snapshot() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

// trouble logs why members, or regions, cannot be reached, each at most once in
// logPace. It is bounded by the roster: it forgets what was said before logPace.
type trouble struct {
	log     *slog.Logger
	message string
	whom    string // what its names name

	mu   sync.Mutex
	said map[string]time.Time
}

func newTrouble(log *slog.Logger, message, whom string) *trouble {
	return &trouble{log: log, message: message, whom: whom, said: map[string]time.Time{}}
}

func (t *trouble) add(name, addr string, err error) {
	now := time.Now()
	t.mu.Lock()
	maps.DeleteFunc(t.said, func(_ string, at time.Time) bool { return now.Sub(at) >= logPace })
	_, hush := t.said[name]
	if !hush {
		t.said[name] = now
	}
	t.mu.Unlock()
	if !hush {
		t.log.Warn(t.message, t.whom, name, "addr", addr, "error", err)
	}
}
