package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

const ringMembers = 10

// startRing starts a ring of nodes in this process, on an in-memory network, and returns
// one of them. A caller that checks keys of this node pays for the lookup in the ring,
// but not for a network.
func startRing(maxKeys int) (owner *weir.Node, end func() error, err error) {
	network, nodes := weirtest.NewNetwork(1, weirtest.Link{}), []*weir.Node(nil)
	end = func() (err error) {
		for _, n := range nodes {
			err = errors.Join(err, n.Close())
		}
		return err
	}
	for i := range ringMembers {
		members := network.Host(fmt.Sprintf("node-%02d", i)).Cluster(cluster.Config{})
		n, err := weir.Start(context.Background(), weir.Config{Cluster: members, Replicas: -1, MaxKeys: maxKeys, Logger: quiet()})
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		nodes, maxKeys = append(nodes, n), 0 // the other nodes hold no keys
	}
	if err := awaitMembers(nodes[0], ringMembers, worker.StartWait); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return nodes[0], end, nil
}
