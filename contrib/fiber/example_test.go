package fiberlimit_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/weir-go/weir"
	fiberlimit "github.com/weir-go/weir/contrib/fiber"
)

func ExampleByLimiter() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	perTenant, err := node.Limiter(weir.Limit{Name: "per tenant", Algorithm: weir.FixedWindow, Rate: 2, Per: time.Hour})
	if err != nil {
		panic(err)
	}
	limit, err := fiberlimit.ByLimiter(perTenant, fiberlimit.Options{
		Key: func(c fiber.Ctx) string { return c.Params("tenant") },
	})
	if err != nil {
		panic(err)
	}
	app := fiber.New()
	app.Get("/:tenant", limit, func(c fiber.Ctx) error { return c.SendString("hello") })

	for range 3 {
		answer, err := app.Test(httptest.NewRequest("GET", "/acme", nil), fiber.TestConfig{}) // without a timeout
		if err != nil {
			panic(err)
		}
		fmt.Println(answer.StatusCode, answer.Header.Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}
