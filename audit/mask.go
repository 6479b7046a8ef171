package audit

import (
	"net/netip"
	"regexp"
	"strings"
)

// client returns the address of a client for a record, or its network.
func (o *Options) client(a netip.Addr) string {
	bits := 48
	switch {
	case !a.IsValid():
		return ""
	case o.Clients:
		return a.String()
	case a.Unmap().Is4():
		a, bits = a.Unmap(), 24
	}
	network, _ := a.Prefix(bits) // never fails, because bits are in range
	return network.String()
}

// Comments and full versions in a User-Agent can identify a client.
var (
	agentComment = regexp.MustCompile(`\([^()]*\)?`)
	agentProduct = regexp.MustCompile(`(?:^|\s)([A-Za-z][A-Za-z_-]{0,23}/\d{1,4})\b`)
)

const maxProducts = 8

// agent returns a User-Agent for a record, or the names and main versions of its products, such as
// "Mozilla/5 Chrome/120".
func (o *Options) agent(text string) string {
	if o.Clients || text == "" {
		return text
	}
	var products []string
	for _, product := range agentProduct.FindAllStringSubmatch(agentComment.ReplaceAllString(text, " "), maxProducts) {
		products = append(products, product[1])
	}
	return strings.Join(products, " ")
}
