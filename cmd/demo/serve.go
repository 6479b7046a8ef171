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
	fmt.Fprintf(&b, "%d gateways, one file of rules, which they watch:\n\n  rules      %s\n", f.nodes, f.rules.path)
	for i, inc := range f.current[:f.nodes] {
		fmt.Fprintf(&b, "  gateway %d  %s/  process %d\n", i+1, f.url(inc), inc.process.pid())
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
Freeze a gateway and thaw it, have it leave in order, or kill it: one that has
ended is started again after %v.

  kill -STOP %d; sleep 5; kill -CONT %d
  kill -TERM %d
  kill -KILL %d

Ctrl-C ends them all.
`, restartAfter, last.process.pid(), last.process.pid(), last.process.pid(), last.process.pid())
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
