package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/page"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/service"
	"github.com/weir-go/weir/snapshot"
)

// gatewayEnv, in a process's environment, makes it a gateway. It holds the
// gateway's settings in JSON.
const gatewayEnv = "WEIR_DEMO_GATEWAY"

// settings is what a gateway is told.
type settings struct {
	site
	Label    string   // of its node
	Token    string   // of its admin API
	Rules    string   // the file
	Join     []string // other gateways' nodes
	Expect   int      // how many gateways there are
	Replicas int      // of each count
	Region   string
	Regions  map[string][]string // where nodes of each other region are reached
	Timeout  time.Duration       // of its node
	Shown    bool                // its reports have what a page shows
	endurance

	// Links, if not nil, is what is between it and others, by their addresses. It can change
	// then.
	Links map[string]link
}

// endurance is what a gateway of a soak has besides. The zero value is that of a demo.
type endurance struct {
	Secrets   [][]byte
	Snapshots string        // the directory; none if empty
	Skew      time.Duration // of the node's clock
	Forget    time.Duration
	MaxKeys   int
}

// order is what the demo tells a gateway while it runs, a line of JSON on its
// standard input.
type order struct {
	Links map[string]link `json:",omitempty"` // what is between it and others from now on; nothing changes if nil
	Break bool            `json:",omitempty"` // end all connections of its node
	Take  bool            `json:",omitempty"` // take the figures
}

// report is what a gateway tells the demo, a line of JSON each on its standard
// output: one when it serves, and then whenever what it sees has changed, and
// from time to time.
type report struct {
	At      int64  // when it saw this
	Error   string `json:",omitempty"` // why it does not serve, or did not leave in order
	Name    string // of its node
	Members []seen
	Owns    int // clients, by its ring
	Stream  weir.StreamStats
	Regions map[string]weir.RegionStats `json:",omitempty"`

	Rules uint64 // the version that it decides by
	Saved int64  // when its last snapshot began that is kept, in Unix nanoseconds

	Cut     int      // connections that it was told to end, in all
	Figures *figures `json:",omitempty"` // once after each order to take them

	Still []lab.Span     `json:",omitempty"` // when the process stood still since the last report
	Page  *page.Snapshot `json:",omitempty"` // if it is shown
}

// hears reports whether the gateway heard a member.
func (r *report) hears(name string) bool {
	return slices.ContainsFunc(r.Members, func(m seen) bool {
		return m.Name == name && (m.State == weir.Serving || m.State == weir.Joining)
	})
}

// seen is a member as a gateway sees it.
type seen struct {
	Name  string
	State weir.MemberState
}

// Headers of a gateway's answers.
const (
	clientHeader  = "X-Client"  // of a request: the client
	userHeader    = "X-User"    // the same, for a person. A gateway in earnest would look at a session
	tierHeader    = "X-Tier"    // what the user pays for
	apiKeyHeader  = "X-Api-Key" // for rules that want one
	gatewayHeader = "X-Gateway" // the gateway that answers
	decidedHeader = "X-Decided" // decided, in JSON
)

// decided is what the demo wants to know of a check.
type decided struct {
	Source   string // where its limits were decided, the least certain one: a weir.Source
	Owner    string // the node that owns the key of the first
	From, To int64  // when the check began and ended, in Unix nanoseconds
}

// timeout is the nodes' Config.Timeout, the most that a check waits for others.
const timeout = 100 * time.Millisecond

// readyPath is where a gateway tells whether it is ready for traffic.
const readyPath = "/ready"

// lookInterval is how often a gateway looks whether what it sees has changed, and
// tellInterval how often it reports if nothing has.
const (
	lookInterval = 10 * time.Millisecond
	tellInterval = 250 * time.Millisecond
)

// leaveWithin bounds a gateway's leave: handing over, saying goodbye, and answering what is under
// way.
const leaveWithin = 8 * time.Second

// runGateway is the whole of a gateway's process: an HTTP service behind a limiter. It returns
// the exit status.
func runGateway(told string) int {
	return lab.Serve(told, serveGateway, func(err error) any { return report{At: time.Now().UnixNano(), Error: err.Error()} })
}

// serveGateway is that process, from its start until ctx is done or it has left, as it is told
// to.
func serveGateway(ctx, toldToLeave context.Context, s settings, orders <-chan order, tell func(any) error) error {
	links := newNetwork(s.Links)
	defer links.close()
	o := service.Options{Rules: s.Rules, LeaveWithin: leaveWithin, Node: weir.Config{
		Name: s.Label, Bind: s.Bind, Join: s.Join, Expect: s.Expect, Replicas: s.Replicas, Region: s.Region, Regions: s.Regions,
		Timeout: s.Timeout,
		Now:     func() time.Time { return time.Now().Add(s.Skew) }, // the clock that the verdict reads, but for a skew
		Secrets: s.Secrets, Forget: s.Forget, MaxKeys: s.MaxKeys,
	}}
	if s.Snapshots != "" {
		dir, err := snapshot.OpenDir(s.Snapshots, snapshot.DirOptions{})
		if err != nil {
			return err
		}
		defer dir.Close()
		o.Node.Snapshots, o.Node.SnapshotEvery = dir, saveInterval
	}
	if s.Links != nil {
		o.Node.Cluster = cluster.NewGossip(cluster.Config{
			Name: s.Label + "-" + newToken()[:16], Bind: s.Bind, Join: s.Join, Region: s.Region, Regions: s.Regions, Network: links,
		})
	}
	gateway, err := service.Start(ctx, o)
	if err != nil {
		return err
	}
	defer gateway.Close()
	node, book := gateway.Node, gateway.Book
	w := watcher{view: &page.Node{Node: node, Book: book}, shown: s.Shown, tell: tell, late: lab.Lateness{Idle: true}}
	admin, err := httplimit.Admin(node, book, httplimit.AdminOptions{Tokens: [][]byte{[]byte(s.Token)}, Page: sourceOf(w.view)})
	if err != nil {
		return err
	}
	answers, err := limited(s.Label, node, book)
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.Handle("/", answers)
	routes.Handle(readyPath, httplimit.Readiness(node))
	server := func(addr string, h http.Handler) service.Server {
		return service.HTTP(&http.Server{Addr: addr, Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute})
	}
	ended := make(chan error, 1)
	go func() { ended <- gateway.Serve(toldToLeave, server(s.HTTP, routes), server(s.Admin, admin)) }()

	w.late.Start(stillInterval, stillSlack)
	defer w.late.Stop()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		if err := w.look(); err != nil {
			return err
		}
		select {
		case <-toldToLeave.Done():
			select {
			case <-ctx.Done(): // it is to end at once
				return nil
			case err := <-ended:
				w.last.Still = w.late.Take()
				return errors.Join(err, tell(w.last))
			}
		case err := <-ended: // a server has failed
			return err
		case o := <-orders: // one that does nothing, once ctx is done
			links.set(o.Links)
			if err := w.carryOut(o, s.site); err != nil {
				return err
			}
		case <-tick.C:
		}
	}
}

// watcher reports what a gateway sees. It is not safe for concurrent use.
type watcher struct {
	view    *page.Node
	shown   bool
	late    lab.Lateness
	tell    func(any) error
	cut     int
	figures *figures // that are not reported yet
	last    report   // that was told
}

// carryOut executes an order of a soak. The connections of clients of the gateway stay.
func (w *watcher) carryOut(o order, s site) error {
	if o.Take {
		w.figures = takeFigures(w.view.Node)
	}
	if !o.Break {
		return nil
	}
	var ports []int
	for _, addr := range []string{s.HTTP, s.Admin} {
		at, err := netip.ParseAddrPort(addr)
		if err != nil {
			return err
		}
		ports = append(ports, int(at.Port()))
	}
	cut, err := breakConnections(ports...)
	w.cut += cut
	return err
}

// look reports the view of the gateway if it has changed, or if nothing was reported for
// tellInterval.
func (w *watcher) look() error {
	rules, now, last := w.view.Book.Current(), time.Now().UnixNano(), &w.last
	r := report{At: now, Rules: rules.Version(), Cut: w.cut, Figures: w.figures}
	for _, m := range w.view.Node.Members() {
		if m.Self {
			r.Name = m.Name
		}
		r.Members = append(r.Members, seen{m.Name, m.State})
	}
	same := slices.Equal(r.Members, last.Members) && r.Rules == last.Rules && r.Cut == last.Cut && r.Figures == nil
	if same && now-last.At < int64(tellInterval) {
		return nil
	}
	stats := w.view.Node.Stats()
	if age := stats.Snapshots.Age; age > 0 {
		r.Saved = now - int64(age)
	}
	r.Stream, r.Regions, r.Owns, r.Still = stats.Stream, stats.Regions, owned(rules), w.late.Take()
	if w.shown {
		shown := w.view.Snapshot()
		r.Page = &shown
	}
	w.last, w.figures = r, nil
	return w.tell(r)
}

// limited is a handler behind the rules. Its answers say, besides what the client
// of a gateway gets to know, what the demo wants to know.
func limited(gateway string, node *weir.Node, book *rules.Book) (http.Handler, error) {
	limits, err := httplimit.New(node, book, httplimit.Options{
		User: httplimit.HeaderValue(userHeader), Tier: httplimit.HeaderValue(tierHeader), APIKey: httplimit.HeaderValue(apiKeyHeader),
		OnDecision: func(r *http.Request, o *httplimit.Outcome) {
			if tell, ok := r.Context().Value(tellKey{}).(func([]httplimit.Verdict)); ok && len(o.Verdicts) > 0 {
				tell(o.Verdicts)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	hello := limits.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == givePath { // the rules of a soak refund the units of such a response
			w.WriteHeader(http.StatusNoContent)
			return
		}
		fmt.Fprintf(w, "hello from %s\n", gateway)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(gatewayHeader, gateway)
		from := time.Now().UnixNano()
		tell := func(all []httplimit.Verdict) {
			source := slices.MaxFunc(all, func(a, b httplimit.Verdict) int { return cmp.Compare(doubt(a), doubt(b)) }).Decision.Source.String()
			text, _ := json.Marshal(decided{source, all[0].Limiter.Owner(all[0].Key).Name, from, time.Now().UnixNano()})
			w.Header().Set(decidedHeader, string(text))
		}
		hello.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tellKey{}, tell)))
	}), nil
}

// doubt returns a higher number for a decision that is less certain.
func doubt(v httplimit.Verdict) int {
	return slices.Index([]place{stoodIn, budget}, placeOf(v.Decision.Source.String()))
}

// saveInterval is the interval of snapshots: the shortest that weir.Config accepts.
const saveInterval = time.Second

// tellKey is where a request's context has what is called with its verdicts.
type tellKey struct{}
