package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/page"
)

// servedPer is the Per of the limit with -serve. It is long enough for requests by hand.
const servedPer = 10 * time.Second

// servedRate is the default number of requests per second with -serve. It leaves the machine free
// for other work.
const servedRate = 200

// serve keeps the gateways up under traffic until ctx is done, shows them on a page, and
// executes the steps of its buttons. serve prints instructions for requests to the gateways.
func serve(ctx context.Context, m *monitor, s *screen) int {
	f := m.fleet
	view := &panorama{fleet: f, tally: m.tally, presses: make(chan press, 8)}
	url, end, err := servePage(f, view)
	if err != nil {
		s.say("demo: " + err.Error())
		return exitBroken
	}
	defer end()
	defer m.startTraffic(ctx)()

	s.say(f.instructions(url))

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.stop()
			s.say("All gateways have ended.")
			return exitFine
		case p := <-view.presses:
			p.refused <- f.press(ctx, p.what)
		case now := <-tick.C:
			f.trim()
			m.tally.forget(now.Add(-f.per).UnixNano())
		}
	}
}

// instructions returns the addresses of the demo and their uses.
func (f *fleet) instructions(page string) string {
	first, last := f.current[0], f.current[f.nodes-1]
	var gateways []map[string]any
	for i, inc := range f.current[:f.nodes] {
		gateways = append(gateways, map[string]any{"Number": i + 1, "URL": inc.url(), "PID": inc.process.PID()})
	}
	values := map[string]any{
		"Page": page, "Nodes": f.nodes, "Rules": f.rules.path, "Gateways": gateways, "Token": f.token,
		"First": first.url(), "FirstAdmin": first.adminURL(), "Last": last.url(), "LastAdmin": last.adminURL(), "PID": last.process.PID(),
		"User": userHeader, "Tier": tierHeader, "Client": clientHeader, "Limit": f.limit, "Per": f.per, "Hour": hourLimit,
	}
	var b strings.Builder
	_ = texts.ExecuteTemplate(&b, "serve.txt", values) // a test executes the whole template
	return b.String()
}

// servePage serves the page at an address that only this machine reaches, until the function end is
// called. The page needs no password: a user who runs programs on this machine could also
// send signals to the gateways.
func servePage(f *fleet, view *panorama) (url string, end func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr := listener.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	shown, err := page.New(page.Options{Source: view, Hosts: []string{addr, "localhost:" + port}, Limit: clientLimit, Key: clientName(0)})
	if err != nil {
		listener.Close()
		return "", nil, err
	}
	server := &http.Server{Handler: shown, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	var over sync.WaitGroup
	over.Go(func() { server.Serve(listener) })
	return "http://" + addr + "/", func() {
		shown.Close()
		server.Close()
		over.Wait()
	}, nil
}
