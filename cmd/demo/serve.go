package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/page"
)

// servedPer is the limit's Per where a person asks, by hand.
const servedPer = 10 * time.Second

// restartAfter is how long a gateway that has ended stays away.
const restartAfter = 3 * time.Second

// servedRate is how many requests a second there are unless told: a page that is looked
// at beside other work.
const servedRate = 200

// serve keeps the gateways up until ctx is done, under traffic, shows them on a page and
// does what its buttons say. It tells how to ask the gateways. One that ends by itself is
// started again.
func serve(ctx context.Context, o options, f *fleet, s *screen) int {
	broken := func(err error) int {
		s.say("demo: " + err.Error())
		return exitBroken
	}
	granted := &recent{per: f.per}
	view, err := newPanorama(f, granted)
	if err != nil {
		return broken(err)
	}
	shown, err := servePage(f, view)
	if err != nil {
		return broken(err)
	}
	defer shown.close()
	if o.rate > 0 {
		traffic, end := context.WithCancel(ctx)
		var driven sync.WaitGroup
		driven.Go(func() { drive(traffic, f, granted, o.rate, o.seed) })
		defer driven.Wait()
		defer end()
	}

	var b strings.Builder
	fmt.Fprintf(&b, "Open the page, which shows all that follows and kills, freezes, slows and cuts gateways:\n\n  page       %s\n\n", shown.url)
	fmt.Fprintf(&b, "%d gateways, one file of rules, which they watch:\n\n  rules      %s\n", f.nodes, f.rules.path)
	for i, inc := range f.current[:f.nodes] {
		fmt.Fprintf(&b, "  gateway %d  %s/  process %d\n", i+1, f.url(inc), inc.process.PID())
	}
	first, last := f.current[0], f.current[f.nodes-1]
	if f.rules.dir != "" {
		fmt.Fprintf(&b, `
Ask one of them: by address, by user, by tier and by endpoint, and what is left of
each. The fourth search in 10 s is denied, in the form that you accept.

  curl -i -H '%[1]s: alice' %[3]s/v1/search
  curl -i -H '%[1]s: alice' -H '%[2]s: premium' %[3]s/v1/orders
  curl -i -H '%[1]s: alice' -H 'Accept: application/json' %[4]s/v1/search

Wait for a turn instead of being denied; and use up a day's 100 KiB in uploads of 40:
the third is on an overrun, and marked, and the fourth is denied.

  for i in 1 2 3; do curl -s -w '%%{time_total} s\n' -X POST -H '%[1]s: alice' %[3]s/v1/exports; done
  for i in 1 2 3 4; do curl -si -X PUT -H '%[1]s: alice' -d "$(printf %%040960d 0)" %[3]s/v1/files/a; done

Use up a client's %[5]d in %[6]v through one gateway, and ask another:

  for i in $(seq %[5]d); do curl -s -H '%[7]s: bob' %[3]s/; done
  curl -i -H '%[7]s: bob' %[4]s/

Give alice more, at one for all, and see her status at another:

  curl -s -H 'Authorization: Bearer %[8]s' -H 'Content-Type: application/json' \
    -d '{"limit":"%[9]s","key":"alice","rate":5000}' %[10]s/v1/overrides
  curl -s -H 'Authorization: Bearer %[8]s' '%[11]s/v1/status?user=alice'
`, userHeader, tierHeader, f.url(first), f.url(last), f.limit, f.per, clientHeader, f.token, hourLimit, f.adminURL(first), f.adminURL(last))
	} else {
		fmt.Fprintf(&b, `
  curl -i %s/
  curl -s -H 'Authorization: Bearer %s' %s/v1/rules
`, f.url(first), f.token, f.adminURL(first))
	}
	fmt.Fprintf(&b, `
Have a gateway leave in order, freeze and thaw it, or kill it, here as well: one that has
ended by itself is started again after %v.

  kill -STOP %d; sleep 5; kill -CONT %d
  kill -TERM %d
  kill -KILL %d

Ctrl-C ends them all.
`, restartAfter, last.process.PID(), last.process.PID(), last.process.PID(), last.process.PID())
	s.say(b.String())

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.stop()
			s.say("All gateways have ended.")
			return exitFine
		case p := <-view.presses:
			p.refused <- f.press(p.what)
		case now := <-tick.C:
			f.trim()
			for _, gateway := range f.missing(now.Add(-restartAfter)) {
				if err := f.do(step{kind: start, gateway: gateway}); err != nil {
					return broken(err)
				}
			}
		}
	}
}

// missing is the gateways that ended by themselves before a moment.
func (f *fleet) missing(before time.Time) []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	var gateways []int
	for i, inc := range f.current {
		if inc != nil && inc.condition == failed && inc.down[len(inc.down)-1].from < before.UnixNano() {
			gateways = append(gateways, i)
		}
	}
	return gateways
}

// served is the page while it is served.
type served struct {
	url    string
	page   *page.Page
	server *http.Server
	over   chan struct{} // closed when it has ended
}

// servePage serves the page at an address that only this machine reaches. It asks for no
// password: who runs programs here could send the gateways signals as well.
func servePage(f *fleet, view *panorama) (*served, error) {
	f.mu.Lock()
	addr := f.address()
	f.mu.Unlock()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	addr = listener.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	options := page.Options{Source: view, Hosts: []string{addr, "localhost:" + port}}
	if f.rules.dir != "" {
		options.Limit, options.Key = clientLimit, clientName(0)
	}
	shown, err := page.New(options)
	if err != nil {
		listener.Close()
		return nil, err
	}
	s := &served{
		url: "http://" + addr + "/", page: shown, over: make(chan struct{}),
		server: &http.Server{Handler: shown, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute},
	}
	go func() {
		defer close(s.over)
		s.server.Serve(listener)
	}()
	return s, nil
}

func (s *served) close() {
	s.page.Close()
	s.server.Close()
	<-s.over
}
