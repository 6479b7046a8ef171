package envoylimit_test

import (
	"context"
	"fmt"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir"
	envoylimit "github.com/weir-go/weir/contrib/envoy"
)

func ExampleNew() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	cfg, err := envoylimit.Parse("messaging.yaml", []byte(`
domain: messaging
descriptors:
  - key: to_number
    rate_limit:
      unit: day
      requests_per_unit: 2
`))
	if err != nil {
		panic(err)
	}
	service, err := envoylimit.New(node, cfg, envoylimit.Options{})
	if err != nil {
		panic(err)
	}

	// A server would call service.Register(server); Envoy sends such requests.
	request := &rls.RateLimitRequest{Domain: "messaging", Descriptors: []*ratelimit.RateLimitDescriptor{
		{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "to_number", Value: "2061234567"}}},
	}}
	for range 3 {
		response, err := service.ShouldRateLimit(context.Background(), request)
		if err != nil {
			panic(err)
		}
		fmt.Println(response.OverallCode, response.Statuses[0].LimitRemaining)
	}
	// Output:
	// OK 1
	// OK 0
	// OVER_LIMIT 0
}
