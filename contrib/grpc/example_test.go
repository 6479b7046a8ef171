package grpclimit_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	grpclimit "github.com/weir-go/weir/contrib/grpc"
)

func ExampleByLimiter() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	limiter, err := node.Limiter(weir.Limit{Name: "calls", Algorithm: weir.FixedWindow, Rate: 2, Per: time.Hour})
	if err != nil {
		panic(err)
	}
	limits, err := grpclimit.ByLimiter(limiter, grpclimit.Options{})
	if err != nil {
		panic(err)
	}

	// A server would have it by grpc.NewServer(grpc.ChainUnaryInterceptor(limits.Unary())).
	intercept := limits.Unary()
	for range 3 {
		_, err := intercept(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Create"},
			func(context.Context, any) (any, error) { return nil, nil })
		fmt.Print(status.Code(err))
		for _, d := range status.Convert(err).Details() {
			if retry, ok := d.(*errdetails.RetryInfo); ok {
				fmt.Print(", retry within the hour: ", retry.RetryDelay.AsDuration() <= time.Hour)
			}
		}
		fmt.Println()
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted, retry within the hour: true
}
