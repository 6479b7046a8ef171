package outbound

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
)

// If the environment has replicaVariable, this program is a replica. If it has spinVariable, this program keeps a
// processor busy.
const (
	replicaVariable = "WEIR_OUTBOUND_REPLICA"
	spinVariable    = "WEIR_OUTBOUND_SPIN"
)

func TestMain(m *testing.M) {
	if os.Getenv(spinVariable) != "" {
		go func() {
			_, _ = io.ReadAll(os.Stdin)
			os.Exit(0)
		}()
		for i := 0; ; i++ { // keeps a processor busy
		}
	}
	if text := os.Getenv(replicaVariable); text != "" {
		if err := runReplica(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// order configures a replica in another process.
type order struct {
	Bind    string
	Join    []string
	Server  string
	Clients int
}

// report is a line of the output of a replica.
type report struct {
	Owner bool          // the replica owns the key
	Ready bool          // the replica begins to send
	Told  time.Time     // time at which the replica received a Retry-After
	Trip  time.Duration // duration of the request with this response
}

// runReplica starts a node, and sends requests until the standard input ends.
func runReplica(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	node, err := weir.Start(ctx, weir.Config{Bind: o.Bind, Join: o.Join, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		return err
	}
	for !node.Ready() || len(node.Members()) < len(o.Join) {
		time.Sleep(10 * time.Millisecond)
	}
	var mu sync.Mutex
	tell := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(os.Stdout).Encode(r)
	}
	base := &http.Transport{MaxIdleConnsPerHost: o.Clients}
	timed := roundTripper(func(r *http.Request) (*http.Response, error) {
		r, begun := r.Clone(r.Context()), time.Now()
		r.Header.Set("X-Start", strconv.FormatInt(begun.UnixNano(), 10))
		response, err := base.RoundTrip(r)
		if err == nil && response.Header.Get("Retry-After") != "" {
			tell(report{Told: time.Now(), Trip: time.Since(begun)})
		}
		return response, err
	})
	g, err := New(node, Options{Limits: []Limit{{Host: "*", Limit: paced}}, Logger: quiet})
	if err != nil {
		return err
	}
	r, err := http.NewRequest(http.MethodGet, o.Server, nil)
	if err != nil {
		return err
	}
	tell(report{Ready: true, Owner: g.limits[0].limiter.Owner(keyOf(g.limits[0].limiter, hostOf(r.URL), "secret")).Self})
	var clients sync.WaitGroup
	for range o.Clients {
		clients.Go(func() {
			c := &http.Client{Transport: g.Transport(timed)}
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, o.Server, nil)
				r.Header.Set("Authorization", "secret")
				response, err := c.Do(r)
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		})
	}
	_, _ = io.ReadAll(os.Stdin)
	cancel()
	clients.Wait()
	return node.Close()
}

// processes are replicas in processes of their own, and the server that they call.
type processes struct {
	bucketServer
	children []*lab.Child

	mu     sync.Mutex
	ready  int
	owner  int
	told   report // the first report of a Retry-After
	starts []time.Time
}

func startProcesses(t *testing.T, replicas int) *processes {
	p := &processes{owner: -1}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, retryAfter := p.admit(time.Now())
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		begun, _ := strconv.ParseInt(r.Header.Get("X-Start"), 10, 64)
		p.mu.Lock()
		p.starts = append(p.starts, time.Unix(0, begun))
		p.mu.Unlock()
	}))
	t.Cleanup(server.Close)
	var addrs []string
	for range replicas {
		addrs = append(addrs, lab.FreeAddr(t))
	}
	for i, addr := range addrs {
		text, err := json.Marshal(order{addr, addrs, server.URL, 20})
		require.NoError(t, err)
		p.children = append(p.children, p.startChild(t, replicaVariable+"="+string(text), func(line []byte) {
			var r report
			if json.Unmarshal(line, &r) != nil {
				return
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if r.Ready {
				p.ready++
			}
			if r.Owner {
				p.owner = i
			}
			if !r.Told.IsZero() && p.told.Told.IsZero() {
				p.told = r
			}
		}))
	}
	lab.Eventually(t, "all replicas send", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.ready == replicas && p.owner >= 0
	})
	return p
}

func (p *processes) startChild(t *testing.T, environment string, line func([]byte)) *lab.Child {
	cmd, err := lab.Self(environment)
	require.NoError(t, err)
	c, err := lab.StartCommand(cmd, line)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := c.Stop(10 * time.Second); t.Failed() {
			t.Log(err, c.Outcome())
		}
	})
	return c
}

// measure waits for the given time, and returns the numbers of requests that the server admitted and refused in
// that time.
func (p *processes) measure(lasts time.Duration) (admitted, refused int) {
	time.Sleep(2 * time.Second) // until the clients send at a steady rate
	admittedBefore, refusedBefore := p.counts()
	time.Sleep(lasts)
	admitted, refused = p.counts()
	return admitted - admittedBefore, refused - refusedBefore
}

// mostDelay is the longest scheduling delay of the server for which its burst of 100 ms suffices.
const mostDelay = 50 * time.Millisecond

func TestProcessesUseLimitOfRealServer(t *testing.T) {
	testenv.SkipUnlessFull(t, "TestReplicasUseLimitWithoutRefusals and TestRetryAfterStopsAllReplicas")
	const lasts = 25 * time.Second
	for _, c := range []struct {
		what  string
		spins int
		kills bool
		use   float64
	}{{what: "idle machine", use: 0.97}, {what: "busy machine", spins: 6, use: 0.95}, {what: "killed owner", kills: true, use: 0.95}} {
		t.Run(c.what, func(t *testing.T) {
			p := startProcesses(t, 5)
			for range c.spins {
				p.startChild(t, spinVariable+"=1", func([]byte) {})
			}
			if c.kills {
				time.AfterFunc(lasts/3, func() { _ = p.children[p.owner].Kill() })
			}
			delay := lab.MeasureDelay()
			admitted, refused := p.measure(lasts)
			delay.Stop()
			use := float64(admitted) / (serverRate * lasts.Seconds())
			t.Logf("%d admitted, %.2f %% of the limit, %d refused; the server was woken up to %v late", admitted, 100*use, refused, delay.Worst())
			part, least := 0.001, c.use
			if delay.Worst() > mostDelay {
				t.Logf("the machine was too busy for the figures of the guarantee")
				part, least = 0.02, 0.8
			}
			assert.Less(t, float64(refused), part*float64(admitted))
			assert.GreaterOrEqual(t, use, least)
			p.requirePause(t)
		})
	}
}

// requirePause refuses requests for 5 s, and requires that no replica starts a request once it must know of the
// pause.
func (p *processes) requirePause(t *testing.T) {
	_, before := p.counts()
	delay := lab.MeasureDelay()
	p.refuse(5 * time.Second)
	time.Sleep(8 * time.Second)
	_, after := p.counts()
	delay.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.False(t, p.told.Told.IsZero(), "no replica was refused")
	// When a replica learns of the pause, it may already have the turns of the next 10 ms. It may run as late as
	// this process does.
	stopped := p.told.Told.Add(p.told.Trip + 12*time.Millisecond + delay.Worst())
	var within []time.Duration
	first := time.Hour
	for _, at := range p.starts {
		if since := at.Sub(p.told.Told); at.After(stopped) && since < 5*time.Second {
			within = append(within, since)
		} else if at.After(stopped) {
			first = min(first, since)
		}
	}
	t.Logf("a round trip took %v; %d requests were refused; starts within 5 s: %v; the first after %v", p.told.Trip, after-before, within, first)
	require.Empty(t, within)
	require.Less(t, first, 6*time.Second)
}
