package main

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/service"
)

func serveHTTP(perKey *weir.Limiter, l net.Listener) (service.Server, error) {
	limit, err := httplimit.ByLimiter(perKey, httplimit.Options{Key: httplimit.HeaderValue("X-Api-Key")})
	if err != nil {
		return service.Server{}, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	return serverOf(limit.Handler(mux), l), nil
}

// serverOf returns a server of net/http, with timeouts for connections.
func serverOf(h http.Handler, l net.Listener) service.Server {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
	return service.Server{Serve: func() error { return s.Serve(l) }, Shutdown: s.Shutdown}
}
