package main

import (
	"net"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/weir-go/weir"
	echolimit "github.com/weir-go/weir/contrib/echo"
	"github.com/weir-go/weir/service"
)

func serveEcho(perKey *weir.Limiter, l net.Listener) (service.Server, error) {
	limit, err := echolimit.ByLimiter(perKey, echolimit.Options{Key: func(c *echo.Context) string { return c.Request().Header.Get("X-Api-Key") }})
	if err != nil {
		return service.Server{}, err
	}
	e := echo.New()
	e.Use(limit)
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello\n") })
	return serverOf(e, l), nil
}
