package processtests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

// Each node is a process that uses real sockets. The split moves two of the four hosts to the
// other bridge.
func TestASplitOfARealNetworkHealsByItself(t *testing.T) {
	wantsTheMachine(t)
	t.Parallel() // the test mostly waits
	const hosts, split = 4, 20 * time.Second
	l := newLAN(t, hosts)
	var nodes []*remote
	for i := range hosts {
		nodes = append(nodes, l.run(i, 0))
	}
	// stand returns a function that reports whether each node lists each member in a state that
	// want returns.
	stand := func(want func(from, of int) []weir.MemberState) func() bool {
		return func() bool {
			for i, n := range nodes {
				line := n.sight(t)
				if strings.Count(line, "=") != hosts {
					return false
				}
				for j := range hosts {
					found := false
					for _, state := range want(i, j) {
						found = found || strings.Contains(line, fmt.Sprint(l.address(j), ":7946=", state))
					}
					if !found {
						return false
					}
				}
			}
			return true
		}
	}
	whole := stand(func(_, _ int) []weir.MemberState { return []weir.MemberState{weir.Serving} })
	apart := stand(func(from, of int) []weir.MemberState {
		if from/2 == of/2 {
			return []weir.MemberState{weir.Serving}
		}
		return []weir.MemberState{weir.Unheard, weir.Dead}
	})
	await := func(what string, within time.Duration, done func() bool) {
		t.Helper()
		begun := time.Now()
		if !lab.Await(t.Context(), within, done) {
			for i, n := range nodes {
				t.Log(l.address(i), n.sight(t))
			}
			t.Fatalf("not within %v: %s", within, what)
		}
		t.Logf("%s after %v", what, time.Since(begun).Round(10*time.Millisecond))
	}
	await("they find each other", 20*time.Second, whole)
	cut := time.Now()
	l.plug(2, "br1")
	l.plug(3, "br1")
	await("each side knows that it is one", 5*time.Second, apart)
	time.Sleep(split - time.Since(cut))
	l.plug(2, "br0")
	l.plug(3, "br0")
	await("they hear each other and have one roster", 15*time.Second, whole)
}
