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

// findAddress sets the fields advertise, port and reachable of g.
func (g *gossipCluster) findAddress(ctx context.Context, bound net.Addr) error {
	host, port, err := net.SplitHostPort(bound.String())
	if err != nil {
		return fmt.Errorf("cluster: Bind %q: the network listens on %q, which is not an address", g.cfg.Bind, bound)
	}
	g.port = port
	if g.cfg.Advertise != "" {
		advertised, p, _ := net.SplitHostPort(addBrackets(g.cfg.Advertise, g.cfg.Bind))
		if p == "0" {
			p = port
		}
		g.advertise = canonical(advertised, p)
	} else {
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return fmt.Errorf("cluster: Bind %q: no address to advertise: set Advertise to the address that the other nodes dial: %w", g.cfg.Bind, err)
		}
		if ip.IsUnspecified() {
			found, err := outwardAddress(g.cfg.Bind)
			if err != nil {
				return fmt.Errorf("cluster: Bind %q names no address, and %w: set Advertise to the address that the other nodes dial, or Bind to it", g.cfg.Bind, err)
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

// firstReachable returns the first of addrs at which other machines reach the socket that is bound to the
// address bound. The result has a family that the socket accepts. It is a loopback address if, and only
// if, the socket is bound to a loopback address, because many machines resolve their own name to such an
// address. If advertise is an address, firstReachable returns that address unchecked.
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
		if err == nil && a.Addr().IsLoopback() == own.Addr().IsLoopback() && !differInFamily(a.Addr(), own.Addr()) {
			return a, nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("it resolves to %v, and a node bound to %v is reached at none of these", addrs, bound)
}

// differInFamily reports whether a and the address of a bound socket are of different families, so that a
// dialler of a does not reach the socket. A socket that is bound to all of IPv6 accepts IPv4 too.
func differInFamily(a, bound netip.Addr) bool {
	a, bound = a.Unmap(), bound.Unmap()
	if bound == netip.IPv6Unspecified() {
		return false
	}
	return a.Is4() != bound.Is4()
}

// isOfOtherFamily reports whether two hosts are addresses of different families, and bind is not
// the unspecified address.
func isOfOtherFamily(host, bind string) bool {
	a, err := netip.ParseAddr(host)
	b, err2 := netip.ParseAddr(bind)
	return err == nil && err2 == nil && !b.IsUnspecified() && differInFamily(a, b)
}

// addBrackets adds brackets to an Advertise that is an IPv6 address and a port without brackets, such
// as $(POD_IP):7946 if pods have IPv6. The last part of advertise may belong to an address, so it
// counts as a port only if it is the port of Bind.
func addBrackets(advertise, bind string) string {
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

// outwardAddress returns the address at which other machines reach this machine if Bind has no address:
// the source address of its default route. No command runs and no packet is sent. The package go-sockaddr
// runs the command ip, which a minimal image lacks, and found the right address in 11 of 25 layouts.
func outwardAddress(bind string) (local, error) {
	locals, err := localAddresses()
	if err != nil {
		return local{}, fmt.Errorf("the addresses of this machine cannot be read: %w", err)
	}
	host, _, _ := net.SplitHostPort(bind)
	return chooseAddress(host == "::", routeSources, locals)
}

// chooseAddress chooses an address of a machine. sources returns the addresses from which the
// machine sends to the world over IPv6 or IPv4. IPv4 has precedence, unless prefers6 is set. If
// there are several candidates, the error names them.
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
			return local{}, fmt.Errorf("this machine has default routes over several addresses: %s", candidatesText(found))
		}
	}
	// Without a default route, an address is chosen only if a single interface has dialable addresses. It
	// must be the only address of the preferred family, or the only address if there is none of that family.
	var usable []local
	nics := make(map[string]bool)
	for _, l := range locals {
		if isDialable(l.ip) {
			usable = append(usable, l)
			nics[l.nic] = true
		}
	}
	for _, is6 := range families {
		ofFamily := slices.DeleteFunc(slices.Clone(usable), func(l local) bool { return l.ip.Is6() != is6 })
		if len(nics) == 1 && len(ofFamily) == 1 {
			return ofFamily[0], nil
		} else if len(ofFamily) > 0 {
			break
		}
	}
	if len(usable) == 0 {
		return local{}, errors.New("this machine has no address that others can dial")
	}
	return local{}, fmt.Errorf("this machine has no default route and several addresses: %s", candidatesText(usable))
}

// maxListed bounds the candidates that an error names.
const maxListed = 20

// candidatesText sorts the candidates and returns them as text.
func candidatesText(all []local) string {
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

// translated is the prefix of the addresses of hosts that translate IPv4 to IPv6 (RFC 7335). Each
// such host has the same addresses.
var translated = netip.MustParsePrefix("192.0.0.0/29")

// isDialable reports whether other machines may reach an address. Public and private addresses count,
// but not loopback and link-local addresses.
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
			continue // the interface has just disappeared
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				locals = append(locals, local{prefix.Addr().Unmap(), nic.Name})
			}
		}
	}
	return locals, nil
}

// The destinations whose routes are examined, in networks for documentation, which a machine reaches
// only by a default route. There are several destinations, because a machine may use several default
// routes in turn.
var (
	worldOf4 = []string{"192.0.2.%d", "198.51.100.%d", "203.0.113.%d"}
	worldOf6 = []string{"2001:db8:%x::1", "3fff:%x::1"}
)

const (
	// rootOf4 and rootOf6 are the addresses of a root name server. The route to this server is examined if
	// the machine has no route to a network for documentation, because machines may refuse such networks.
	rootOf4 = "198.41.0.4"
	rootOf6 = "2001:503:ba3e::2:30"
	routes  = 8 // number of destinations in each network whose routes are examined
)

// routeSources returns the addresses from which this machine sends to the world. It returns none if the
// machine has no default route.
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
	// The kernel uses only the first of several routes with the same cost.
	if nics := equalDefaults(is6); len(sources) > 0 && len(nics) > 1 {
		for _, nic := range nics {
			look(fmt.Sprintf(world[0], 1), nic)
		}
	}
	return sources
}

// sourceTo returns the source address of packets to a destination, and the zero Addr if there is no
// route. If nic is not empty, only the routes of nic are used. Connecting a UDP socket does not send a
// packet.
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
