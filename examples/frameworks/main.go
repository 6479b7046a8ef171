// Command frameworks is a service with a limit, in a framework that is selected by a
// flag. Three replicas share the limit.
//
//	cd examples/frameworks
//	go run . -framework gin -listen 127.0.0.1:8080 -bind 127.0.0.1:7946 &
//	go run . -framework gin -listen 127.0.0.1:8081 -bind 127.0.0.1:7947 -join 127.0.0.1:7946 &
//	go run . -framework gin -listen 127.0.0.1:8082 -bind 127.0.0.1:7948 -join 127.0.0.1:7946 &
//	curl -i -H 'X-Api-Key: ada' http://127.0.0.1:8080/
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"maps"
	"net"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/service"
)

// frameworks contains the function that makes the server of each framework. Each is in its
// own file.
var frameworks = map[string]func(*weir.Limiter, net.Listener) (service.Server, error){
	"net/http": serveHTTP, "chi": serveChi, "gin": serveGin, "echo": serveEcho, "fiber": serveFiber, "grpc": serveGRPC, "connect": serveConnect,
}

// limit is shared by all replicas.
var limit = weir.Limit{Name: "per key", Rate: 100, Per: time.Minute}

func main() {
	o, err := service.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	framework := flag.String("framework", "net/http", "one of "+strings.Join(slices.Sorted(maps.Keys(frameworks)), ", "))
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve")
	bind := flag.String("bind", "", "host:port for connections of other replicas; WEIR_BIND if empty")
	join := flag.String("join", "", "address of another replica; WEIR_JOIN if empty")
	flag.Parse()
	o.Node.Bind = cmp.Or(*bind, o.Node.Bind)
	if *join != "" {
		o.Node.Join = []string{*join}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, *framework, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o service.Options, framework, listen string) error {
	serve, known := frameworks[framework]
	if !known {
		return fmt.Errorf("frameworks: -framework is %q: use one of %v", framework, slices.Sorted(maps.Keys(frameworks)))
	}
	s, err := service.Start(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close() // for an error before Serve, which closes s itself
	limiter, err := s.Node.Limiter(limit)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server, err := serve(limiter, listener)
	if err != nil {
		return err
	}
	return s.Serve(ctx, server)
}
