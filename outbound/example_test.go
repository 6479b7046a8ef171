package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/outbound"
)

// service stands for the network: a service that is too busy for 30 seconds.
type service struct{}

func (service) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"30"}}, Body: http.NoBody}, nil
}

// A response with Retry-After stops the requests of all replicas to its host.
func ExampleGate_Transport() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	gate, err := outbound.New(node, outbound.Options{Limits: []outbound.Limit{{
		Host:  "api.example.com",
		Limit: weir.Limit{Name: "example", Algorithm: weir.LeakyBucket, Rate: 99, Per: time.Second, Burst: 500},
	}}})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: gate.Transport(service{}), Timeout: 5 * time.Second}

	response, err := client.Get("https://api.example.com/orders")
	if err != nil {
		panic(err)
	}
	response.Body.Close()
	fmt.Println(response.StatusCode)

	_, err = client.Get("https://api.example.com/orders")
	var delayed *outbound.ErrDelayed
	if errors.As(err, &delayed) {
		fmt.Println(delayed.Host, delayed.Limit, delayed.Wait > 29*time.Second, delayed.Err)
	}
	// Output:
	// 429
	// api.example.com example true context deadline exceeded
}
