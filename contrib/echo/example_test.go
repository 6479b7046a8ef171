package echolimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/weir-go/weir"
	echolimit "github.com/weir-go/weir/contrib/echo"
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
	limit, err := echolimit.ByLimiter(perTenant, echolimit.Options{
		Key: func(c *echo.Context) string { return c.Param("tenant") },
	})
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.GET("/:tenant", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") }, limit)

	for range 3 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/acme", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}
