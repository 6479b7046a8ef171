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
	"time"

	"github.com/weir-go/weir"
)

// gatewayEnv, in a process's environment, makes it a gateway. It holds the
// gateway's settings in JSON.
const gatewayEnv = "WEIR_DEMO_GATEWAY"

// settings is what a gateway is told.
type settings struct {
	Label  string   // of its node
	Bind   string   // of its node
	HTTP   string   // where it serves
	Join   []string // other gateways' nodes
	Expect int      // how many gateways there are
	Limit  int64    // requests of one client ...
	Per    time.Duration
}

// report is what a gateway tells the demo, a line of JSON each on its standard
// output: one when it serves, and then whenever what it sees has changed.
type report struct {
	Since   int64  // when it last saw otherwise, in Unix nanoseconds
	At      int64  // when it saw this
	Error   string `json:",omitempty"` // why it does not serve
	HTTP    string // where it does
	Name    string // of its node
	Addr    string // of its node
	Members []seen
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

// lookInterval is how often a gateway looks whether what it sees has changed.
const lookInterval = 10 * time.Millisecond

// runGateway is the whole of a gateway's process: an HTTP service behind a
// limiter. It ends when its standard input does, as it does when the demo dies,
// and returns the exit status.
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
	node, err := weir.Start(ctx, weir.Config{
		Name: s.Label, Bind: s.Bind, Join: s.Join, Expect: s.Expect,
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
	server := &http.Server{Handler: limited(s.Label, perClient), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	looked := time.Now().UnixNano()
	tell := func(members []seen, since int64) error {
		r := report{Since: since, At: looked, HTTP: listener.Addr().String(), Members: members}
		for _, m := range node.Members() {
			if m.Self {
				r.Name, r.Addr = m.Name, m.Addr
			}
		}
		return out.Encode(r)
	}
	last := look(node)
	if err := tell(last, looked); err != nil {
		return err
	}
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			server.Close()
			<-served
			return nil
		case err := <-served:
			return err
		case <-tick.C:
			since := looked
			members := look(node)
			looked = time.Now().UnixNano()
			if !slices.Equal(members, last) {
				last = members
				if err := tell(last, since); err != nil {
					return err
				}
			}
		}
	}
}

func look(node *weir.Node) []seen {
	var members []seen
	for _, m := range node.Members() {
		members = append(members, seen{m.Name, m.State})
	}
	return members
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
