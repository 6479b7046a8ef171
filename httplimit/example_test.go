package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// A gateway with rules that do not change. Use rules.Open for the rules of a file that may
// change.
func Example() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	set, err := rules.Parse("rules.yaml", []byte(`
rules:
  - name: api
    match: {path: /v1/}
    key: user
    limits:
      - {name: burst, algorithm: token_bucket, rate: 10, per: 1s}
      - {name: hourly, algorithm: fixed_window, rate: 2, per: 1h}
`))
	if err != nil {
		panic(err)
	}
	book, err := rules.Static(node, set)
	if err != nil {
		panic(err)
	}
	defer book.Close()
	limit, err := httplimit.New(node, book, httplimit.Options{
		Client: httplimit.RightmostUntrusted("X-Forwarded-For", netip.MustParsePrefix("10.0.0.0/8")),
		User:   httplimit.HeaderValue("X-User"), // set by a proxy that identifies the user
	})
	if err != nil {
		panic(err)
	}
	handler := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
	}))

	for range 3 {
		r := httptest.NewRequest("GET", "/v1/items", nil)
		r.Header.Set("X-User", "ada")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 200 1 "api/burst";q=10;w=1, "api/hourly";q=2;w=3600
	// 200 0 "api/burst";q=10;w=1, "api/hourly";q=2;w=3600
	// 429 0 "api/burst";q=10;w=1, "api/hourly";q=2;w=3600
}

// A limit for the address of each client, without a file of rules.
func ExampleByLimiter() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	perAddress, err := node.Limiter(weir.Limit{Name: "per address", Algorithm: weir.FixedWindow, Rate: 2, Per: time.Hour})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.ByLimiter(perAddress, httplimit.Options{KeepOutcome: true})
	if err != nil {
		panic(err)
	}
	handler := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("left:", httplimit.OutcomeOf(r.Context()).Verdicts[0].Decision.Remaining)
	}))

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// left: 1
	// 200 "per address";q=2;w=3600
	// left: 0
	// 200 "per address";q=2;w=3600
	// 429 "per address";q=2;w=3600
}

// The cost of a request, in tokens of a model, is known only after the response.
func ExampleByLimiter_settle() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	tokens, _ := node.Limiter(weir.Limit{Name: "tokens", Algorithm: weir.FixedWindow, Rate: 100, Per: time.Hour})
	limit, _ := httplimit.ByLimiter(tokens, httplimit.Options{
		Reserve: func(*http.Request, *rules.Rule) (int64, bool) { return 40, true },
		Settle: func(_ *http.Request, _ *rules.Rule, e *httplimit.Ended) (int64, bool) {
			n, err := strconv.ParseInt(e.Header.Get("X-Tokens"), 10, 64)
			return n, err == nil // without a cost, the estimate stays spent
		},
	})
	handler := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Tokens", "7") }
	for range 2 {
		w := httptest.NewRecorder()
		limit.Handler(http.HandlerFunc(handler)).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 60
	// 53
}
