package cluster

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Constants of ipv6.h of Linux.
const (
	ipv6AddrPreferences = 72
	ipv6PreferSrcPublic = 2
)

// bindToDevice makes a socket use only the routes of nic, unless nic is empty, and prefer a permanent
// IPv6 address to a temporary address, which is replaced every day (RFC 8981). If the kernel does not
// support the preference, there is no effect. If the kernel does not allow the interface, the dial fails.
func bindToDevice(nic string) func(network, _ string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) (err error) {
		e := c.Control(func(fd uintptr) {
			if network == "udp6" {
				_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, ipv6AddrPreferences, ipv6PreferSrcPublic)
			}
			if nic != "" {
				err = syscall.BindToDevice(int(fd), nic)
			}
		})
		if e != nil {
			return e
		}
		return err
	}
}

// equalDefaults returns the interfaces of the default routes with the least cost.
func equalDefaults(is6 bool) []string {
	if is6 {
		text, _ := os.ReadFile("/proc/net/ipv6_route")
		return equalDefaultsOf6(text)
	}
	text, _ := os.ReadFile("/proc/net/route")
	return equalDefaultsOf4(text)
}

// Flags of a route, from route.h and ipv6_route.h of Linux.
const (
	routeUp         = 1
	routeReject     = 0x200
	routePreference = 0x18000000
)

// equalDefaultsOf4 reads /proc/net/route. A row has the interface, the destination, the
// gateway, flags, two counts, the metric and the mask.
func equalDefaultsOf4(table []byte) []string {
	var nics leastCost
	for line := range bytes.Lines(table) {
		f := strings.Fields(string(line))
		if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
			continue
		}
		flags, err := strconv.ParseUint(f[3], 16, 32)
		metric, err2 := strconv.ParseUint(f[6], 10, 32)
		if err == nil && err2 == nil && flags&routeUp != 0 && flags&routeReject == 0 {
			nics.add(f[0], metric)
		}
	}
	return nics.names
}

// equalDefaultsOf6 reads /proc/net/ipv6_route. A row has the destination and its length, the source and
// its length, the gateway, the metric, two counts, flags and the interface, all numbers in hex. Routers
// announce the preference of a route.
func equalDefaultsOf6(table []byte) []string {
	var nics leastCost
	for line := range bytes.Lines(table) {
		f := strings.Fields(string(line))
		if len(f) < 10 || f[1] != "00" || strings.Trim(f[0], "0") != "" || f[3] != "00" {
			continue
		}
		metric, err := strconv.ParseUint(f[5], 16, 32)
		flags, err2 := strconv.ParseUint(f[8], 16, 32)
		if err != nil || err2 != nil || flags&routeUp == 0 || flags&routeReject != 0 {
			continue
		}
		// The bits are 01 for high, 00 for medium and 11 for low.
		preference := [4]uint64{1, 0, 1, 2}[flags&routePreference>>27]
		nics.add(f[9], metric<<2|preference)
	}
	return nics.names
}

// leastCost collects the interfaces with the least cost, each once.
type leastCost struct {
	least uint64
	names []string
}

func (l *leastCost) add(nic string, cost uint64) {
	switch {
	case len(l.names) == 0 || cost < l.least:
		l.least, l.names = cost, []string{nic}
	case cost == l.least && !slices.Contains(l.names, nic):
		l.names = append(l.names, nic)
	}
}
