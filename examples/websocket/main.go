// Command websocket limits WebSockets: how many connections an address opens in a
// minute, how many it has open at once, and how many messages a user sends over all
// of its connections. With -bind and -join, replicas share what is a rate; what is
// open, each counts for itself.
package main

import (
	"context"
	"encoding/hex"
	"flag"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

func main() {
	var (
		listen = flag.String("listen", "127.0.0.1:8080", "where to serve /chat")
		file   = flag.String("rules", "rules.yaml", "the rules file")
		most   = flag.Int("open", 20, "connections that an address may have open at once, on this replica")
		bind   = flag.String("bind", "", "host:port for the other replicas; with -secret, unless it is a loopback's")
		secret = flag.String("secret", "", "a file with the secret of all replicas, in hex")
		join   = flag.String("join", "", "other replicas, separated by commas")
	)
	flag.Parse()
	cfg := weir.Config{Bind: *bind}
	if *join != "" {
		cfg.Join = strings.Split(*join, ",")
	}
	if *secret != "" {
		text, err := os.ReadFile(*secret)
		if err != nil {
			log.Fatal(err)
		}
		key, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			log.Fatalf("websocket: what %s holds is not in hex", *secret)
		}
		cfg.Secrets = [][]byte{key}
	}
	if err := run(*listen, *file, *most, cfg); err != nil {
		log.Fatal(err)
	}
}

func run(listen, file string, most int, cfg weir.Config) error {
	ctx := context.Background()
	node, err := weir.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer node.Close()
	book, err := rules.Open(ctx, node, file, rules.BookOptions{})
	if err != nil {
		return err
	}
	defer book.Close()
	limit, err := httplimit.New(node, book, httplimit.Options{
		User: httplimit.HeaderValue("X-User"), // as a proxy sets it that knows who asks
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/chat", chat(limit, newDoors(most)))
	server := http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}
