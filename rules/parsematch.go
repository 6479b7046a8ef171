package rules

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/strictyaml"
)

func (p *parser) match(r *Rule, v, rule strictyaml.Value) {
	m, at := v.Map(matchFields...), rule
	if v.Present() {
		at = v
	}
	r.When.Methods, r.methods = p.methods(m.Get("method"))
	r.When.Hosts = p.hosts(m.Get("host"))
	r.When.Path = "/"
	if path := m.Get("path"); path.Present() {
		at = path
		if text := path.Text(); path.IsText() {
			r.When.Path = text
		}
	}
	r.When.Headers = p.headers(m.Get("header"))
	r.When.Tiers, r.tiers = p.tiersOf(m.Get("tier"))
	r.When.Clients, _ = p.clientsOf(m)
	pattern, err := parsePattern(r.When.Path)
	if err != nil {
		at.Errorf("%v", err)
		return
	}
	r.key.pattern = pattern
	p.insertions = append(p.insertions, insertion{at: at, rule: r, pattern: pattern})
	if not := m.Get("not"); not.Present() {
		p.exceptions(r, pattern, not)
	}
}

// methods reads a method or a list of methods. Without a value, the result is the set of all methods.
func (p *parser) methods(v strictyaml.Value) (names []string, set methods) {
	if !v.Present() {
		return nil, everyMethod
	}
	names = namesIn(v, "method", methodNames, foreignMethod)
	for _, name := range names {
		set |= methodOf(name)
		if name == http.MethodGet {
			set |= methodOf(http.MethodHead)
		}
	}
	return names, set
}

// namesIn reads names that must be among the known names. The function foreign returns the remedy for a text
// that another product reads as a pattern.
func namesIn(v strictyaml.Value, what string, known []string, foreign func(text string) string) (names []string) {
	for _, item := range readItems(v) {
		if item.IsText() && foreign(item.Text()) != "" {
			item.Errorf("%s is %q: %s", what, item.Text(), foreign(item.Text()))
		} else if name := item.OneOf(what, known); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (p *parser) hosts(v strictyaml.Value) (hosts []string) {
	for _, item := range readItems(v) {
		if host := p.host(item); host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

func (p *parser) headers(v strictyaml.Value) (headers []Header) {
	entries := v.Entries()
	if v.IsMap() && len(entries) == 0 {
		v.Errorf("header is empty: remove it, or name a field")
	}
	for _, e := range entries {
		headers = append(headers, p.header(e))
	}
	return headers
}

func (p *parser) tiersOf(v strictyaml.Value) (names []string, set uint64) {
	names = namesIn(v, "tier", p.set.tiers, foreignTier)
	for _, name := range names {
		set |= 1 << p.set.tierAt[name]
	}
	return names, set
}

// host reads a host, and returns "" for an invalid host.
func (p *parser) host(v strictyaml.Value) string {
	text, exact := textOf(v)
	if !v.IsText() && !exact {
		return ""
	}
	if below, ok := strings.CutPrefix(text, "*."); ok && !exact && below != "" && foreignHost(below) == "" {
		if below = p.hostName(v, below, false); below != "" {
			return "*." + below
		}
		return ""
	}
	return p.hostName(v, text, exact)
}

// hostName is like host, for a host without a wildcard.
func (p *parser) hostName(v strictyaml.Value, text string, exact bool) string {
	switch {
	case text != "" && !exact && foreignHost(text) != "":
		v.Errorf("host is %q: %s", text, foreignHost(text))
	case text == "" || strings.ContainsAny(text, "*/ \t{}@"):
		v.Errorf("host is %q: use a name or an address, like api.example.com", text)
	case strings.ContainsFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }):
		v.Errorf("host is %q: clients send a name in ASCII, like xn--mnchen-3ya.de for münchen.de", text)
	case hostOf(text) != strings.ToLower(text):
		v.Errorf("host is %q: did you mean %q? A port and a final dot do not matter", text, hostOf(text))
	default:
		return hostOf(text)
	}
	return ""
}

func (p *parser) header(e strictyaml.Entry) Header {
	h := Header{Name: p.headerName(e.Key, e.Field)}
	anyValue := false
	h.Values = textList(e.Value, func(item strictyaml.Value, text string) {
		if text == "*" {
			anyValue = true
		} else {
			refusePattern(item, e.Field, text, false)
		}
	})
	if anyValue {
		if len(h.Values) > 1 {
			e.Value.Errorf("%s is * among others: use * alone, because it stands for any value", e.Field)
		}
		h.Values = nil
	}
	return h
}

// headerName validates and canonicalizes the name of a header field. Characters that are
// patterns in other products must be written as escapes.
func (p *parser) headerName(v strictyaml.Value, text string) string {
	name, err := url.PathUnescape(text)
	if err != nil {
		v.Errorf("header %q: %% begins an escape of two hexadecimal digits: write %%25 for the character", text)
		return ""
	}
	name = http.CanonicalHeaderKey(name)
	switch i := strings.IndexAny(text, "!*^$|~"); {
	case i == 0 && text[0] == '!' && len(text) > 1:
		v.Errorf("header %q: ! does not negate here: write not: {header: {%s: \"*\"}} in match, or %%21 for the character", text, text[1:])
	case i >= 0:
		v.Errorf("header %q: %c is not a wildcard here: name each field, or write %%%02X for the character", text, text[i], text[i])
	case name == "" || strings.ContainsFunc(name, notOfToken):
		v.Errorf("header %q is not the name of a field: use letters, digits and -", text)
	case name == "Host":
		v.Errorf("header %q is matched by match.host: use that", text)
	}
	return name
}

func notOfToken(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
