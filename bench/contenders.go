package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

// The algorithms that contenders are compared by.
const (
	bucketed = "bucket"  // token bucket and GCRA, which grant the same
	slid     = "sliding" // a window's count, and of the one before what still reaches back
	fixed    = "fixed"   // a window's count; it begins with the key's first ask
)

// contender is a limiter as a service would use it. It is Weir's, or gubernator's, if at is set,
// else it is in one process if local is, and in Redis if remote is.
type contender struct {
	name      string
	algorithm string
	at        place
	noLeases  bool
	elsewhere bool // it is gubernator, which is in a program of its own
	local     func(worker.Quota) (*worker.Instance, error)
	remote    func(q worker.Quota, addr string) (*worker.Instance, error)
	note      string // what it does less, or else; for the table's readers
}

// place is where the checks of nodes are decided.
type place int

const (
	noNodes place = iota
	owned         // each node is asked for the keys that it owns
	spread        // nodes are asked for any key, and where there is one for others' alone
)

// contenders are in the table's order.
func contenders() []contender {
	const (
		several = "Each instance has a count of its own."
		atRedis = "In Redis, on this machine and without replicas; allocations are the clients', bytes are Redis'."
	)
	return []contender{
		{name: "weir-owned", algorithm: bucketed, at: owned},
		{name: "weir-owned", algorithm: slid, at: owned},
		{name: "weir-owned", algorithm: fixed, at: owned, note: "Each node is asked for keys that it owns alone. Where there is one, it is one of a ring of ten whose others are not there."},
		{name: "weir-leased", algorithm: bucketed, at: spread},
		{name: "weir-leased", algorithm: slid, at: spread},
		{name: "weir-leased", algorithm: fixed, at: spread, note: "As weir-forwarded, but with the default: owners lend units of hot keys to who asks for them."},
		{name: "weir-forwarded", algorithm: bucketed, at: spread, noLeases: true},
		{name: "weir-forwarded", algorithm: slid, at: spread, noLeases: true, note: "With NoLeases. One node asks for keys that another process owns, which has a replica of each here; four are asked for any key, a quarter of them its own. Allocations and bytes are those of all nodes."},
		{name: "x-time-rate", algorithm: bucketed, local: newXTimeRate, note: "golang.org/x/time/rate in 256 locked maps. It never forgets a key. " + several},
		{name: "throttled", algorithm: bucketed, local: newThrottled, note: "Its store in memory, without a bound: it never forgets a key. A check that loses ten races for its key is an error, and not admitted. " + several},
		{name: "httprate", algorithm: slid, local: newHTTPRate, note: "Its counter, under one lock as in its middleware, without the headers. It has a hash of 64 bits in the key's place. Windows begin at the same time for all keys. " + several},
		{name: "go-limiter", algorithm: fixed, local: newGoLimiter, note: "Its store in memory. It looks every six hours for keys to forget. " + several},
		{name: "ulule", algorithm: fixed, local: newUlule, note: "Its store in memory. " + several},
		{name: "gubernator-owned", algorithm: bucketed, at: owned, elsewhere: true, note: "As weir-owned, by its leaky bucket. Where there is one node, it is alone."},
		{name: "gubernator-forwarded", algorithm: bucketed, at: spread, elsewhere: true, note: "As weir-forwarded, by its leaky bucket, with its default batches. It is embedded in the callers' process: a daemon beside it costs a call more. It has no replicas."},
		{name: "redis_rate", algorithm: bucketed, remote: newRedisRate, note: atRedis},
		{name: "rueidis-gcra", algorithm: bucketed, remote: newScript(gcra), note: "A script over rueidis, which pipelines. " + atRedis},
		{name: "rueidis-sliding", algorithm: slid, remote: newScript(sliding), note: "A script over rueidis, which pipelines. Windows begin at the same time for all keys. " + atRedis},
	}
}

// limit is the quota as a limit of Weir's.
func (c contender) limit(q worker.Quota) weir.Limit {
	l := weir.Limit{Name: "bench", Rate: q.Units, Per: q.Window(), NoLeases: c.noLeases}
	switch c.algorithm {
	case bucketed:
		l.Algorithm, l.Rate, l.Per, l.Burst = weir.TokenBucket, 1, q.Interval, q.Units
	case slid:
		l.Algorithm = weir.SlidingWindow
	case fixed:
		l.Algorithm = weir.FixedWindow
	}
	return l
}

// begin makes the instance of a worker. An owner that is alone is on a ring of ten whose
// others are not there.
func begin(s worker.Setup, q worker.Quota) (*worker.Instance, error) {
	c, w, err := find(s.Contender, s.Algorithm, s.Workload, s.Part)
	switch {
	case err != nil:
		return nil, err
	case c.local != nil:
		return c.local(q)
	case c.remote != nil:
		return c.remote(q, s.Redis)
	case c.elsewhere:
		return nil, fmt.Errorf("bench: %s is in another program", c.name)
	}
	return newWeirNode(c.limit(q), w.Nodes == 1 && s.Owned, s.Join)
}

// newWeirNode starts a node, among others that are reached at the addresses unless it
// is alone on its ring. But for MaxKeys, which a million keys need, it is configured as
// by default.
func newWeirNode(limit weir.Limit, alone bool, join []string) (*worker.Instance, error) {
	var n *weir.Node
	var err error
	if alone {
		n, err = startOwner(2 * worker.Million)
	} else {
		n, err = weir.Start(context.Background(), weir.Config{Name: "bench", Bind: "127.0.0.1:0", Join: join, MaxKeys: 2 * worker.Million, Logger: quiet()})
	}
	if err != nil {
		return nil, err
	}
	l, err := n.Limiter(limit)
	if err != nil {
		_ = n.Close()
		return nil, err
	}
	return &worker.Instance{
		Allow: func(key string) worker.Outcome {
			d, err := l.Allow(context.Background(), key)
			return decidedByWeir(d, err)
		},
		Close: n.Close,
		Addr:  addrOf(n),
		Owns:  func(key string) bool { return l.Owner(key).Self },
		Meet: func(nodes []string) error {
			return errors.Join(untilMet(n, len(nodes), worker.StartWait), untilExact(l, worker.StartWait))
		},
		Settle: func() {
			for begun := time.Now(); time.Since(begun) < worker.StartWait; {
				time.Sleep(50 * time.Millisecond) // Stats are half as old at most
				if n.Stats().Stream.Unsent == 0 {
					return
				}
			}
		},
	}, nil
}

func decidedByWeir(d weir.Decision, err error) (o worker.Outcome) {
	switch d.Source {
	case weir.Owner, weir.Pushback, weir.Leased:
		o = worker.Here
	case weir.Forwarded, weir.Relayed:
	default:
		o = worker.Stray
	}
	if err != nil {
		return o | worker.Failed
	}
	if d.Allowed {
		o |= worker.Admitted
	}
	return o
}

// find finds a contender and a workload by their names.
func find(name, algorithm, work string, part int) (contender, worker.Workload, error) {
	cs := contenders()
	i := slices.IndexFunc(cs, func(c contender) bool { return c.name == name && c.algorithm == algorithm })
	if i < 0 {
		return contender{}, worker.Workload{}, fmt.Errorf("bench: there is no contender %s/%s", name, algorithm)
	}
	w, err := worker.FindWorkload(work, part)
	return cs[i], w, err
}
