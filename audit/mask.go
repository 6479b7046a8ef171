package audit

import (
	"net/netip"
	"strings"
)

// sixToFour has addresses in which an IPv4 address follows the prefix (RFC 3056).
var sixToFour = netip.MustParsePrefix("2002::/16")

// client returns the address of a client for a record, or its network.
func (o *Options) client(a netip.Addr) string {
	bits := 48
	switch {
	case !a.IsValid():
		return ""
	case o.Clients:
		return a.String()
	case a.Is4():
		bits = 24
	case sixToFour.Contains(a):
		bits = 16 + 24
	}
	network, _ := a.Prefix(bits) // never fails, because bits are in range
	return network.String()
}

// A product in a masked User-Agent has a short name of letters and a main version, so that it is neither an
// address nor an ID.
const (
	maxProducts = 8
	nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
)

// agent returns a User-Agent for a record, or the names and main versions of its products, such as
// "Mozilla/5 Chrome/120". The comments and the full versions are removed, because they can identify a client.
func (o *Options) agent(text string) string {
	if o.Clients {
		return text
	}
	var products []string
	depth := 0
	for word := range strings.FieldsSeq(text) {
		name, version, _ := strings.Cut(word, "/")
		version, _, _ = strings.Cut(version, ".")
		if depth == 0 && len(products) < maxProducts && isShort(name, nameLetters, 24) && isShort(version, "0123456789", 4) {
			products = append(products, name+"/"+version)
		}
		depth = max(0, depth+strings.Count(word, "(")-strings.Count(word, ")"))
	}
	return strings.Join(products, " ")
}

// isShort reports whether a text has at least one and at most the given number of bytes, and all are among
// the given letters.
func isShort(text, letters string, most int) bool {
	return 0 < len(text) && len(text) <= most && strings.Trim(text, letters) == ""
}
