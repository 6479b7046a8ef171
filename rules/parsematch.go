package rules

import (
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/strictyaml"
)

func (p *parser) match(r *Rule, v, rule strictyaml.Value) {
	r.methods, r.When.Path = everyMethod, "/"
	at := v
	if v.Present() {
		m := v.Map(matchFields...)
		if m.Get("method").Present() {
			r.methods = 0
			for _, method := range m.Get("method").OneOrMore() {
				p.method(r, method)
			}
		}
		for _, host := range m.Get("host").OneOrMore() {
			p.host(r, host)
		}
		if path := m.Get("path"); path.Present() {
			at, r.When.Path = path, path.Text()
			if !path.IsText() {
				r.When.Path = "/"
			}
		}
		for _, e := range entriesOf(m.Get("header")) {
			p.header(r, e)
		}
		for _, tier := range m.Get("tier").OneOrMore() {
			if name := tier.OneOf("tier", p.set.tiers); name != "" {
				r.When.Tiers = append(r.When.Tiers, name)
				r.tiers |= 1 << p.set.tierAt[name]
			}
		}
	} else {
		at = rule
	}
	pattern, err := parsePattern(r.When.Path)
	if err != nil {
		at.Errorf("%v", err)
		return
	}
	p.plants = append(p.plants, plant{at: at, rule: r, pattern: pattern})
}

func (p *parser) method(r *Rule, v strictyaml.Value) {
	name := v.OneOf("method", methodNames)
	if name == "" {
		return
	}
	r.When.Methods = append(r.When.Methods, name)
	r.methods |= methodOf(name)
	if name == http.MethodGet {
		r.methods |= methodOf(http.MethodHead)
	}
}

func (p *parser) host(r *Rule, v strictyaml.Value) {
	text := v.Text()
	if !v.IsText() {
		return
	}
	switch {
	case text == "" || strings.ContainsAny(text, "/ \t{}@"):
		v.Errorf("host is %q: use a name or an address, like api.example.com", text)
	case strings.ContainsFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }):
		v.Errorf("host is %q: clients send a name in ASCII, like xn--mnchen-3ya.de for münchen.de", text)
	case strings.Contains(text, "*"):
		v.Errorf("host is %q: hosts have no wildcards, list each host, or leave it out to match all", text)
	case hostOf(text) != strings.ToLower(text):
		v.Errorf("host is %q: did you mean %q? A port and a final dot do not matter", text, hostOf(text))
	case !slices.Contains(r.When.Hosts, hostOf(text)):
		r.When.Hosts = append(r.When.Hosts, hostOf(text))
	}
}

func (p *parser) header(r *Rule, e strictyaml.Entry) {
	h := Header{Name: p.headerName(e.Key, e.Field), Values: textList(e.Value)}
	if slices.Contains(h.Values, "*") {
		if len(h.Values) > 1 {
			e.Value.Errorf("%s is * among others: * stands for any value", e.Field)
		}
		h.Values = nil
	}
	r.When.Headers = append(r.When.Headers, h)
}

// headerName checks and canonicalizes the name of a field of a request's header.
func (p *parser) headerName(v strictyaml.Value, text string) string {
	name := http.CanonicalHeaderKey(text)
	switch {
	case name == "" || strings.ContainsFunc(name, notOfToken):
		v.Errorf("header %q is no name of a field", text)
	case name == "Host":
		v.Errorf("header %q is no field here: use match.host", text)
	}
	return name
}

func notOfToken(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
