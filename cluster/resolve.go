package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// lookupTimeout bounds one lookup, because addresses that need no lookup wait for the lookup
// of other entries.
const lookupTimeout = 2 * time.Second

// resolve returns the "ip:port" addresses of an entry of Join or Regions, or of the address of a
// member. If the entry has no port, the addresses have the argument port.
func resolve(ctx context.Context, n Network, entry, port string) ([]string, error) {
	host, port, err := splitEntry(entry, port)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{canonical(host, port)}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	hosts, err := n.LookupHost(ctx, host)
	if err == nil && len(hosts) == 0 {
		err = errors.New("it has no address")
	}
	if err != nil {
		return nil, fmt.Errorf("%q does not resolve: %w", host, err)
	}
	addrs := make([]string, len(hosts))
	for i, h := range hosts {
		addrs[i] = canonical(h, port)
	}
	return addrs, nil
}

// lookup is the result of one call of resolve.
type lookup struct {
	entry string
	addrs []string
	err   error
}

// lookUpAll looks up all entries at once. An entry without a port gets the argument port.
func lookUpAll(ctx context.Context, n Network, entries []string, port string) []lookup {
	found := make([]lookup, len(entries))
	var wg sync.WaitGroup
	for i, entry := range entries {
		wg.Go(func() {
			addrs, err := resolve(ctx, n, entry, port)
			found[i] = lookup{entry, addrs, err}
		})
	}
	wg.Wait()
	return found
}

// addresses returns the addresses and the error messages of all lookups.
func addresses(found []lookup) (addrs map[string]bool, problems []string) {
	addrs = make(map[string]bool)
	for _, l := range found {
		for _, addr := range l.addrs {
			addrs[addr] = true
		}
		if l.err != nil {
			problems = append(problems, l.err.Error())
		}
	}
	return addrs, problems
}

// canonical returns the canonical form of an address, so that addresses can be compared:
// ::ffff:10.0.0.1 becomes 10.0.0.1.
func canonical(host, port string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return net.JoinHostPort(host, port)
}
