// Command gateway is a reverse proxy that limits requests by a rules file. With -join,
// replicas of the gateway share every limit.
//
//	go run ./examples/gateway -to http://127.0.0.1:9000 -rules examples/gateway/rules.yaml
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"net/url"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
	"github.com/weir-go/weir/service"
)

// options contains the values of the command line.
type options struct {
	listen, admin string
	token         string // name of the file with the tokens
	secrets       string // name of the file with the secrets
	to            *url.URL
	rules         string
	keys          string
	seed          string // name of the file with the seed
	proxies       []netip.Prefix
	node          weir.Config
}

func main() {
	var o options
	flag.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address to serve")
	flag.StringVar(&o.admin, "admin", "127.0.0.1:8081", "address of /ready, /live and the admin API")
	flag.StringVar(&o.token, "token", "", "file with the tokens of the admin API, one per line; the admin API is off if empty")
	flag.Func("to", "URL of the service behind the gateway", func(text string) (err error) { o.to, err = url.Parse(text); return err })
	flag.StringVar(&o.rules, "rules", "rules.yaml", "rules file, which is reloaded when it changes")
	flag.StringVar(&o.keys, "keys", "", "file of API keys; each line has a key and its tier")
	flag.StringVar(&o.seed, "seed", "", "file with the seed of all replicas, in the output of go run ./cmd/weir secret; the seed in -secrets if empty")
	flag.Func("proxy", "network of proxies in front of the gateway, such as 10.0.0.0/8; may be repeated", func(text string) error {
		network, err := netip.ParsePrefix(text)
		o.proxies = append(o.proxies, network)
		return err
	})
	flag.StringVar(&o.node.Bind, "bind", "", "host:port for connections of other replicas; needs -secrets unless it is a loopback address")
	flag.StringVar(&o.secrets, "secrets", "", "file with the secrets and the seed of all replicas, the output of go run ./cmd/weir secret")
	flag.Func("join", "addresses of other replicas, separated by commas", func(text string) error { o.node.Join = strings.Split(text, ","); return nil })
	flag.StringVar(&o.node.Advertise, "advertise", "", "host:port to which other replicas connect, if it is not -bind")
	flag.IntVar(&o.node.Expect, "expect", 0, "normal number of replicas; fewer replicas spend only their share of each limit")
	flag.Parse()
	if o.to == nil || o.to.Host == "" {
		log.Fatal("gateway: -to is missing: give the URL of the service, like http://127.0.0.1:9000")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options) error {
	callers, err := readCallers(o.keys)
	if err != nil {
		return err
	}
	if err := o.readShared(); err != nil {
		return err
	}
	s, err := service.Start(ctx, service.Options{Node: o.node, Rules: o.rules})
	if err != nil {
		return err
	}
	defer s.Close() // for an error before Serve, which closes s itself
	node, book := s.Node, s.Book
	h, err := gateway(node, book, callers, o)
	if err != nil {
		return err
	}
	operators := http.NewServeMux()
	operators.Handle("/ready", admin.Readiness(node))
	operators.HandleFunc("/live", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	if o.token != "" {
		tokens, err := readTokens(o.token)
		if err != nil {
			return err
		}
		api, err := admin.Handler(node, book, admin.Options{Tokens: tokens})
		if err != nil {
			return err
		}
		operators.Handle("/", api)
	}
	// Connections of clients need timeouts (docs/http.md). Uploads and downloads through
	// the proxy may take longer than requests of operators.
	server := func(addr string, h http.Handler, read, write time.Duration) service.Server {
		return service.HTTP(&http.Server{
			Addr: addr, Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: read, WriteTimeout: write,
			IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		})
	}
	return s.Serve(ctx, server(o.listen, h, 5*time.Minute, 10*time.Minute), server(o.admin, operators, 10*time.Second, 30*time.Second))
}
