package snapshots

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
)

// starting returns the Snapshots of a node that knows the given members.
func starting(name string, knows []string) *Snapshots {
	v := &view.View{View: &cluster.View{Self: len(knows)}}
	for _, m := range append(knows, name) {
		v.Members = append(v.Members, cluster.Member{Name: m + "-0123456789abcdef"})
	}
	e := &env.Env{Clock: env.NewClock(time.Now)}
	e.Store(v)
	return New(Config{Node: name, Env: e})
}

// Several nodes start at the same time, and each knows some of the other nodes. In any
// case each snapshot is loaded. If all nodes know each other, exactly one node loads each snapshot.
func TestStartingNodesLoadEachSnapshot(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var names, gone []string
		for i := range 1 + random.IntN(6) {
			names = append(names, fmt.Sprintf("new%d", i))
		}
		for i := range 1 + random.IntN(6) {
			gone = append(gone, fmt.Sprintf("old%d", i))
		}
		all := random.IntN(2) == 0
		for _, file := range append(gone, names...) {
			var loads []string
			for _, name := range names {
				var knows []string
				for _, other := range names {
					if other != name && (all || random.IntN(2) == 0) {
						knows = append(knows, other)
					}
				}
				if starting(name, knows).mustLoad(file) {
					loads = append(loads, name)
				}
			}
			if len(loads) == 0 || all && len(loads) > 1 {
				t.Fatalf("%s is loaded by %v of %v", file, loads, names)
			}
		}
	}
}

func TestLabelIsNameWithoutIncarnation(t *testing.T) {
	for name, want := range map[string]string{
		"pod-0-0123456789abcdef": "pod-0", "-0123456789abcdef": "-0123456789abcdef", "a": "a", "": "",
	} {
		if got := Label(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
