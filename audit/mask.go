package audit

import (
	"net/netip"
	"strings"
)

// sixToFour is the prefix of 6to4 addresses, which have an IPv4 address after it (RFC 3056).
var sixToFour = netip.MustParsePrefix("2002::/16")

// client returns the text of a client's address for a record: the address itself with
// Options.Clients, and otherwise its network.
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

// Bounds of the products in a masked User-Agent. The name of a product consists of letters, so that it cannot
// be an address or an ID.
const (
	maxProducts = 8
	nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
)

// agent returns the text of a User-Agent for a record: the User-Agent itself with Options.Clients, and
// otherwise the names and main versions of its products, such as "Mozilla/5 Chrome/120". Comments and full
// versions can identify a client.
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

// isShort reports whether a text has 1 to most bytes, which are all among the given letters.
func isShort(text, letters string, most int) bool {
	return 0 < len(text) && len(text) <= most && strings.Trim(text, letters) == ""
}
