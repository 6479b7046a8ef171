package cluster

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// What Linux's ipv6.h calls these.
const (
	ipv6AddrPreferences = 72
	ipv6PreferSrcPublic = 2
)

// bindToDevice has a socket use the routes of an interface alone, and of several IPv6
// addresses not one that is replaced every day (RFC 8981). Where the kernel allows
// neither, the socket is as it was, or is not to be had.
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

// equalDefaults returns the interfaces of the default routes of the least cost.
func equalDefaults(is6 bool) []string {
	if is6 {
		text, _ := os.ReadFile("/proc/net/ipv6_route")
		return equalDefaultsOf6(text)
	}
	text, _ := os.ReadFile("/proc/net/route")
	return equalDefaultsOf4(text)
}

// Flags of a route, as Linux's route.h and ipv6_route.h have them.
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

// equalDefaultsOf6 reads /proc/net/ipv6_route. A row has the destination, its length, the
// source, its length, the gateway, the metric, two counts, flags and the interface, all
// numbers in hex. Routers say by the preference which of them to take.
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

// leastCost collects the interfaces of the least cost, each once.
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
