//go:build unix

package processtests

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// spinVariable is the environment variable that makes the test binary use a core until
// the parent process ends.
const spinVariable = "WEIR_TEST_SPIN"

func spin() {
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	for i := 0; ; i++ { // keeps a processor busy
	}
}

// gateway is an HTTP handler that checks the limit for each request. The path is the key.
type gateway struct {
	limiter *weir.Limiter
	mu      sync.Mutex
	strays  []stray
}

// stray is a check that failed, or that no member with authority decided.
type stray struct {
	Key     string
	Source  string
	Allowed bool
	Took    time.Duration
	Hops    []weir.HopEvent
	Errors  []string // errors of Hops
}

// pathStrays is the path at which a gateway reports its strays.
const pathStrays = "/strays"

// serveGateway serves HTTP requests until the process ends. It returns the address of the listener.
func serveGateway(n *node, limit weir.Limit) (addr string, err error) {
	l, err := n.Limiter(limit)
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = http.Serve(listener, &gateway{limiter: l}) }()
	return listener.Addr().String(), nil
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == pathStrays {
		g.mu.Lock()
		defer g.mu.Unlock()
		_ = json.NewEncoder(w).Encode(g.strays)
		return
	}
	var s stray
	begun := time.Now()
	d, err := g.limiter.Allow(context.WithValue(r.Context(), hopsKey{}, &s), r.URL.Path)
	if err != nil || (decisions{d.Source: 1}).Strayed() {
		s.Key, s.Source, s.Allowed, s.Took = r.URL.Path, d.Source.String(), d.Allowed, time.Since(begun)
		g.mu.Lock()
		g.strays = append(g.strays, s)
		g.mu.Unlock()
	}
	if !d.Allowed {
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// hopsKey is the context key of the stray to which addHop adds a hop.
type hopsKey struct{}

func addHop(ctx context.Context, e weir.HopEvent) {
	if s, ok := ctx.Value(hopsKey{}).(*stray); ok {
		s.Errors = append(s.Errors, fmt.Sprint(e.Err))
		e.Err = nil // package json cannot decode an error
		s.Hops = append(s.Hops, e)
	}
}
