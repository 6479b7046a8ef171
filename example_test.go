package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// A handler that checks a limit once for each request. With the zero Config the node has no
// network. With Bind and Join, the same code shares its limits with other replicas of the
// service.
func Example() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	perUser, err := node.Limiter(weir.Limit{Name: "per user", Rate: 2, Per: time.Hour, Algorithm: weir.FixedWindow})
	if err != nil {
		panic(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := perUser.Allow(r.Context(), r.Header.Get("X-User")) // with an error the decision is a denial
		if !d.Allowed {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.RetryAfter.Seconds()))))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		fmt.Fprintf(w, "hello, %d left\n", d.Remaining)
	})

	for range 3 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User", "ada")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 hello, 1 left
	// 200 hello, 0 left
	// 429 too many requests
}

// If a limit denies, the other limits are not charged.
func ExampleNode_AllowAll() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	burst, _ := node.Limiter(weir.Limit{Name: "burst", Rate: 60, Per: time.Hour, Algorithm: weir.TokenBucket, Burst: 1})
	perDay, _ := node.Limiter(weir.Limit{Name: "per day", Rate: 1000, Per: 24 * time.Hour})
	ctx := context.Background()
	for range 2 {
		ds, err := node.AllowAll(ctx, weir.Ask{Limiter: burst, Key: "ada"}, weir.Ask{Limiter: perDay, Key: "ada"})
		fmt.Println(ds.Allowed(), ds.Strictest().Name, err)
	}
	day, _ := perDay.Peek(ctx, "ada")
	fmt.Println(day.Remaining)
	// Output:
	// true burst <nil>
	// false burst <nil>
	// 999
}

// The cost of some work is known only afterwards.
func ExampleLimiter_Debit() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	tokens, _ := node.Limiter(weir.Limit{Name: "LLM tokens", Rate: 10_000, Per: time.Hour, Algorithm: weir.FixedWindow})
	ctx := context.Background()
	for range 3 {
		ask, _ := tokens.Peek(ctx, "ada") // is anything left?
		if !ask.Allowed {
			fmt.Println("come back later")
			continue
		}
		d, _ := tokens.Debit(ctx, "ada", 6_000) // the actual cost
		fmt.Println(d.Remaining, d.Allowed)
	}
	// Output:
	// 4000 true
	// 0 false
	// come back later
}

// A quota for each calendar month in the time zone of a customer.
func ExampleLimit_calendar() {
	var later atomic.Int64                                            // seconds
	march := time.Date(2026, time.March, 31, 21, 59, 59, 0, time.UTC) // the last second of March in Berlin
	node, err := weir.Start(context.Background(), weir.Config{Now: func() time.Time {
		return march.Add(time.Duration(later.Load()) * time.Second)
	}})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	monthly, err := node.Limiter(weir.Limit{Name: "monthly", Rate: 2, Algorithm: weir.FixedWindow, Calendar: weir.Month, Zone: "Europe/Berlin"})
	if err != nil {
		panic(err)
	}
	for range 3 {
		d, _ := monthly.Allow(context.Background(), "ada")
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter)
	}
	later.Add(1)
	d, _ := monthly.Allow(context.Background(), "ada")
	fmt.Println(d.Allowed, d.Remaining, d.ResetAfter == 30*24*time.Hour)
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1s
	// true 1 true
}

// A limit for two regions. Each region has a part at the beginning. The region that receives
// the requests is granted more units by the other region, a round trip later.
func ExampleLimit_global() {
	ctx := context.Background()
	regions, err := weirtest.NewCluster(ctx, weirtest.Options{
		Nodes:   []string{"berlin", "boston"},
		Regions: map[string]string{"berlin": "eu", "boston": "us"},
		WAN:     weirtest.Link{Latency: 10 * time.Millisecond},
		Config:  weir.Config{Timeout: 10 * time.Second}, // this cluster runs in real time, and a busy machine may be slow
	})
	if err != nil {
		panic(err)
	}
	defer regions.Close()
	logins := weir.Limit{Name: "logins", Algorithm: weir.SlidingLog, Rate: 5, Per: time.Hour, Scope: weir.Global}
	inBerlin, _ := regions.Node("berlin").Limiter(logins)
	inBoston, _ := regions.Node("boston").Limiter(logins)

	for range 5 {
		d, _ := inBoston.Allow(ctx, "ada")
		for !d.Allowed { // until the other region grants more units
			time.Sleep(d.RetryAfter)
			d, _ = inBoston.Allow(ctx, "ada")
		}
		fmt.Println(d.Allowed, d.Limit)
	}
	d, _ := inBerlin.Allow(ctx, "ada")
	fmt.Println(d.Allowed, d.Limit)
	// Output:
	// true 5
	// true 5
	// true 5
	// true 5
	// true 5
	// false 5
}

// A value that a node publishes reaches all nodes.
func ExampleNode_Publish() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	node.Publish("override/ada", 0, []byte("5000 an hour"))
	node.Publish("override/bob", 0, []byte("50 an hour"))
	node.Publish("override/ada", 0, []byte("500 an hour")) // the last writer wins
	node.Publish("override/bob", 0, nil)                   // deletes the value
	values, _ := node.Published("override/")
	for _, v := range values {
		fmt.Printf("%s: %s\n", v.Name, v.Value)
	}
	// Output:
	// override/ada: 500 an hour
}

// Workers share the rate of a slow backend, in order of arrival.
func ExampleLimiter_Wait() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	backend, _ := node.Limiter(weir.Limit{Name: "backend", Algorithm: weir.LeakyBucket, Rate: 100, Per: time.Second, Burst: 10})
	for range 3 {
		fmt.Println(backend.Wait(context.Background(), "db-1", 1)) // 10 ms apart
	}
	reports, _ := node.Limiter(weir.Limit{Name: "reports", Algorithm: weir.LeakyBucket, Rate: 1, Per: time.Hour, Burst: 10})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		fmt.Println(reports.Wait(ctx, "db-1", 1)) // the second turn would be after the deadline: no wait
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// <nil>
	// context deadline exceeded
}

// A request that fails returns its unit.
func ExampleLimiter_Refund() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	uploads, _ := node.Limiter(weir.Limit{Name: "uploads", Algorithm: weir.FixedWindow, Rate: 10, Per: time.Hour})
	ctx := context.Background()
	d, _ := uploads.Allow(ctx, "ada")
	fmt.Println(d.Remaining)
	if err := uploads.Refund(ctx, "ada", 1); err != nil {
		panic(err)
	}
	d, _ = uploads.Peek(ctx, "ada")
	fmt.Println(d.Remaining)
	// Output:
	// 9
	// 10
}

// A server that stops first transfers its counts to the other nodes, so that a deploy does not
// reset them.
func ExampleNode_Leave() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler()}
	stop := func() error { // on SIGTERM, see signal.NotifyContext
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return errors.Join(
			node.Leave(ctx),      // from now on, the node forwards all checks
			server.Shutdown(ctx), // waits for the running requests
			node.Close(),
		)
	}
	fmt.Println(stop())
	// Output:
	// <nil>
}

// Another service answers 429 with a Retry-After of 5 seconds, so no instance calls it for as long.
func ExampleLimiter_Pause() {
	ctx := context.Background()
	node, err := weir.Start(ctx, weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	calls, err := node.Limiter(weir.Limit{Name: "calls", Rate: 100, Per: time.Second, Pauses: true})
	if err != nil {
		panic(err)
	}

	if err := calls.Pause(ctx, "api.example.com", 5*time.Second); err != nil {
		panic(err)
	}
	d, err := calls.Allow(ctx, "api.example.com")
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Allowed, d.Paused, d.RetryAfter.Round(time.Second))
	// Output:
	// false true 5s
}
