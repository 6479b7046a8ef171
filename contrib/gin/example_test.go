package ginlimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir"
	ginlimit "github.com/weir-go/weir/contrib/gin"
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
	limit, err := ginlimit.ByLimiter(perTenant, ginlimit.Options{
		Key: func(c *gin.Context) string { return c.Param("tenant") },
	})
	if err != nil {
		panic(err)
	}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.GET("/:tenant", limit, func(c *gin.Context) { c.String(http.StatusOK, "hello") })

	for range 3 {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest("GET", "/acme", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}
