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

// gatewayEnv, in a process's environment, makes it a gateway.
const gatewayEnv = "WEIR_DEMO_GATEWAY"

// Settings are those of a gateway.
type Settings struct {
	Site
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
	Endurance

	// Links, if not nil, are the links to other gateways, by their addresses. Each call of Report may
	// change them.
	Links map[string]link
}

// Endurance is what a gateway of a soak has besides. The zero value is that of a demo.
type Endurance struct {
	Secrets   [][]byte
	Snapshots string        // the directory; none if empty
	Skew      time.Duration // of the node's clock
	Forget    time.Duration
	MaxKeys   int
}

// Report is the view that a gateway has of the cluster at one time.
type Report struct {
	At      int64  // when it saw this
	Name    string // of its node
	Members []seen
	Owns    int // clients, by its ring
	Stream  weir.StreamStats
	Regions map[string]weir.RegionStats

	Rules uint64 // the version that it decides by
	Saved int64  // when its last snapshot began that is kept, in Unix nanoseconds

	Still []lab.Span     // when the process stood still since the last report
	Page  *page.Snapshot // if it is shown, and nil if it is that of the last report
	Left  bool           // it serves no more
}

// hears reports whether the gateway heard a member.
func (r *Report) hears(name string) bool {
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

// lookInterval is the pause between two reports of a gateway. The figures in them are at most
// statsInterval older, because they cost a hundred times as much as the members.
const (
	lookInterval  = 10 * time.Millisecond
	statsInterval = 100 * time.Millisecond
)

// leaveWithin bounds a gateway's leave: handing over, saying goodbye, and answering what is under
// way.
const leaveWithin = 8 * time.Second

// Gateway is the service of a gateway's process: an HTTP service behind a limiter. It leaves on
// SIGTERM. The demo calls Start first, and no other method before it has returned. Report is called
// once at a time.
type Gateway struct {
	leave   context.Context // done on SIGTERM
	links   *network
	files   *snapshot.Dir // nil without snapshots
	service *service.Service
	view    *page.Node
	site    Site
	shown   bool
	late    lab.SchedulingDelay
	ended   chan error // why it serves no more
	last    Report
	counted time.Time // when the figures of last were taken
}

// runGateway is the whole of a gateway's process. It returns the exit status.
func runGateway() int {
	leave, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer restore()
	g := &Gateway{leave: leave, links: newNetwork(nil), late: lab.SchedulingDelay{Idle: true}, ended: make(chan error, 1)}
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
		Now:     func() time.Time { return time.Now().Add(s.Skew) }, // the clock that the verdict reads, but for a skew
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
	api, err := admin.Handler(node, book, admin.Options{Tokens: [][]byte{[]byte(s.Token)}, Page: sourceOf(g.view)})
	if err != nil {
		return err
	}
	answers, err := limited(s.Label, node, book)
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
	g.late.Start(stillInterval, stillSlack)
	return nil
}

// close ends what Start has started.
func (g *Gateway) close() {
	g.late.Stop()
	if g.service != nil {
		_ = g.service.Close()
	}
	if g.files != nil {
		_ = g.files.Close()
	}
	g.links.close()
}

// Report sets the links to other gateways, by their addresses. It returns the view of the gateway, which
// does not change once the gateway leaves. It returns an error if a server failed, or if the gateway did
// not leave in order.
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
	r.Still = g.late.Take()
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

// Break ends all connections of the node, and returns their number. The connections of clients stay.
func (g *Gateway) Break(_ int, cut *int) (err error) {
	var ports []int
	for _, addr := range []string{g.site.HTTP, g.site.Admin} {
		at, err := netip.ParseAddrPort(addr)
		if err != nil {
			return err
		}
		ports = append(ports, int(at.Port()))
	}
	*cut, err = breakConnections(ports...)
	return err
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
