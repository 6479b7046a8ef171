package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

// contender is a limiter as a service uses it. Except for weir-held and echo, it is a token
// bucket, a leaky bucket or GCRA, which grant the same units.
type contender struct {
	name       string
	at         place
	gubernator bool                                                        // the limiter runs in the program of the folder gubernator
	remote     func(q worker.Quota, addr string) (*worker.Instance, error) // nil unless at is inRedis
	limit      func(q worker.Quota) weir.Limit                             // returns the limit that a node of Weir has for a quota
	unlisted   bool                                                        // the contender is measured only if -only names it
	note       string                                                      // a note for readers of the tables
}

// place is the place where checks are decided.
type place int

const (
	inRedis   place = iota // Redis decides
	owned                  // the node that receives the check decides
	elsewhere              // a node in another process decides
	nowhere                // another process responds without a decision
)

func contenders() []contender {
	const redis = "In Redis, on this machine and without replicas."
	return []contender{
		{name: "weir-owned", at: owned, limit: unleased, note: "The node is one of a ring of ten, and owns the checked keys. The other nine nodes are idle, in the same process."},
		{name: "weir-forwarded", at: elsewhere, limit: unleased, note: "With NoLeases. Another process owns the keys, and the node has a replica of each."},
		{name: "weir-leased", at: elsewhere, limit: leased, unlisted: true, note: "As weir-forwarded, with leases."},
		{name: "weir-held", at: owned, limit: held, unlisted: true, note: "As weir-owned. Each check holds a unit and releases it."},
		{name: "echo", at: nowhere, unlisted: true, note: "No limiter: frames of the size of weir-forwarded's, over a connection to another process."},
		{name: "gubernator-owned", at: owned, gubernator: true, note: "As weir-owned, by its leaky bucket, but the node is alone."},
		{name: "gubernator-forwarded", at: elsewhere, gubernator: true, note: "As weir-forwarded, by its leaky bucket, with its default batches. It is embedded in the process of the callers, because a daemon costs an additional call. It has no replicas."},
		{name: "redis_rate", remote: newRedisRate, note: redis},
		{name: "rueidis-gcra", remote: newGCRA, note: "A script over rueidis, which pipelines. " + redis},
	}
}

func leased(q worker.Quota) weir.Limit {
	return weir.Limit{Name: "bench", Algorithm: weir.TokenBucket, Rate: 1, Per: q.Interval, Burst: q.Units}
}

func unleased(q worker.Quota) weir.Limit {
	l := leased(q)
	l.NoLeases = true
	return l
}

func held(q worker.Quota) weir.Limit {
	return weir.Limit{Name: "bench", Algorithm: weir.InFlight, Rate: q.Units}
}

func begin(s worker.Setup, q worker.Quota) (*worker.Instance, error) {
	c, err := find(s.Contender)
	switch {
	case err != nil:
		return nil, err
	case c.remote != nil:
		return c.remote(q, s.Redis)
	case c.at == nowhere:
		return newEcho()
	case c.gubernator:
		return nil, fmt.Errorf("bench: contender %s runs in another program, bench/gubernator", c.name)
	}
	return newWeirNode(c.limit(q), c.at == owned, s.Join)
}

// newWeirNode starts a node. If inRing is true, the node is one of a ring of ten nodes in
// this process, without replicas. Otherwise the node joins the members at the given
// addresses. MaxKeys is twice the number of keys of most benchmarks.
func newWeirNode(limit weir.Limit, inRing bool, join []string) (*worker.Instance, error) {
	var n *weir.Node
	var end func() error
	var err error
	if inRing {
		n, end, err = startRing(2 * worker.Million)
	} else if n, err = weir.Start(context.Background(), weir.Config{Name: "bench", Bind: "127.0.0.1:0", Join: join, MaxKeys: 2 * worker.Million, Logger: quiet()}); err == nil {
		end = n.Close
	}
	if err != nil {
		return nil, err
	}
	l, err := n.Limiter(limit)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	releases := limit.Algorithm == weir.InFlight
	return &worker.Instance{
		Allow: func(key string) worker.Outcome {
			if releases {
				h, err := l.Hold(context.Background(), key, 1)
				h.Release()
				return decidedByWeir(h.Decision(), err)
			}
			d, err := l.Allow(context.Background(), key)
			return decidedByWeir(d, err)
		},
		Close:    end,
		Releases: releases,
		Addr:     addrOf(n),
		Owns:     func(key string) bool { return l.Owner(key).Self },
		Meet: func(nodes []string) error {
			return errors.Join(awaitMembers(n, len(nodes), worker.StartWait), awaitAuthority(l, worker.StartWait))
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
	return o | outcomeOf(d.Allowed, err)
}

func find(name string) (contender, error) {
	all := contenders()
	i := slices.IndexFunc(all, func(c contender) bool { return c.name == name })
	if i < 0 {
		return contender{}, fmt.Errorf("bench: there is no contender %q", name)
	}
	return all[i], nil
}
