package metrics_test

import (
	"context"
	"fmt"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/metrics"
)

// An exporter reads the node once, and then each family from what was read.
func ExampleOfNode() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close()
	limiter, err := node.Limiter(weir.Limit{Name: "api", Rate: 1, Per: 1e9})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		limiter.Allow(context.Background(), "key")
	}
	s := metrics.ReadNode(node)
	for _, family := range metrics.OfNode() {
		if family.Name != "weir_decisions_total" && family.Name != "weir_keys" {
			continue
		}
		family.Read(&s, func(value float64, labels ...string) {
			if value > 0 {
				fmt.Println(family.Name, labels, value)
			}
		})
	}
	// Output:
	// weir_decisions_total [owner allowed] 1
	// weir_decisions_total [owner denied] 1
	// weir_keys [] 1
}
