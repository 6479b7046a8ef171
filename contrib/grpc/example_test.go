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
	"github.com/weir-go/weir/rules"
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

	// A server would use grpc.NewServer(grpc.ChainUnaryInterceptor(limits.Unary())).
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

// A call spends an estimate, which is replaced by the cost in its response.
func ExampleByLimiter_settle() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	tokens, err := node.Limiter(weir.Limit{Name: "tokens", Algorithm: weir.FixedWindow, Rate: 1000, Per: time.Hour})
	if err != nil {
		panic(err)
	}
	type answer struct{ tokens int64 }
	limits, err := grpclimit.ByLimiter(tokens, grpclimit.Options{
		Key:      func(context.Context, *rules.Request) (string, bool) { return "customer", true },
		Estimate: func(context.Context, any) int64 { return 600 },
		Settle:   func(response any) (int64, bool) { return response.(answer).tokens, true },
	})
	if err != nil {
		panic(err)
	}

	intercept, info := limits.Unary(), &grpc.UnaryServerInfo{FullMethod: "/models.Chat/Complete"}
	_, err = intercept(context.Background(), nil, info, func(ctx context.Context, _ any) (any, error) {
		_, err := intercept(ctx, nil, info, nil)
		fmt.Println("beside it:", status.Code(err))
		return answer{tokens: 250}, nil
	})
	fmt.Println("itself:", status.Code(err))
	// Output:
	// beside it: ResourceExhausted
	// itself: OK
}
