package rules

import (
	"net/netip"
	"slices"
)

// exempt is the set of clients that are never limited.
type exempt struct {
	networks map[netip.Prefix]bool
	bits     [2][]int // prefix lengths of the networks, for IPv4 and IPv6
	users    map[string]bool
	apiKeys  map[string]bool
}

func (e *exempt) add(network netip.Prefix) {
	if e.networks == nil {
		e.networks = make(map[netip.Prefix]bool)
	}
	e.networks[network] = true
	if f := family(network.Addr()); !slices.Contains(e.bits[f], network.Bits()) {
		e.bits[f] = append(e.bits[f], network.Bits())
	}
}

func (e *exempt) contains(r *Request) bool {
	if e.users[r.User] || e.apiKeys[r.APIKey] { // no exempt user or API key is empty
		return true
	}
	if e.networks == nil || !r.Client.IsValid() {
		return false
	}
	client := r.Client.Unmap()
	for _, bits := range e.bits[family(client)] {
		if network, err := client.Prefix(bits); err == nil && e.networks[network] {
			return true
		}
	}
	return false
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
