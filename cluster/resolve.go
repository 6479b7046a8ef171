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

// lookupTimeout bounds one lookup, so that a slow name server does not hold up
// the addresses that need none.
const lookupTimeout = 2 * time.Second

// resolve returns the "ip:port" addresses that an entry of Join, or a member's
// address, stands for. A missing port becomes port.
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

// resolveAll returns the addresses that entries stand for, and what went wrong.
func resolveAll(ctx context.Context, n Network, entries []string, port string) (addrs map[string]bool, problems []string) {
	addrs = make(map[string]bool)
	found := make([][]string, len(entries))
	errs := make([]error, len(entries))
	var wg sync.WaitGroup
	for i, entry := range entries {
		wg.Go(func() { found[i], errs[i] = resolve(ctx, n, entry, port) })
	}
	wg.Wait()
	for i := range entries {
		for _, addr := range found[i] {
			addrs[addr] = true
		}
		if errs[i] != nil {
			problems = append(problems, errs[i].Error())
		}
	}
	return addrs, problems
}

// canonical writes one address one way, so that addresses can be compared:
// ::ffff:10.0.0.1 is 10.0.0.1.
func canonical(host, port string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return net.JoinHostPort(host, port)
}
