package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// ClientAddress finds the address that a request comes from. Whatever a client sends
// it can invent, so a header is to be trusted only as far as a proxy of yours
// writes it: too much trust lets an attacker escape a limit, and lock out any client
// it names.
//
// The zero ClientAddress is that of the connection, RemoteAddr. Where a header
// does not say what it should, that address counts, too: never the next best one
// in the header.
type ClientAddress struct {
	rule    trust
	field   string // canonical
	trusted []netip.Prefix
	unix    bool // a peer on a Unix socket is trusted
	n       int
}

type trust uint8

const (
	thePeer trust = iota
	rightmostUntrusted
	fromRight
	oneHeader
)

// RemoteAddr is the address of the connection: without proxies, the client's.
func RemoteAddr() ClientAddress { return ClientAddress{} }

// RightmostUntrusted goes back along a list of addresses to which each proxy
// appends the one that it was asked from, and takes the first that is not in a
// trusted network. It begins with the connection's: a client that is no proxy of yours is
// not believed. If all are trusted, it is the first of the list. A client from
// within a trusted network can name anyone: trust those of your proxies alone.
//
// The field is X-Forwarded-For, or another one of its form, or Forwarded (RFC
// 7239). It must be the one that all of your proxies append to, or take out: an
// attacker can send the others.
func RightmostUntrusted(field string, trusted ...netip.Prefix) ClientAddress {
	trusted = slices.Clone(trusted)
	for i, p := range trusted {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			trusted[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
	}
	return ClientAddress{rule: rightmostUntrusted, field: http.CanonicalHeaderKey(field), trusted: trusted}
}

// TrustUnix returns a RightmostUntrusted that trusts proxies which connect over a Unix
// socket, too: these have no address that a network could name. Without it all clients
// of such a proxy have no address, and share one key. Whether a connection is one is
// taken from the server's side of it (http.LocalAddrContextKey), which no client and
// no middleware before this one can invent. Trust it only where no client can open the
// socket.
func (c ClientAddress) TrustUnix() ClientAddress {
	c.unix = true
	return c
}

// FromRight is the n-th address from the right of a list such as
// RightmostUntrusted reads: 1 for one proxy, 2 for two behind each other. It is
// for proxies whose addresses are not known. Use it only where nobody can connect
// past them.
func FromRight(field string, n int) ClientAddress {
	return ClientAddress{rule: fromRight, field: http.CanonicalHeaderKey(field), n: n}
}

// Header is the one address in a field that the proxy sets, and overwrites if a
// client sends it, such as X-Real-IP, CF-Connecting-IP or True-Client-IP. Use it
// only where nobody can connect past the proxy.
func Header(field string) ClientAddress {
	return ClientAddress{rule: oneHeader, field: http.CanonicalHeaderKey(field)}
}

func (c *ClientAddress) validate() error {
	switch {
	case c.rule != thePeer && c.field == "":
		return fmt.Errorf("%w Options.Client: the name of its header field is empty", weir.ErrInvalid)
	case c.rule == rightmostUntrusted && len(c.trusted) == 0 && !c.unix:
		return fmt.Errorf("%w Options.Client: no network is trusted: name those of your proxies, use TrustUnix for one on a Unix socket, or use RemoteAddr", weir.ErrInvalid)
	case c.rule != rightmostUntrusted && c.unix:
		return fmt.Errorf("%w Options.Client: TrustUnix has no effect here: it is for RightmostUntrusted", weir.ErrInvalid)
	case c.rule == fromRight && c.n < 1:
		return fmt.Errorf("%w Options.Client: FromRight(%d): use 1 for the rightmost address, or more", weir.ErrInvalid, c.n)
	}
	for _, p := range c.trusted {
		if !p.IsValid() {
			return fmt.Errorf("%w Options.Client: a trusted network is not valid: use netip.MustParsePrefix", weir.ErrInvalid)
		}
	}
	return nil
}

// Of is the address that a request comes from, an IPv4 one never as IPv6. It is
// the zero Addr if nothing says so, as over a Unix socket that is not trusted.
func (c *ClientAddress) Of(r *http.Request) netip.Addr {
	return c.From(r.Header, r.RemoteAddr, c.unix && overUnix(r))
}

// From is Of for a request that is not net/http's: by its header, the address of its
// connection, with or without a port, and whether it came over a Unix socket.
func (c *ClientAddress) From(header rules.Fields, remoteAddr string, unix bool) netip.Addr {
	peer := addressOf(remoteAddr)
	if c.rule == thePeer {
		return peer
	}
	entries := list{lines: header.Values(c.field), quotes: c.field == forwarded}
	switch c.rule {
	case rightmostUntrusted:
		if !c.trusts(peer) && !(c.unix && !peer.IsValid() && unix) {
			return peer
		}
		hop := peer
		for entry, ok := entries.last(); ok; entry, ok = entries.last() {
			a := c.read(entry)
			if !a.IsValid() {
				return peer
			}
			if hop = a; !c.trusts(a) {
				break
			}
		}
		return hop
	case fromRight:
		if a := c.nth(entries); a.IsValid() {
			return a
		}
	case oneHeader:
		if len(entries.lines) == 1 {
			if a := addressOf(strings.Trim(entries.lines[0], " \t")); a.IsValid() {
				return a
			}
		}
	}
	return peer
}

// nth returns the n-th address from the right, the zero Addr if there is none.
func (c *ClientAddress) nth(entries list) netip.Addr {
	var entry string
	for range c.n {
		var ok bool
		if entry, ok = entries.last(); !ok {
			return netip.Addr{}
		}
	}
	return c.read(entry)
}

// overUnix reports whether a request came over a Unix socket.
func overUnix(r *http.Request) bool { return networkOf(r) == "unix" }

// networkOf returns the network of a request's connection, like "tcp" or "unix", and ""
// where its server does not tell.
func networkOf(r *http.Request) string {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(interface{ Network() string }); ok {
		return local.Network()
	}
	return ""
}

func (c *ClientAddress) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(c.trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// list is a header field that is a list, read from the right. What a proxy has
// appended is so read before what it has received, which cannot change how that
// is read: neither by quotes that do not end, nor by entries that are none.
type list struct {
	lines  []string // what is left, but for
	line   string   // what is left of the last one that was begun, if
	begun  bool
	quotes bool // what is within them is no separator
}

// last takes the last entry off the list.
func (l *list) last() (entry string, ok bool) {
	if !l.begun {
		if len(l.lines) == 0 {
			return "", false
		}
		l.line, l.lines, l.begun = l.lines[len(l.lines)-1], l.lines[:len(l.lines)-1], true
	}
	quoted := false
	for i := len(l.line) - 1; i >= 0; i-- {
		switch {
		case l.line[i] == '"' && l.quotes:
			quoted = !quoted
		case l.line[i] == ',' && !quoted:
			entry, l.line = l.line[i+1:], l.line[:i]
			return entry, true
		}
	}
	l.begun = false
	return l.line, true
}

// read is the address of an entry, the zero Addr if it has none.
func (c *ClientAddress) read(entry string) netip.Addr {
	if c.field == forwarded {
		entry = forOf(entry)
	}
	return addressOf(strings.Trim(entry, " \t"))
}

const forwarded = "Forwarded"

// forOf returns the node in the "for" of an element of Forwarded. It is empty if the element
// has none or two, or is malformed.
func forOf(element string) (node string) {
	for rest := element; ; {
		name, value, ok := strings.Cut(rest, "=")
		if !ok {
			return ""
		}
		if strings.HasPrefix(value, `"`) {
			value, rest, ok = strings.Cut(value[1:], `"`)
			rest = strings.TrimLeft(rest, " \t")
			if !ok || strings.Contains(value, `\`) || rest != "" && rest[0] != ';' {
				return ""
			}
		} else if at := strings.IndexByte(value, ';'); at >= 0 {
			value, rest = value[:at], value[at:]
		} else {
			rest = ""
		}
		if strings.EqualFold(strings.Trim(name, " \t"), "for") {
			if node != "" {
				return ""
			}
			node = value
		}
		if rest == "" {
			return node
		}
		rest = rest[1:]
	}
}

// addressOf reads an address with or without a port, as itself where it is an
// IPv4 one within IPv6, and without a zone.
func addressOf(text string) netip.Addr {
	bracketed := strings.HasPrefix(text, "[")
	if inner, ok := strings.CutSuffix(text, "]"); ok && bracketed {
		if a, err := netip.ParseAddr(inner[1:]); err == nil && a.Is6() {
			return a.Unmap().WithZone("")
		}
		return netip.Addr{}
	}
	if bracketed || strings.Count(text, ":") == 1 {
		p, _ := netip.ParseAddrPort(text)
		return p.Addr().Unmap().WithZone("")
	}
	a, _ := netip.ParseAddr(text)
	return a.Unmap().WithZone("")
}
