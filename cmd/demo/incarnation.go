package main

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/weir-go/weir/internal/lab"
)

// condition is the condition of a gateway, as far as the demo knows.
type condition uint8

const (
	starting condition = iota
	joining            // serves, but is not ready
	up
	leaving
	gone // has left in order
	frozen
	killed
	failed // ended by itself
	stopped
)

var conditions = [...]struct {
	name   string
	colour colour
}{
	starting: {"starting", cyan}, joining: {"joining", cyan}, up: {"up", green}, leaving: {"leaving", yellow}, gone: {"gone", dim},
	frozen: {"frozen", yellow}, killed: {"killed", red}, failed: {"failed", red}, stopped: {"stopped", dim},
}

func (c condition) String() string { return conditions[c].name }

// Site has the addresses of a gateway and its node. A restart does not change them.
type Site struct{ Bind, HTTP, Admin string }

// incarnation is a process of a gateway. The fleet's mu guards the fields that change.
type incarnation struct {
	gateway   int // index
	site      Site
	process   *lab.Service
	client    *http.Client
	condition condition
	ready     bool          // whether it receives requests: it was ready at the last check, and no kill, freeze or leave has begun
	report    Report        // the last report; there is none yet if its Name is empty
	down      []span        // times in which the process was down, and no answer was expected
	over      chan struct{} // closed when its process has ended
	still     []span        // times in which the process stood still because other programs had the cores, as the process reports
	series    []Figures     // of a steadfast gateway: its figures after each round of a soak without stops
}

func (inc *incarnation) hasCondition(conditions ...condition) bool {
	return inc != nil && slices.Contains(conditions, inc.condition)
}

// url returns the address of the incarnation, and adminURL that of its admin API.
func (inc *incarnation) url() string      { return "http://" + inc.site.HTTP }
func (inc *incarnation) adminURL() string { return "http://" + inc.site.Admin }

func label(gateway int) string { return fmt.Sprintf("gateway-%d", gateway+1) }

// gatewayOf returns the index of the gateway with a member's name, or -1 for other names.
func gatewayOf(member string) int {
	var number int
	if _, err := fmt.Sscanf(member, "gateway-%d-", &number); err != nil {
		return -1
	}
	return number - 1
}

// labelOf returns the label for the name of a member, or for a label.
func labelOf(member string) string { return label(gatewayOf(member + "-")) }

func labels(members []string) (all []string) {
	for _, member := range members {
		all = append(all, labelOf(member))
	}
	return all
}
