// Command login is a login page that limits failures: 5 in 15 minutes for each address
// and each account. Successes are free. With WEIR_BIND, WEIR_JOIN and WEIR_SHARED, replicas
// share both limits.
//
//	LOGIN_PASSWORD=... go run ./examples/login -rules examples/login/rules.yaml
package main

import (
	"context"
	"crypto/subtle"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weir-go/weir/service"
)

func main() {
	o, err := service.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve /login")
	flag.StringVar(&o.Rules, "rules", "rules.yaml", "rules file, which is reloaded when it changes")
	flag.Parse()
	known := os.Getenv("LOGIN_PASSWORD")
	if known == "" {
		log.Fatal("login: LOGIN_PASSWORD is empty: set the password of the account demo")
	}
	// A real service compares a stored hash, such as that of Argon2.
	check := func(account, password string) bool {
		return account == "demo" && subtle.ConstantTimeCompare([]byte(password), []byte(known)) == 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, check, o); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen string, check func(account, password string) bool, o service.Options) error {
	s, err := service.Start(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close() // for an error before Serve, which closes s itself
	h, err := login(s.Node, s.Book, check)
	if err != nil {
		return err
	}
	return s.Serve(ctx, service.HTTP(&http.Server{
		Addr: listen, Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
	}))
}
