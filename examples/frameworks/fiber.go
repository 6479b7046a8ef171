package main

import (
	"net"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/weir-go/weir"
	fiberlimit "github.com/weir-go/weir/contrib/fiber"
	"github.com/weir-go/weir/service"
)

func serveFiber(perKey *weir.Limiter, l net.Listener) (service.Server, error) {
	limit, err := fiberlimit.ByLimiter(perKey, fiberlimit.Options{Key: func(c fiber.Ctx) string { return c.Get("X-Api-Key") }})
	if err != nil {
		return service.Server{}, err
	}
	app := fiber.New(fiber.Config{ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute}) // without timeouts, the connection of a client could delay Shutdown
	app.Use(limit)
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello\n") })
	return service.Server{
		Serve:    func() error { return app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) },
		Shutdown: app.ShutdownWithContext,
	}, nil
}
