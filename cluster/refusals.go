package cluster

import (
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/loglimit"
)

// The reasons in Stats.Refused, beside those of package gossip.
const (
	reasonGarbage        = "garbage"
	reasonVersion        = "version"
	reasonOversized      = "oversized"
	reasonAuthentication = "authentication"
	reasonRecord         = "record"
	reasonTLS            = "tls"
	reasonSeed           = "seed"
	reasonRegion         = "region"
	reasonIdentity       = "identity" // the secret or certificate proves a different identity
	reasonTimeout        = "timeout"
	reasonCrowded        = "crowded"
)

// logPace is the minimum time between two log lines of the same reason, or of the same name.
const logPace = loglimit.Every

// refusals has the number of refused connections, packets and members for each reason. It logs the
// first refusal of each reason, and then at most a line in logPace. The set of reasons is small and
// fixed, so neither the counts nor the log can be flooded.
type refusals struct {
	log *slog.Logger

	mu  sync.Mutex
	all map[string]refusalCount // keyed by reason
}

// refusalCount counts the refusals of a reason.
type refusalCount struct {
	count, said uint64    // number of refusals in all, and up to the last log line
	at          time.Time // time of the last log line
}

func newRefusals(log *slog.Logger) *refusals {
	return &refusals{log: log, all: map[string]refusalCount{}}
}

// add counts a refusal of a connection, a packet or a member at addr. An empty reason is not counted: the
// connection ended without a refusal, or this node has left.
func (r *refusals) add(reason string, addr net.Addr, err error) { r.addAll(reason, 1, addr, err) }

// addAll counts n refusals. addr may be nil.
func (r *refusals) addAll(reason string, n int, addr net.Addr, err error) {
	if reason == "" || n == 0 {
		return
	}
	now := time.Now()
	r.mu.Lock()
	t := r.all[reason]
	unlogged, due := t.count-t.said, t.at.IsZero() || now.Sub(t.at) >= logPace
	if t.count += uint64(n); due {
		t.said, t.at = t.count, now
	}
	r.all[reason] = t
	r.mu.Unlock()
	if !due {
		return
	}
	from := ""
	if addr != nil {
		from = addr.String()
	}
	r.log.Warn("refused a peer", "reason", reason, "addr", from, "error", err, "unlogged", unlogged)
}

func (r *refusals) snapshot() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make(map[string]uint64, len(r.all))
	for reason, t := range r.all {
		counts[reason] = t.count
	}
	return counts
}

// trouble logs why members, or regions, cannot be reached, for each name at most once in logPace. The
// size is bounded by the roster, or by the number of configured regions, because lines that are older
// than logPace are forgotten.
type trouble struct {
	say func(name, addr string, err error)

	mu   sync.Mutex
	said map[string]time.Time
}

// troubleWithMembers returns the trouble of links to members.
func troubleWithMembers(log *slog.Logger) *trouble {
	return newTrouble(func(name, addr string, err error) {
		log.Warn("cannot exchange messages with a member", "member", name, "addr", addr, "error", err)
	})
}

// troubleAbroad returns the trouble of connections to other regions.
func troubleAbroad(log *slog.Logger) *trouble {
	return newTrouble(func(name, addr string, err error) {
		log.Warn("cannot reach another region", "region", name, "addr", addr, "error", err)
	})
}

func newTrouble(say func(name, addr string, err error)) *trouble {
	return &trouble{say: say, said: map[string]time.Time{}}
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
		t.say(name, addr, err)
	}
}
