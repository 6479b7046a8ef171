package rules

import (
	"fmt"
	"net/netip"

	"github.com/weir-go/weir/internal/strictyaml"
)

// Clients is a condition on the client of a request. An empty field is ignored. A request meets the
// condition if each field that is not empty contains the address, user or API key of the client. A
// request without an address, user or API key does not meet the field for it.
type Clients struct {
	Networks []netip.Prefix
	Users    []string

	apiKeys  []string
	networks networks[struct{}]
	users    map[string]bool // the set of Users
	keys     map[string]bool // the set of apiKeys
}

// APIKeys returns the number of API keys that meet the condition, or 0 if the condition ignores API keys.
func (c *Clients) APIKeys() int { return len(c.apiKeys) }

func (c *Clients) isEmpty() bool { return len(c.Networks)+len(c.Users)+len(c.apiKeys) == 0 }

func (c *Clients) admits(r *Request) bool {
	return (c.networks == nil || c.networks.find(r.Client) >= 0) && (c.users == nil || c.users[r.User]) && (c.keys == nil || c.keys[r.APIKey])
}

// clientsOf reads the fields ip, user and api_key. If good is false, clientsOf has added an error.
func (p *parser) clientsOf(m strictyaml.Map) (c Clients, good bool) {
	good = true
	for _, item := range readItems(m.Get("ip")) {
		if prefix, ok := networkIn(item); ok {
			c.Networks = append(c.Networks, prefix)
			c.networks = append(c.networks, network[struct{}]{prefix: prefix})
		}
	}
	c.networks = sortNetworks(c.networks, func(a, b struct{}) int { return 0 })
	c.Users, c.apiKeys = texts(m.Get("user"), "user", false), texts(m.Get("api_key"), "api_key", true)
	c.users, c.keys = setOf(c.Users), setOf(c.apiKeys)
	for field, n := range map[string]int{"ip": len(c.Networks), "user": len(c.Users), "api_key": len(c.apiKeys)} {
		good = good && (n > 0 || !m.Get(field).Present())
	}
	return c, good
}

// networkIn reads an address or a network.
func networkIn(v strictyaml.Value) (prefix netip.Prefix, ok bool) {
	text := v.Text()
	if !v.IsText() {
		return prefix, false
	}
	prefix, ok = networkOf(text)
	if meant := foreignNetwork(text); !ok && meant != "" {
		v.Errorf("ip is %q: addresses have no wildcards, write %s", text, meant)
	} else if !ok {
		v.Errorf("ip is %q: use an address or a network, like 192.0.2.1 or 10.0.0.0/8", text)
	}
	return prefix, ok
}

// setOf returns the set of the texts, or nil if there are none.
func setOf(texts []string) map[string]bool {
	if len(texts) == 0 {
		return nil
	}
	set := make(map[string]bool, len(texts))
	for _, text := range texts {
		set[text] = true
	}
	return set
}

// appendParts appends the fields as text, for Exception.String. API keys are secret.
func (c *Clients) appendParts(add func(what string, values []string)) {
	var networks []string
	for _, prefix := range c.Networks {
		networks = append(networks, prefix.String())
	}
	add("ip", networks)
	add("user", c.Users)
	if n := len(c.apiKeys); n > 0 {
		add("api_key", []string{fmt.Sprintf("one of %d", n)})
	}
}
