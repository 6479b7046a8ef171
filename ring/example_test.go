package ring_test

import (
	"fmt"

	"github.com/weir-go/weir/ring"
)

// A view builds a ring when the membership changes, and looks up the owner of each key.
func ExampleRing() {
	r := ring.New([]string{"c", "a", "b"}) // in any order
	const hash = 0x9e3779b97f4a7c15        // of a key
	owner := r.Owner(hash)
	order := r.Order(nil, hash, 3)
	for _, member := range order {
		fmt.Println(r.Members()[member], member == owner)
	}

	// If the owner is removed, the successor owns the hash.
	rest := ring.New([]string{r.Members()[order[1]], r.Members()[order[2]]})
	fmt.Println(rest.Members()[rest.Owner(hash)])

	arcs := 0
	r.Arcs(func(first, last uint64, owner int) { arcs++ })
	fmt.Println(arcs, "arcs")
	// Output:
	// a true
	// b false
	// c false
	// b
	// 1537 arcs
}
