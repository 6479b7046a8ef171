package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
)

// gatewayEnv, in a process's environment, makes it a gateway. It holds the
// gateway's settings in JSON.
const gatewayEnv = "WEIR_DEMO_GATEWAY"

// settings is what a gateway is told.
type settings struct {
	Label    string   // of its node
	Bind     string   // of its node
	HTTP     string   // where it serves
	Join     []string // other gateways' nodes
	Expect   int      // how many gateways there are
	Replicas int      // of each count
	Limit    int64    // requests of one client ...
	Per      time.Duration
}

// report is what a gateway tells the demo, a line of JSON each on its standard
// output: one when it serves, and then whenever what it sees has changed, and
// from time to time.
type report struct {
	Since   int64  // when it last looked before, in Unix nanoseconds
	At      int64  // when it saw this
	Error   string `json:",omitempty"` // why it does not serve, or did not leave in order
	HTTP    string // where it serves
	Name    string // of its node
	Addr    string // of its node
	Members []seen
	Owns    int // clients, by its ring
	Stream  weir.StreamStats
}

// seen is a member as a gateway sees it.
type seen struct {
	Name  string
	State weir.MemberState
}

// Headers of a gateway's answers.
const (
	clientHeader  = "X-Client"  // of a request: who asks
	gatewayHeader = "X-Gateway" // who answers
	decidedHeader = "X-Decided" // where it was decided: a weir.Source
	ownerHeader   = "X-Owner"   // the node that owns the client's key
	checkedHeader = "X-Checked" // when the check began and ended, in Unix nanoseconds
)

// timeout is the nodes' Config.Timeout, the most that a check waits for others.
const timeout = 20 * time.Millisecond

// readyPath is where a gateway says whether it is ready for traffic.
const readyPath = "/ready"

// lookInterval is how often a gateway looks whether what it sees has changed, and
// tellInterval how often it reports if nothing has.
const (
	lookInterval = 10 * time.Millisecond
	tellInterval = 250 * time.Millisecond
)

// leaveWithin bounds a gateway's leave: handing over, saying goodbye, and
// answering what is under way. For drain it goes on serving after its goodbye:
// whoever balances load sees in that time that it is not ready.
const (
	leaveWithin = 8 * time.Second
	drain       = 200 * time.Millisecond
)

// runGateway is the whole of a gateway's process: an HTTP service behind a
// limiter. It leaves on SIGTERM, ends at once when its standard input does, as it
// does when the demo dies, and returns the exit status.
func runGateway(told string) int {
	signal.Ignore(os.Interrupt) // a terminal sends it to all; the demo ends its gateways
	ctx, end := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	out := json.NewEncoder(os.Stdout)
	if err := serveGateway(ctx, told, out); err != nil {
		out.Encode(report{At: time.Now().UnixNano(), Error: err.Error()})
		return 1
	}
	return 0
}

func serveGateway(ctx context.Context, told string, out *json.Encoder) (err error) {
	var s settings
	if err := json.Unmarshal([]byte(told), &s); err != nil {
		return fmt.Errorf("%s: %w", gatewayEnv, err)
	}
	toldToLeave, restore := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer restore()
	node, err := weir.Start(ctx, weir.Config{
		Name: s.Label, Bind: s.Bind, Join: s.Join, Expect: s.Expect, Replicas: s.Replicas,
		Timeout: timeout,
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Now:     time.Now, // the clock that the audit reads, too
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	perClient, err := node.Limiter(weir.Limit{Name: "per client", Algorithm: weir.SlidingLog, Rate: s.Limit, Per: s.Per})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.HTTP)
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.Handle("/", limited(s.Label, perClient))
	routes.Handle(readyPath, httplimit.Readiness(node))
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	defer server.Close()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var last report
	for since := time.Now().UnixNano(); ; {
		members, now := node.Members(), time.Now().UnixNano()
		if r := (report{Since: since, At: now, HTTP: listener.Addr().String()}); !r.see(members, &last) || now-last.At >= int64(tellInterval) {
			r.Stream = node.Stats().Stream
			r.Owns = owned(perClient)
			if err := out.Encode(r); err != nil {
				return err
			}
			last = r
		}
		since = now
		select {
		case <-ctx.Done():
			return nil
		case <-toldToLeave.Done():
			return goAway(ctx, node, server)
		case err := <-served:
			return err
		case <-tick.C:
		}
	}
}

// see takes in the members, and says whether they are those of the last report.
func (r *report) see(members []weir.Member, last *report) bool {
	for _, m := range members {
		if m.Self {
			r.Name, r.Addr = m.Name, m.Addr
		}
		r.Members = append(r.Members, seen{m.Name, m.State})
	}
	return slices.Equal(r.Members, last.Members)
}

// owned is how many clients' keys this node owns.
func owned(perClient *weir.Limiter) int {
	n := 0
	for client := range clients {
		if perClient.Owner(clientName(client)).Self {
			n++
		}
	}
	return n
}

// goAway is a gateway's orderly end: it hands its counts over while it serves,
// and stops serving when nobody sends it requests any more.
func goAway(demo context.Context, node *weir.Node, server *http.Server) error {
	ctx, cancel := context.WithTimeout(demo, leaveWithin)
	defer cancel()
	err := node.Leave(ctx)
	select {
	case <-time.After(drain):
	case <-ctx.Done():
	}
	err = errors.Join(err, server.Shutdown(ctx))
	if demo.Err() != nil { // it is to end at once
		return nil
	}
	return err
}

// limited serves clients that are within their limit.
func limited(gateway string, perClient *weir.Limiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client := r.Header.Get(clientHeader)
		h := w.Header()
		h.Set(gatewayHeader, gateway)
		if client == "" {
			http.Error(w, "who are you? send a header "+clientHeader, http.StatusBadRequest)
			return
		}
		from := time.Now()
		d, err := perClient.Allow(r.Context(), client)
		to := time.Now()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.Set(decidedHeader, d.Source.String())
		h.Set(ownerHeader, perClient.Owner(client).Name)
		h.Set(checkedHeader, strconv.FormatInt(from.UnixNano(), 10)+" "+strconv.FormatInt(to.UnixNano(), 10))
		if !d.Allowed {
			seconds := int64((d.RetryAfter + time.Second - 1) / time.Second)
			h.Set("Retry-After", strconv.FormatInt(max(seconds, 1), 10))
			http.Error(w, fmt.Sprintf("too many requests: come back in %v", d.RetryAfter.Round(time.Millisecond)), http.StatusTooManyRequests)
			return
		}
		fmt.Fprintf(w, "hello %s: %d of %d left\n", client, d.Remaining, d.Limit)
	})
}
