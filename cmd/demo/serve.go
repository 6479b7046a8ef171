package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// servedPer is the limit's Per where a person asks, by hand.
const servedPer = 10 * time.Second

// restartAfter is how long a gateway that has ended stays away.
const restartAfter = 3 * time.Second

// serve keeps the gateways up until ctx is done, and says how to ask them. One
// that ends is started again.
func serve(ctx context.Context, f *fleet, s *screen) int {
	var b strings.Builder
	fmt.Fprintf(&b, "%d gateways, one limit: each client gets %d in %v, whichever it asks.\n\n", f.nodes, f.limit, f.per)
	for i, inc := range f.current[:f.nodes] {
		fmt.Fprintf(&b, "  gateway %d  %s/  process %d\n", i+1, f.url(inc), inc.process.pid())
	}
	first, last := f.current[0], f.current[f.nodes-1]
	fmt.Fprintf(&b, `
Ask one of them, and see who decided:

  curl -i -H '%s: alice' %s/

Use up a client's limit through one gateway, and ask another:

  for i in $(seq %d); do curl -s -H '%s: bob' %s/; done
  curl -i -H '%s: bob' %s/

Freeze a gateway and thaw it, have it leave in order, or kill it: one that has
ended is started again after %v.

  kill -STOP %d; sleep 5; kill -CONT %d
  kill -TERM %d
  kill -KILL %d

Ctrl-C ends them all.
`, clientHeader, f.url(first), f.limit, clientHeader, f.url(first), clientHeader, f.url(last),
		restartAfter, last.process.pid(), last.process.pid(), last.process.pid(), last.process.pid())
	s.say(b.String())

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.stop()
			s.say("All gateways have ended.")
			return exitFine
		case now := <-tick.C:
			for _, gateway := range f.missing(now.Add(-restartAfter)) {
				if err := f.do(step{kind: start, gateway: gateway}); err != nil {
					s.say("demo: " + err.Error())
					return exitBroken
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
