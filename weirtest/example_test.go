package weirtest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

// Two nodes share a limit of three an hour.
func Example() {
	ctx := context.Background()
	network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
	var nodes []*weir.Node
	var limiters []*weir.Limiter
	for _, name := range []string{"a", "b"} {
		node, err := weir.Start(ctx, weir.Config{
			Cluster: network.Host(name).Cluster(cluster.Config{}),
			Timeout: 10 * time.Second, // in real time a busy machine may be slow
		})
		if err != nil {
			panic(err)
		}
		defer node.Close()
		limiter, err := node.Limiter(weir.Limit{Name: "logins", Rate: 3, Per: time.Hour})
		if err != nil {
			panic(err)
		}
		nodes, limiters = append(nodes, node), append(limiters, limiter)
	}
	for _, node := range nodes {
		for !complete(node, len(nodes)) {
			time.Sleep(time.Millisecond)
		}
	}

	for i := range 4 {
		d, err := limiters[i%2].Allow(ctx, "ada")
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 2 <nil>
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}

// complete reports whether a node sees this many members, all of them serving.
func complete(node *weir.Node, members int) bool {
	seen := node.Members()
	for _, m := range seen {
		if m.State != weir.Serving {
			return false
		}
	}
	return len(seen) == members
}
