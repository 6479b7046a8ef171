// Command websocket limits WebSockets: how many connections an address opens in a minute,
// how many it has open at once, and how many messages a user sends over all connections.
// With WEIR_BIND and WEIR_JOIN, replicas share the limits of the rules. Each replica
// counts open connections separately (doors.go). A rule with an in_flight limit counts
// them over all replicas.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/service"
)

func main() {
	o, err := service.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve /chat")
	flag.StringVar(&o.Rules, "rules", "rules.yaml", "the rules file")
	most := flag.Int("open", 20, "maximum number of open connections of an address on this replica")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *most, o); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen string, most int, o service.Options) error {
	s, err := service.Start(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close() // for an error before Serve, which closes s itself
	limit, err := httplimit.New(s.Node, s.Book, httplimit.Options{
		User: httplimit.HeaderValue("X-User"), // set by a proxy that has authenticated the user
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/chat", chat(limit, newDoors(most)))
	return s.Serve(ctx, service.HTTP(&http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: 10 * time.Second}))
}
