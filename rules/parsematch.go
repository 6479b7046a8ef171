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
	if v.IsText() && foreignMethod(v.Text()) != "" {
		v.Errorf("method is %q: %s", v.Text(), foreignMethod(v.Text()))
		return
	}
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
	text, exact := textOf(v)
	if !v.IsText() && !exact {
		return
	}
	switch {
	case text != "" && !exact && foreignHost(text) != "":
		v.Errorf("host is %q: %s", text, foreignHost(text))
	case text == "" || strings.ContainsAny(text, "/ \t{}@"):
		v.Errorf("host is %q: use a name or an address, like api.example.com", text)
	case strings.ContainsFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }):
		v.Errorf("host is %q: clients send a name in ASCII, like xn--mnchen-3ya.de for münchen.de", text)
	case hostOf(text) != strings.ToLower(text):
		v.Errorf("host is %q: did you mean %q? A port and a final dot do not matter", text, hostOf(text))
	case !slices.Contains(r.When.Hosts, hostOf(text)):
		r.When.Hosts = append(r.When.Hosts, hostOf(text))
	}
}

func (p *parser) header(r *Rule, e strictyaml.Entry) {
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
			e.Value.Errorf("%s is * among others: * stands for any value", e.Field)
		}
		h.Values = nil
	}
	r.When.Headers = append(r.When.Headers, h)
}

// headerName checks and canonicalizes the name of a field of a request's header. The
// characters of other products' patterns are written as escapes.
func (p *parser) headerName(v strictyaml.Value, text string) string {
	name, err := url.PathUnescape(text)
	if err != nil {
		v.Errorf("header %q: %% begins an escape of two hexadecimal digits: write %%25 for the character", text)
		return ""
	}
	name = http.CanonicalHeaderKey(name)
	switch i := strings.IndexAny(text, "!*^$|~"); {
	case i == 0 && text[0] == '!' && len(text) > 1:
		v.Errorf("header %q: ! is no negation here: write not: {header: {%s: \"*\"}} in match, or %%21 for the character", text, text[1:])
	case i >= 0:
		v.Errorf("header %q: %c is no wildcard and no expression here: name each field, or write %%%02X for the character", text, text[i], text[i])
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
