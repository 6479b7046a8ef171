package main

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/weir-go/weir/internal/lab"
)

// condition is how a gateway is, as far as the demo knows.
type condition uint8

const (
	starting condition = iota
	joining            // it serves, and is not ready
	up
	leaving
	gone // it has left in order
	frozen
	killed
	failed // it ended by itself
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

// incarnation is one process in one gateway's place. What changes is under the fleet's mu.
type incarnation struct {
	gateway   int // index
	site      Site
	process   *lab.Service
	client    *http.Client
	condition condition
	ready     bool          // as it said last
	report    Report        // the last one; none yet if its Name is empty
	down      []span        // when it could not be expected to answer
	over      chan struct{} // closed when its process has ended
	still     []span        // when it was late and cores did not work for it, as it told: other programs had them
	series    []Figures
}

func (inc *incarnation) is(conditions ...condition) bool {
	return inc != nil && slices.Contains(conditions, inc.condition)
}

// url is where the incarnation serves, and adminURL where its admin API is.
func (inc *incarnation) url() string      { return "http://" + inc.site.HTTP }
func (inc *incarnation) adminURL() string { return "http://" + inc.site.Admin }

// label is a gateway's node's.
func label(gateway int) string { return fmt.Sprintf("gateway-%d", gateway+1) }

// gatewayOf is the index of the gateway of a member's name, -1 if it is none.
func gatewayOf(member string) int {
	var number int
	if _, err := fmt.Sscanf(member, "gateway-%d-", &number); err != nil {
		return -1
	}
	return number - 1
}

// labelOf is the label of a member's name, or of its label.
func labelOf(member string) string { return label(gatewayOf(member + "-")) }

// labels are those of members, by their names.
func labels(members []string) (all []string) {
	for _, member := range members {
		all = append(all, labelOf(member))
	}
	return all
}
