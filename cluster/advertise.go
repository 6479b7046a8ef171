package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// findAddress sets the address that the other nodes dial.
func (g *gossipCluster) findAddress(ctx context.Context, bound net.Addr) error {
	host, port, err := net.SplitHostPort(bound.String())
	if err != nil {
		return fmt.Errorf("cluster: Bind %q: the network listens on %q, which is not an address", g.cfg.Bind, bound)
	}
	g.port = port
	if g.cfg.Advertise != "" {
		advertised, p, _ := net.SplitHostPort(bracketed(g.cfg.Advertise, g.cfg.Bind))
		if p == "0" {
			p = port
		}
		g.advertise = canonical(advertised, p)
	} else {
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return fmt.Errorf("cluster: Bind %q: no address to advertise: set Advertise to the one that the other nodes dial: %w", g.cfg.Bind, err)
		}
		if ip.IsUnspecified() {
			found, err := outwardAddress(g.cfg.Bind)
			if err != nil {
				return fmt.Errorf("cluster: Bind %q names no address, and %w: set Advertise to the one that the other nodes dial, or Bind to it", g.cfg.Bind, err)
			}
			host = found.ip.String()
			g.log.Info("Advertise is not set; advertising the source address of the default route", "advertise", canonical(host, port), "interface", found.nic)
		}
		g.advertise = canonical(host, port)
	}
	addrs, err := resolve(ctx, g.cfg.Network, g.advertise, port)
	if err == nil {
		g.reachable, err = firstReachable(g.advertise, addrs, bound)
	}
	if err != nil {
		return fmt.Errorf("cluster: Advertise %q: use an address, or a name that resolves on this machine: %w", g.advertise, err)
	}
	return nil
}

// firstReachable returns the first of addrs that others can send to what is bound: of
// its family, and no loopback unless it is bound to one, since many machines
// have their own name stand for a loopback. An advertised address is taken at its
// word.
func firstReachable(advertise string, addrs []string, bound net.Addr) (netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(advertise); err == nil {
		return a, nil
	}
	own, err := netip.ParseAddrPort(bound.String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	for _, addr := range addrs {
		a, err := netip.ParseAddrPort(addr)
		if err == nil && a.Addr().IsLoopback() == own.Addr().IsLoopback() && !apart(a.Addr(), own.Addr()) {
			return a, nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("it resolves to %v, and a node bound to %v is reached at none of these", addrs, bound)
}

// apart reports whether no dialler of a reaches a socket that is bound to one address,
// as they are of different families. A socket that is bound to all of IPv6 takes IPv4 too.
func apart(a, bound netip.Addr) bool {
	a, bound = a.Unmap(), bound.Unmap()
	if bound == netip.IPv6Unspecified() {
		return false
	}
	return a.Is4() != bound.Is4()
}

// ofOtherFamily reports whether two hosts are addresses of different families, and bind is
// one and not all.
func ofOtherFamily(host, bind string) bool {
	a, err := netip.ParseAddr(host)
	b, err2 := netip.ParseAddr(bind)
	return err == nil && err2 == nil && !b.IsUnspecified() && apart(a, b)
}

// bracketed returns an Advertise that is an IPv6 address and a port without brackets, as
// $(POD_IP):7946 is where pods have IPv6, with its brackets. What ends so may be an
// address alone: it is read as one with a port only if that is the port of Bind.
func bracketed(advertise, bind string) string {
	at := strings.LastIndexByte(advertise, ':')
	_, port, err := net.SplitHostPort(bind)
	if at < 0 || err != nil || port == "0" || advertise[at+1:] != port {
		return advertise
	}
	ip, err := netip.ParseAddr(advertise[:at])
	if err != nil || !ip.Is6() {
		return advertise
	}
	return net.JoinHostPort(advertise[:at], port)
}

// local is an address of this machine, and the interface that has it.
type local struct {
	ip  netip.Addr
	nic string
}

func (l local) String() string { return fmt.Sprintf("%v (%s)", l.ip, cmp.Or(l.nic, "no interface")) }

// outwardAddress returns the address that others reach this machine by where Bind names
// none: the source address of its default route. It runs no command and sends nothing.
func outwardAddress(bind string) (local, error) {
	locals, err := localAddresses()
	if err != nil {
		return local{}, fmt.Errorf("the addresses of this machine cannot be read: %w", err)
	}
	host, _, _ := net.SplitHostPort(bind)
	return chooseAddress(host == "::", routeSources, locals)
}

// chooseAddress chooses among the addresses of a machine. sources returns those by which
// it sends to the world over IPv6 or IPv4. IPv4 has precedence, unless prefers6. Its error
// names the candidates where there are several.
func chooseAddress(prefers6 bool, sources func(is6 bool) []netip.Addr, locals []local) (local, error) {
	families := []bool{prefers6, !prefers6}
	nicOf := func(ip netip.Addr) local {
		i := slices.IndexFunc(locals, func(l local) bool { return l.ip == ip })
		if i < 0 {
			return local{ip: ip}
		}
		return locals[i]
	}
	for _, is6 := range families {
		var found []local
		for _, ip := range sources(is6) {
			found = append(found, nicOf(ip))
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return local{}, fmt.Errorf("this machine has default routes over several addresses: %s", listed(found))
		}
	}
	// Without a default route only a machine with one interface has no choice.
	var usable []local
	nics := make(map[string]bool)
	for _, l := range locals {
		if isDialable(l.ip) {
			usable = append(usable, l)
			nics[l.nic] = true
		}
	}
	for _, is6 := range families {
		of := slices.DeleteFunc(slices.Clone(usable), func(l local) bool { return l.ip.Is6() != is6 })
		if len(nics) == 1 && len(of) == 1 {
			return of[0], nil
		} else if len(of) > 0 {
			break
		}
	}
	if len(usable) == 0 {
		return local{}, errors.New("this machine has no address that others can dial")
	}
	return local{}, fmt.Errorf("this machine has no default route and several addresses: %s", listed(usable))
}

// maxListed bounds the candidates that an error names.
const maxListed = 20

// listed returns the candidates, sorted, as text.
func listed(all []local) string {
	slices.SortFunc(all, func(a, b local) int { return a.ip.Compare(b.ip) })
	var names []string
	for _, l := range all[:min(len(all), maxListed)] {
		names = append(names, l.String())
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprint(more, " more"))
	}
	return strings.Join(names, ", ")
}

// translated are addresses of hosts whose IPv4 is translated to IPv6 (RFC 7335): each such
// host has them.
var translated = netip.MustParsePrefix("192.0.0.0/29")

// isDialable reports whether other machines may reach an address: any but one of a
// loopback or a link, public or not.
func isDialable(ip netip.Addr) bool {
	return ip.IsGlobalUnicast() && !translated.Contains(ip)
}

// localAddresses returns the addresses of the interfaces that are up.
func localAddresses() (locals []local, err error) {
	nics, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, nic := range nics {
		if nic.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := nic.Addrs()
		if err != nil {
			continue // it has just gone
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				locals = append(locals, local{prefix.Addr().Unmap(), nic.Name})
			}
		}
	}
	return locals, nil
}

// The destinations whose routes are looked at. All but the last are for documentation,
// and no network has a route to them but its default one. A machine may refuse those: the
// last are of a root name server. Of several default routes in turn, some destination
// takes each.
var (
	worldOf4 = []string{"192.0.2.%d", "198.51.100.%d", "203.0.113.%d"}
	worldOf6 = []string{"2001:db8:%x::1", "3fff:%x::1"}
)

const (
	rootOf4 = "198.41.0.4"
	rootOf6 = "2001:503:ba3e::2:30"
	routes  = 8 // that are looked at, of each
)

// routeSources returns the addresses by which this machine sends to the world, none if it
// has no default route.
func routeSources(is6 bool) (sources []netip.Addr) {
	world, root := worldOf4, rootOf4
	if is6 {
		world, root = worldOf6, rootOf6
	}
	look := func(to, nic string) {
		if ip := sourceTo(is6, to, nic); isDialable(ip) && !slices.Contains(sources, ip) {
			sources = append(sources, ip)
		}
	}
	for _, network := range world {
		for i := range routes {
			look(fmt.Sprintf(network, i+1), "")
		}
	}
	if len(sources) == 0 {
		look(root, "")
	}
	// The kernel takes the first of several routes that cost the same.
	if nics := equalDefaults(is6); len(sources) > 0 && len(nics) > 1 {
		for _, nic := range nics {
			look(fmt.Sprintf(world[0], 1), nic)
		}
	}
	return sources
}

// sourceTo returns the address that a packet to that destination would have, and the zero
// Addr if there is no route. A UDP socket that is connected sends nothing. Of nic, if it
// is not empty, only the routes count.
func sourceTo(is6 bool, to, nic string) netip.Addr {
	network := "udp4"
	if is6 {
		network = "udp6"
	}
	d := net.Dialer{Control: bindToDevice(nic)}
	conn, err := d.Dial(network, net.JoinHostPort(to, "9")) // the port of "discard"
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	a, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}
