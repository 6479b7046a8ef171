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

// ClientAddress finds the address of the client of a request. A client can send any header.
// Trust a header only as far as your own proxies write it. With too much trust, an attacker can
// evade a limit, and can lock out other clients by using their addresses.
//
// The zero ClientAddress is RemoteAddr, the address of the connection. That address is also used
// if a header does not have the expected content, and never a different address in the header.
type ClientAddress struct {
	rule    trust
	field   string // canonical name
	trusted []netip.Prefix
	unix    bool // trust a peer on a Unix socket
	n       int  // position from the right, for FromRight
}

type trust uint8

const (
	thePeer trust = iota
	rightmostUntrusted
	fromRight
	oneHeader
)

// RemoteAddr uses the address of the connection. Without proxies, this is the address of the
// client.
func RemoteAddr() ClientAddress { return ClientAddress{} }

// RightmostUntrusted uses the list to which each proxy appends the address of its client. It tries
// the address of the connection, and then the addresses of the list from right to left, and uses the
// first address that is not in a trusted network. So the list is ignored if it comes from a client
// that is not among your proxies. If all addresses are trusted, the leftmost address is used. A client
// within a trusted network can send any address: trust only the networks of your proxies.
//
// The field is X-Forwarded-For, or a different field of this form, or Forwarded (RFC 7239). All of
// your proxies must either append to it or remove it, because an attacker can send other fields.
func RightmostUntrusted(field string, trusted ...netip.Prefix) ClientAddress {
	trusted = slices.Clone(trusted)
	for i, p := range trusted {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			trusted[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
	}
	return ClientAddress{rule: rightmostUntrusted, field: http.CanonicalHeaderKey(field), trusted: trusted}
}

// TrustUnix returns a RightmostUntrusted that also trusts proxies on a Unix socket, which have
// no address in a network. Without it, the clients of such a proxy have no address and share a
// key. The kind of the connection is taken from the server (http.LocalAddrContextKey), so that
// neither a client nor an earlier middleware can forge it. Use it only if no client can open the
// socket.
func (c ClientAddress) TrustUnix() ClientAddress {
	c.unix = true
	return c
}

// FromRight uses the n-th address from the right of the list in a field. The fields and lists are as
// for RightmostUntrusted. n is the number of proxies in a row: 1 for a single proxy, and 2 for a
// proxy behind another proxy. FromRight is for proxies with unknown addresses. Use it only if no
// client can connect without passing the proxies.
func FromRight(field string, n int) ClientAddress {
	return ClientAddress{rule: fromRight, field: http.CanonicalHeaderKey(field), n: n}
}

// Header uses the only address in a field that the proxy sets, and overwrites if a client sends
// it, such as X-Real-IP, CF-Connecting-IP or True-Client-IP. Use it only if no client can
// connect without passing the proxy.
func Header(field string) ClientAddress {
	return ClientAddress{rule: oneHeader, field: http.CanonicalHeaderKey(field)}
}

func (c *ClientAddress) validate() error {
	switch {
	case c.rule != thePeer && c.field == "":
		return fmt.Errorf("%w Options.Client: the name of the header field is empty: name a field, such as X-Forwarded-For", weir.ErrInvalid)
	case c.rule == rightmostUntrusted && len(c.trusted) == 0 && !c.unix:
		return fmt.Errorf("%w Options.Client: no network is trusted: name the networks of your proxies, use TrustUnix for a proxy on a Unix socket, or use RemoteAddr", weir.ErrInvalid)
	case c.rule != rightmostUntrusted && c.unix:
		return fmt.Errorf("%w Options.Client: TrustUnix has no effect here: use it with RightmostUntrusted, or leave it out", weir.ErrInvalid)
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

// FromRequest returns the address of the client of a request. An IPv4 address is never in the form of
// IPv6. The result is the zero Addr if the address is unknown, such as on a Unix socket that is not
// trusted.
func (c *ClientAddress) FromRequest(r *http.Request) netip.Addr {
	return c.FromFields(r.Header, r.RemoteAddr, c.unix && overUnix(r))
}

// FromFields is like FromRequest, for a request that is not from net/http. The arguments are the header, the address of
// the connection with or without a port, and whether the connection is a Unix socket.
func (c *ClientAddress) FromFields(header rules.Fields, remoteAddr string, unix bool) netip.Addr {
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
		for entry, ok := entries.removeLast(); ok; entry, ok = entries.removeLast() {
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

// nth returns the n-th address from the right, or the zero Addr if there is none.
func (c *ClientAddress) nth(entries list) netip.Addr {
	var entry string
	for range c.n {
		var ok bool
		if entry, ok = entries.removeLast(); !ok {
			return netip.Addr{}
		}
	}
	return c.read(entry)
}

// overUnix reports whether a request arrived on a Unix socket.
func overUnix(r *http.Request) bool { return networkOf(r) == "unix" }

// networkOf returns the network of the connection of a request, like "tcp" or "unix", and "" if
// its server does not report it.
func networkOf(r *http.Request) string {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(interface{ Network() string }); ok {
		return local.Network()
	}
	return ""
}

func (c *ClientAddress) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(c.trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// list is a header field with a list, which is read from the right. The entries that a proxy has
// appended are read before the lines that the proxy has received. Therefore a received line, for
// example with an open quote or an invalid entry, cannot change how the appended entries are read.
type list struct {
	lines  []string // lines that are not read yet
	line   string   // rest of the current line
	begun  bool     // line has an entry that was not read yet
	quotes bool     // a separator within quotes is ignored
}

// removeLast removes and returns the last entry of the list.
func (l *list) removeLast() (entry string, ok bool) {
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

// read returns the address of an entry, or the zero Addr.
func (c *ClientAddress) read(entry string) netip.Addr {
	if c.field == forwarded {
		entry = forOf(entry)
	}
	return addressOf(strings.Trim(entry, " \t"))
}

const forwarded = "Forwarded"

// forOf returns the value of the parameter "for" in an element of Forwarded. It returns "" if the
// element lacks the parameter, repeats it, or is malformed.
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

// addressOf reads an address with or without a port. An IPv4 address within IPv6 is returned as
// IPv4, and a zone is removed.
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
