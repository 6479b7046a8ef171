package rules

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
)

// networks finds the smallest of some networks that includes an address, in logarithmic time. sortNetworks
// has sorted the networks by address and then by length. Therefore an address is in the last network that
// begins at or before the address, or in a network around that network, or in none.
type networks[T any] []network[T]

type network[T any] struct {
	prefix netip.Prefix
	value  T
	around int // index of the smallest network that includes this one; -1 if none does
}

// sortNetworks sorts the networks, and sets around. Of the values of equal networks, the first by
// compare stays.
func sortNetworks[T any](all networks[T], compare func(a, b T) int) networks[T] {
	slices.SortStableFunc(all, func(a, b network[T]) int {
		if a.prefix == b.prefix {
			return compare(a.value, b.value)
		}
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	all = slices.CompactFunc(all, func(a, b network[T]) bool { return a.prefix == b.prefix })
	for i := range all {
		around := i - 1
		for around >= 0 && !all[around].prefix.Contains(all[i].prefix.Addr()) {
			around = all[around].around
		}
		all[i].around = around
	}
	return all
}

// find returns the index of the smallest network that includes an address, or -1.
func (n networks[T]) find(a netip.Addr) int {
	if len(n) == 0 || !a.IsValid() {
		return -1
	}
	a = a.Unmap().WithZone("")
	i := sort.Search(len(n), func(i int) bool { return n[i].prefix.Addr().Compare(a) > 0 }) - 1
	for i >= 0 && !n[i].prefix.Contains(a) {
		i = n[i].around
	}
	return i
}
