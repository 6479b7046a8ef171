// Command modelgateway limits a streaming language model with an API like OpenAI's: the
// number of tokens that an API key spends in a minute, and the number of its open
// streams. With WEIR_BIND and WEIR_JOIN, replicas share both limits. If a client
// disconnects, its stream is released at once, and its estimate stays spent.
//
//	GATEWAY_KEYS='key-1 key-2' MODEL_KEY=... go run ./examples/modelgateway -to https://api.example.com -rules examples/modelgateway/rules.yaml
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/weir-go/weir/service"
)

func main() {
	o, err := service.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	to := model{key: os.Getenv("MODEL_KEY")}
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve /v1/chat/completions")
	flag.StringVar(&o.Rules, "rules", "rules.yaml", "rules file, which is reloaded when it changes")
	flag.Func("to", "the URL of the model's API, without /v1", func(text string) (err error) { to.url, err = url.Parse(text); return err })
	flag.Parse()
	if to.url == nil || to.url.Host == "" {
		log.Fatal("modelgateway: -to is missing: give the URL of the model's API, like https://api.example.com")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, strings.Fields(os.Getenv("GATEWAY_KEYS")), to, o); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen string, keys []string, to model, o service.Options) error {
	s, err := service.Start(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close() // for an error before Serve, which closes s itself
	h, err := gateway(s.Node, s.Book, keys, to)
	if err != nil {
		return err
	}
	return s.Serve(ctx, service.HTTP(&http.Server{
		Addr: listen, Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		WriteTimeout: 30 * time.Minute, // a stream may be long, but must end
		IdleTimeout:  time.Minute,
	}))
}
