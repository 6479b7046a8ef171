package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gubernator-io/gubernator/v2"
	"github.com/sirupsen/logrus"

	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/lab"
)

// maxKeys is the number of keys that a node keeps. A node of Weir has the same bound.
const maxKeys = 2_000_000

// startWait bounds how long a daemon may take to listen, and to reach the other nodes.
const startWait = time.Minute

// node is a gubernator daemon in this process. Its callers reach it without a hop, as in
// a service that embeds gubernator. Nodes communicate over gRPC. A node ends with its
// process, because Close of a daemon that had GLOBAL limits may never return.
type node struct {
	daemon *gubernator.Daemon
	addr   string
}

// startNode starts a node with the default configuration except for the size of its
// cache. The node is alone until it meets other nodes.
func startNode() (*node, error) {
	addr, release, err := lab.HoldAddr()
	if err != nil {
		return nil, err
	}
	n := &node{addr: addr}
	log := logrus.New()
	log.SetOutput(io.Discard) // the callers count failed checks instead
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	n.daemon, err = gubernator.SpawnDaemon(ctx, gubernator.DaemonConfig{
		GRPCListenAddress: n.addr, HTTPListenAddress: "127.0.0.1:0", AdvertiseAddress: n.addr, InstanceID: n.addr,
		PeerDiscoveryType: "none", CacheSize: maxKeys, Logger: logrus.NewEntry(log),
	})
	if err != nil {
		release()
		return nil, err
	}
	n.daemon.SetPeers([]gubernator.PeerInfo{{GRPCAddress: n.addr}})
	return n, nil
}

// limitName is the name of all limits of checks that are measured.
const limitName = "bench"

// owns reports whether the node owns a key.
func (n *node) owns(key string) bool {
	peer, err := n.daemon.V1Server.GetPeer(context.Background(), limitName+"_"+key)
	return err == nil && peer.Info().IsOwner
}

// check takes hits from a limit. The response of a forwarded check names the owner.
func (n *node) check(r *gubernator.RateLimitReq) (*gubernator.RateLimitResp, error) {
	answer, err := n.daemon.V1Server.GetRateLimits(context.Background(), &gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{r}})
	if err != nil {
		return nil, err
	}
	if text := answer.Responses[0].Error; text != "" {
		return nil, errors.New(text)
	}
	return answer.Responses[0], nil
}

// meet tells n that its cluster consists of the nodes at addrs, and waits until n reaches the
// owners of a hundred keys.
func (n *node) meet(addrs []string) error {
	peers := make([]gubernator.PeerInfo, len(addrs))
	for i, addr := range addrs {
		peers[i].GRPCAddress = addr
	}
	n.daemon.SetPeers(peers)
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		err := n.reaches(100)
		if err == nil || time.Since(begun) > startWait {
			return err
		}
	}
}

// reaches reads the counts of the given number of keys.
func (n *node) reaches(keys int) error {
	for i := range keys {
		if _, err := n.check(&gubernator.RateLimitReq{Name: "reached", UniqueKey: fmt.Sprint(i), Limit: 1, Duration: 1}); err != nil {
			return err
		}
	}
	return nil
}

// begin creates the instance of a worker.
func begin(_ worker.Setup, q worker.Quota) (*worker.Instance, error) {
	n, err := startNode()
	if err != nil {
		return nil, err
	}
	return &worker.Instance{
		Allow: func(key string) (o worker.Outcome) {
			r, err := n.check(&gubernator.RateLimitReq{
				Name: limitName, UniqueKey: key, Hits: 1,
				Limit: q.Units, Duration: q.Window().Milliseconds(), Algorithm: gubernator.Algorithm_LEAKY_BUCKET,
			})
			if err != nil {
				return worker.Failed
			}
			if r.Status == gubernator.Status_UNDER_LIMIT {
				o |= worker.Admitted
			}
			if r.Metadata["owner"] == "" {
				o |= worker.Here
			}
			return o
		},
		Close: func() error { return nil }, Addr: n.addr, Owns: n.owns, Meet: n.meet,
	}, nil
}
