package main

import (
	"fmt"
	"net"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/service"
)

func serveChi(perKey *weir.Limiter, l net.Listener) (service.Server, error) {
	limit, err := httplimit.ByLimiter(perKey, httplimit.Options{Key: httplimit.HeaderValue("X-Api-Key")})
	if err != nil {
		return service.Server{}, err
	}
	router := chi.NewRouter()
	router.Use(limit.Handler)
	router.Get("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	return serverOf(router, l), nil
}
