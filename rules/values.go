package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
)

// keyValues has the numbers of a limit for the keys and networks that the file names. Keys and networks with
// equal numbers share an element of numbers.
type keyValues struct {
	numbers  []weir.Limit
	keys     map[string]int32 // index in numbers, by the text of a key or of its first parts
	networks networks[int32]  // only if the first part of the key is an address
}

// find returns the index in numbers for a key, or -1. It prefers the value that names the most
// parts of the key. If no value names the key or its first parts, it returns the index for the
// smallest network that includes the address in the key.
func (v *keyValues) find(key string) int {
	for first := key; ; {
		if at, ok := v.keys[first]; ok {
			return int(at)
		}
		end := lastSeparator(first)
		if end < 0 {
			return v.findNetwork(first)
		}
		first = first[:end]
	}
}

// findNetwork returns the index in numbers for the smallest network that includes the address in the
// first part of a key, or -1.
func (v *keyValues) findNetwork(part string) int {
	if len(v.networks) == 0 || part == "" || part[0] == '\\' {
		return -1
	}
	if at := v.networks.find(addressIn(part)); at >= 0 {
		return int(v.networks[at].value)
	}
	return -1
}

// addressIn returns the address, or the first address of the network, of a key by address.
func addressIn(part string) netip.Addr {
	if strings.IndexByte(part, '/') < 0 {
		a, _ := netip.ParseAddr(part)
		return a
	}
	prefix, _ := netip.ParsePrefix(part)
	return prefix.Addr()
}

// lastSeparator returns the index of the last | between two parts of a key, or -1.
func lastSeparator(key string) int {
	for {
		at := strings.LastIndexByte(key, '|')
		if at < 0 || (len(key[:at])-len(strings.TrimRight(key[:at], `\`)))%2 == 0 {
			return at
		}
		key = key[:at]
	}
}

// values parses the numbers of named keys. Errors do not contain the names of secret keys.
func (p *parser) values(r *Rule, l *Limit, v strictyaml.Value) {
	if !v.Present() {
		return
	}
	if r.key.secret() {
		v = v.WithSecretFields()
	}
	entries := v.Entries()
	before := p.valueCount
	p.valueCount += len(entries)
	switch {
	case r.key.isGlobal():
		v.Errorf("values in a rule with key global: remove values, because such a rule has a single count")
		return
	case v.IsMap() && len(entries) == 0:
		v.Errorf("values is empty: remove it, or name a key")
		return
	case p.valueCount > maxValues:
		if before <= maxValues {
			v.Errorf("all rules together have %d values: use at most %d, and tiers or overrides for further keys", p.valueCount, maxValues)
		}
		return
	}
	l.values = &keyValues{keys: make(map[string]int32, len(entries))}
	index := make(map[weir.Limit]int32) // in numbers
	lines := make(map[netip.Prefix]int)
	for _, e := range entries {
		numbers, _ := p.tierNumbers(l.base, l.keep, e.Value.Map(numberFields...))
		at, known := index[numbers]
		if !known && isWhole(&numbers) && p.isValid(e.Value, numbers, l.soft) {
			at = int32(len(l.values.numbers))
			index[numbers] = at
			l.values.numbers = append(l.values.numbers, numbers)
		}
		p.addValue(r, l.values, e, at, lines)
	}
	l.values.networks = sortNetworks(l.values.networks, cmp.Compare)
}

// addValue adds the key or the network of an entry. The argument at is the index of its numbers.
func (p *parser) addValue(r *Rule, to *keyValues, e strictyaml.Entry, at int32, lines map[netip.Prefix]int) {
	named := fmt.Sprintf("value %q", e.Field)
	if r.key.secret() {
		named = "this value" // the key is a credential, which no error may contain
	}
	first, n := e.Field, 1 // the first part, and the number of parts
	if len(r.key.parts) > 1 {
		for end := lastSeparator(first); end >= 0; end = lastSeparator(first) {
			first, n = first[:end], n+1
		}
	}
	byClient := len(r.key.parts) > 0 && r.key.parts[0].from == fromClient
	prefix, isNetwork := networkOf(first)
	switch meant := foreignNetwork(first); {
	case first == "":
		e.Key.Errorf("%s is empty: name a key", named)
	case byClient && meant != "":
		e.Key.Errorf("%s has a wildcard: write %s", named, meant)
	case strings.IndexByte(e.Field, '*') >= 0:
		e.Key.Errorf("%s has a *: name whole keys; other keys have the numbers of the limit", named)
	case len(r.key.parts) == 0: // the error of the key is reported
	case n > len(r.key.parts):
		e.Key.Errorf("%s has %d parts, and the key is %s: write \\| for the character", named, n, &r.key)
	case !byClient && isNetwork && strings.IndexByte(first, '/') >= 0:
		e.Key.Errorf("%s is a network, and the key is %s: networks need a key that begins with ip", named, &r.key)
	case !byClient && len(r.key.parts) == 1:
		to.keys[string(appendPart(nil, first))] = at
	case !byClient:
		to.keys[e.Field] = at
	case !isNetwork:
		e.Key.Errorf("%s is no address or network: write one, like 192.0.2.1 or 10.0.0.0/8", named)
	case prefix.Addr().Is6() && prefix.Bits() > r.key.ipv6:
		e.Key.Errorf("%s is longer than ipv6_prefix: write %s", named, netip.PrefixFrom(prefix.Addr(), r.key.ipv6).Masked())
	case n > 1 && string(r.key.appendClient(nil, prefix.Addr())) != first:
		e.Key.Errorf("%s has further parts: its first part needs the form of keys, %s", named, r.key.appendClient(nil, prefix.Addr()))
	case n > 1:
		to.keys[e.Field] = at
	case lines[prefix] != 0:
		e.Key.Errorf("%s is named twice: remove one (the first is on %s)", named, e.Key.Line(lines[prefix]))
	default:
		lines[prefix], _ = e.Key.Position()
		to.networks = append(to.networks, network[int32]{prefix: prefix, value: at})
	}
}
