package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/page"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/service"
	"github.com/weir-go/weir/snapshot"
)

// gatewayEnv in the environment of a process makes the process a gateway.
const gatewayEnv = "WEIR_DEMO_GATEWAY"

// Settings are the settings of a gateway.
type Settings struct {
	Site
	Label    string   // label of its node
	Token    string   // token of its admin API
	Rules    string   // the rules file
	Join     []string // addresses of the nodes of other gateways
	Expect   int      // number of gateways, in its region if there are regions
	Replicas int      // copies of each count
	Region   string
	Regions  map[string][]string // addresses of nodes in each other region
	Timeout  time.Duration       // timeout of its node
	Shown    bool                // whether reports contain the data of the page
	Endurance

	// Links, if not nil, are the links to other gateways, by their addresses. Each call
	// of Report may change them.
	Links map[string]link
}

// Endurance has the additional settings of a gateway in a soak. The zero value is for a
// demo.
type Endurance struct {
	Secrets   [][]byte
	Snapshots string        // directory; no snapshots if empty
	Skew      time.Duration // how much the node's clock is ahead
	Forget    time.Duration
	MaxKeys   int
}

// Report is the view that a gateway has of the cluster at some time.
type Report struct {
	At      int64  // time of this view, in Unix nanoseconds
	Name    string // name of its node
	Members []seen
	Owns    int // number of clients that the node owns, by its ring
	Stream  weir.StreamStats
	Regions map[string]weir.RegionStats

	Rules uint64 // version of the rules that decide
	Saved int64  // time at which the writing of its last stored snapshot began, in Unix nanoseconds

	Still []span         // times in which the process stood still since the last report
	Page  *page.Snapshot // set if the gateway is shown and the figures are new
	Left  bool           // whether the gateway no longer serves
}

func (r *Report) isConnectedTo(name string) bool {
	return slices.ContainsFunc(r.Members, func(m seen) bool {
		return m.Name == name && (m.State == weir.Serving || m.State == weir.Joining)
	})
}

// seen is a member in the view of a gateway.
type seen struct {
	Name  string
	State weir.MemberState
}

// Headers of the requests to a gateway and of its answers.
const (
	clientHeader  = "X-Client"  // the client of a request
	userHeader    = "X-User"    // the user of a request; a production gateway would use a session
	tierHeader    = "X-Tier"    // the tier that the user pays for
	apiKeyHeader  = "X-Api-Key" // for rules that require an API key
	gatewayHeader = "X-Gateway" // the gateway that answers
	decidedHeader = "X-Decided" // a value of type decided, in JSON
)

// decided is the information about a check that a gateway sends to the demo.
type decided struct {
	Source   string // weir.Source of the decision; if several limits were checked, the least certain Source
	Owner    string // the node that owns the key of the first limit
	From, To int64  // start and end of the check, in Unix nanoseconds
}

// timeout is the Config.Timeout of the nodes: how long a check waits for other nodes.
const timeout = 100 * time.Millisecond

// readyPath is the path at which a gateway reports whether it is ready for traffic.
const readyPath = "/ready"

// lookInterval is the pause between two reports of a gateway. The figures in a report are
// up to statsInterval older than its members, because figures cost a hundred times as much.
const (
	lookInterval  = 10 * time.Millisecond
	statsInterval = 100 * time.Millisecond
)

// leaveWithin is the maximum time of a leave: the hand-over, the goodbye, and the answers
// to requests that are under way.
const leaveWithin = 8 * time.Second

// Gateway is the service of a gateway's process: an HTTP service behind a limiter. It
// leaves on SIGTERM. The demo calls Start first, and calls other methods after Start has
// returned. Calls of Report do not overlap.
type Gateway struct {
	leave   context.Context // done on SIGTERM
	links   *network
	files   *snapshot.Dir // nil without snapshots
	service *service.Service
	view    *page.Node
	site    Site
	shown   bool
	delay   lab.SchedulingDelay
	ended   chan error // why it no longer serves
	last    Report
	counted time.Time // time of the figures in last
}

// runGateway runs a gateway until its process ends, and returns the exit status.
func runGateway() int {
	leave, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer restore()
	g := &Gateway{leave: leave, links: newNetwork(nil), delay: lab.SchedulingDelay{Idle: true}, ended: make(chan error, 1)}
	defer g.close()
	if err := lab.ServeCalls("Gateway", g); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Start starts the node and serves.
func (g *Gateway) Start(s Settings, _ *int) (err error) {
	g.site, g.shown = s.Site, s.Shown
	g.links.set(s.Links)
	o := service.Options{Rules: s.Rules, LeaveWithin: leaveWithin, Node: weir.Config{
		Name: s.Label, Bind: s.Bind, Join: s.Join, Expect: s.Expect, Replicas: s.Replicas, Region: s.Region, Regions: s.Regions,
		Timeout: s.Timeout,
		Now:     func() time.Time { return time.Now().Add(s.Skew) }, // the clock that the verdict reads, with a skew
		Secrets: s.Secrets, Forget: s.Forget, MaxKeys: s.MaxKeys,
	}}
	if s.Snapshots != "" {
		if g.files, err = snapshot.OpenDir(s.Snapshots, snapshot.DirOptions{}); err != nil {
			return err
		}
		o.Node.Snapshots, o.Node.SnapshotEvery = g.files, saveInterval
	}
	if s.Links != nil {
		o.Node.Cluster = cluster.NewGossip(cluster.Config{
			Name: s.Label + "-" + rand.Text()[:16], Bind: s.Bind, Join: s.Join, Region: s.Region, Regions: s.Regions, Network: g.links,
		})
	}
	if g.service, err = service.Start(g.leave, o); err != nil {
		return err
	}
	node, book := g.service.Node, g.service.Book
	g.view = &page.Node{Node: node, Book: book}
	api, err := admin.Handler(node, book, admin.Options{Tokens: [][]byte{[]byte(s.Token)}})
	if err != nil {
		return err
	}
	answers, err := newLimitedHandler(s.Label, node, book)
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.Handle("/", answers)
	routes.Handle(readyPath, admin.Readiness(node))
	server := func(addr string, h http.Handler) service.Server {
		return service.HTTP(&http.Server{Addr: addr, Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute})
	}
	go func() { g.ended <- g.service.Serve(g.leave, server(s.HTTP, routes), server(s.Admin, api)) }()
	g.delay.Start(stillInterval, stillSlack)
	return nil
}

// close ends everything that Start has started.
func (g *Gateway) close() {
	g.delay.Stop()
	if g.service != nil {
		_ = g.service.Close()
	}
	if g.files != nil {
		_ = g.files.Close()
	}
	g.links.close()
}

// Report sets the links to other gateways, by their addresses, and returns the view of the
// gateway, which does not change once the gateway leaves. It returns an error if a server
// failed, or if the gateway did not leave in order.
func (g *Gateway) Report(links map[string]link, r *Report) (err error) {
	g.links.set(links)
	if g.leave.Err() == nil {
		g.look()
	}
	*r = g.last
	select {
	case err = <-g.ended:
		r.Left = true
	default:
	}
	r.Still = g.delay.TakeStandStills()
	return err
}

// look updates the last report. Its Page is nil unless the figures are new.
func (g *Gateway) look() {
	rules, now, r := g.view.Book.Current(), time.Now(), &g.last
	r.At, r.Rules, r.Members, r.Page = now.UnixNano(), rules.Version(), nil, nil
	for _, m := range g.view.Node.Members() {
		if m.Self {
			r.Name = m.Name
		}
		r.Members = append(r.Members, seen{m.Name, m.State})
	}
	if now.Sub(g.counted) < statsInterval {
		return
	}
	stats := g.view.Node.Stats()
	g.counted, r.Stream, r.Regions, r.Owns = now, stats.Stream, stats.Regions, owned(rules)
	if age := stats.Snapshots.Age; age > 0 {
		r.Saved = r.At - int64(age)
	}
	if g.shown {
		shown := g.view.Snapshot()
		r.Page = &shown
	}
}

// Top and Watch call these methods of the gateway's page.Source, for the page of the demo.
// The argument of Watch has the name of a limit and a key.
func (g *Gateway) Top(_ int, top *weir.TopKeys) (err error) {
	*top, err = g.view.Top(g.leave)
	return err
}

func (g *Gateway) Watch(of [2]string, w *page.Watched) (err error) {
	*w, err = g.view.Watch(g.leave, of[0], of[1])
	return err
}

// Break ends all connections of the node, and returns their number. The connections of
// clients and of the admin API stay.
func (g *Gateway) Break(_ int, cut *int) (err error) {
	clients, admin := netip.MustParseAddrPort(g.site.HTTP), netip.MustParseAddrPort(g.site.Admin)
	*cut, err = breakConnections(int(clients.Port()), int(admin.Port()))
	return err
}

// newLimitedHandler returns a handler behind the rules. In addition to the headers for
// clients, its answers contain the information that the demo needs.
func newLimitedHandler(gateway string, node *weir.Node, book *rules.Book) (http.Handler, error) {
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
			source := slices.MaxFunc(all, func(a, b httplimit.Verdict) int { return cmp.Compare(uncertainty(a), uncertainty(b)) }).Decision.Source.String()
			text, _ := json.Marshal(decided{source, all[0].Limiter.Owner(all[0].Key).Name, from, time.Now().UnixNano()})
			w.Header().Set(decidedHeader, string(text))
		}
		hello.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tellKey{}, tell)))
	}), nil
}

// uncertainty returns a higher number for a decision that is less certain.
func uncertainty(v httplimit.Verdict) int {
	return slices.Index([]place{stoodIn, budget}, placeOf(v.Decision.Source.String()))
}

// saveInterval is the interval of snapshots: the shortest that weir.Config accepts.
const saveInterval = time.Second

// tellKey is the context key of a function that receives the verdicts of a request.
type tellKey struct{}
