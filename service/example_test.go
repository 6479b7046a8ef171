package service_test

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/service"
)

// The node leaves the cluster before the servers shut down, so that they can still answer while its
// counts are transferred.
func Example() {
	s, err := service.Start(context.Background(), service.Options{}) // or those of service.FromEnv
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // in a service: signal.NotifyContext
	stopped := make(chan struct{})
	worker := service.Server{ // or service.HTTP(&http.Server{...})
		Serve: func() error {
			fmt.Println("working")
			stop()
			<-stopped
			return nil
		},
		Shutdown: func(context.Context) error {
			fmt.Println("ready:", s.Node.Ready())
			close(stopped)
			return nil
		},
	}
	fmt.Println(s.Serve(ctx, worker))
	// Output:
	// working
	// ready: false
	// <nil>
}
