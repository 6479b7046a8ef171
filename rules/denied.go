package rules

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
)

// Denied has the texts of denials for a tier. An empty Template is not used. A Denied is shared, and must
// not be changed.
type Denied struct {
	Title, Detail Template
	UpgradeURL    Template // begins with http://, https:// or /
	HTML          Template // a page, which may also have the placeholders title, detail and upgrade_url
	Headers       []DeniedHeader
}

// DeniedHeader is a field of the header of a denial. The name is canonical, and the value has only
// printable characters of ASCII.
type DeniedHeader struct {
	Name  string
	Value Template
}

// Template is a text with placeholders.
type Template []templatePart

// templatePart is a text, and the name of the placeholder after it. The last part has no name.
type templatePart struct{ text, name string }

// Expand returns the text with the values of the placeholders: limit, remaining, units, retry_after,
// reset, window, rule, name and tier.
func (t Template) Expand(value func(name string) string) string {
	var b strings.Builder
	for _, s := range t {
		b.WriteString(s.text)
		if s.name != "" {
			b.WriteString(value(s.name))
		}
	}
	return b.String()
}

var (
	placeholders     = []string{"limit", "remaining", "units", "retry_after", "reset", "window", "rule", "name", "tier"}
	htmlPlaceholders = append([]string{"title", "detail", "upgrade_url"}, placeholders...)

	// placeholderLike matches placeholders, and texts that were meant as placeholders. Other braces, such
	// as those of CSS, are part of the text.
	placeholderLike = regexp.MustCompile(`\{+[A-Za-z_.]+\}+`)
)

// Denied returns the texts of denials for a tier, or nil if the file has none for the rule.
func (r *Rule) Denied(tier string) *Denied {
	if r.denied == nil {
		return nil
	}
	return r.denied[r.Limits[0].set.tier(tier)+1]
}

// denied reads the texts of denials for each tier. Element 0 is for requests without a tier. A text that v
// lacks is copied from base.
func (p *parser) denied(v strictyaml.Value, base []*Denied) []*Denied {
	if !v.Present() {
		return base
	}
	m := v.Map(deniedFields...)
	if v.IsMap() && len(v.Fields()) == 0 {
		v.Errorf("denied is empty: remove it, or add title, detail, upgrade_url, html or headers")
	}
	own, ofTiers := p.deniedTexts(m), m.Get("tiers").Entries()
	all := make([]*Denied, 1+len(p.set.tiers))
	for i := range all {
		all[i] = new(Denied)
		if base != nil {
			*all[i] = *base[i]
		}
		all[i].replace(own)
	}
	for _, e := range ofTiers {
		if i, ok := p.set.tierAt[e.Field]; ok {
			all[i+1].replace(p.deniedTexts(e.Value.Map(deniedTextFields...)))
		} else {
			e.Key.Errorf("unknown tier %q: %s", e.Field, enum.Suggest(e.Field, p.set.tiers))
		}
	}
	return all
}

// replace replaces the texts and the header fields of d by those of other. A text that other lacks stays, and so
// do the header fields if other has none.
func (d *Denied) replace(other *Denied) {
	for to, from := range map[*Template]Template{&d.Title: other.Title, &d.Detail: other.Detail, &d.UpgradeURL: other.UpgradeURL, &d.HTML: other.HTML} {
		if from != nil {
			*to = from
		}
	}
	if other.Headers != nil {
		d.Headers = other.Headers
	}
}

func (p *parser) deniedTexts(m strictyaml.Map) *Denied {
	d := &Denied{
		Title:  template("title", m.Get("title"), maxDeniedText, placeholders),
		Detail: template("detail", m.Get("detail"), maxDeniedText, placeholders),
		HTML:   template("html", m.Get("html"), maxDeniedHTML, htmlPlaceholders),
	}
	v := m.Get("upgrade_url")
	d.UpgradeURL = template("upgrade_url", v, maxDeniedText, placeholders)
	u, err := url.Parse(d.UpgradeURL.Expand(func(string) string { return "1" }))
	if d.UpgradeURL != nil && (err != nil || u.Scheme != "https" && u.Scheme != "http" && (u.Scheme != "" || !strings.HasPrefix(u.Path, "/")) || u.Scheme != "" && u.Host == "") {
		v.Errorf("upgrade_url is %q: use one that begins with https:// or /", v.Text())
	}
	fields := m.Get("headers").Entries()
	if len(fields) > maxDeniedHeaders {
		m.Get("headers").Errorf("headers has %d fields: use at most %d", len(fields), maxDeniedHeaders)
		return d
	}
	for _, e := range fields {
		h := DeniedHeader{Name: p.headerName(e.Key, e.Field), Value: template(e.Field, e.Value, maxDeniedText, placeholders)}
		text := h.Value.Expand(func(string) string { return "1" })
		switch {
		case slices.Contains(connectionFields, h.Name) || strings.HasPrefix(h.Name, "Proxy-"):
			e.Key.Errorf("header %q belongs to the connection or to the form of the body: remove it", e.Field)
		case slices.Contains(weirFields, h.Name) || strings.HasPrefix(h.Name, "X-Ratelimit-"):
			e.Key.Errorf("header %q is set by Weir itself: remove it", e.Field)
		case slices.ContainsFunc(d.Headers, func(other DeniedHeader) bool { return other.Name == h.Name }):
			e.Key.Errorf("header %q is named twice: remove one", e.Field)
		case text != strings.TrimSpace(text) || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }):
			e.Value.Errorf("%s is %q: use printable characters of ASCII, without line breaks", e.Field, text)
		}
		d.Headers = append(d.Headers, h)
	}
	return d
}

// connectionFields and weirFields are fields that a file must not set.
var (
	connectionFields = []string{"Connection", "Content-Encoding", "Content-Length", "Content-Range", "Content-Type", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
	weirFields       = []string{"Cache-Control", "Date", "Ratelimit", "Ratelimit-Policy", "Retry-After", "X-Content-Type-Options", "X-Weir-Status"}
)

// template reads a text with placeholders.
func template(field string, v strictyaml.Value, maxBytes int, known []string) (t Template) {
	text := v.Text()
	switch {
	case !v.IsText():
		return nil
	case text == "":
		v.Errorf("%s is empty: remove it, or add a text", field)
	case len(text) > maxBytes:
		v.Errorf("%s has %d bytes: use at most %d", field, len(text), maxBytes)
	}
	at := 0
	for _, i := range placeholderLike.FindAllStringIndex(text, -1) {
		like := text[i[0]:i[1]]
		name := strings.Trim(like, "{}")
		switch {
		case !slices.Contains(known, name):
			v.Errorf("%s has the unknown placeholder %q: %s", field, like, enum.Suggest(name, known))
		case like != "{"+name+"}":
			v.Errorf("%s has %q: write {%s}", field, like, name)
		}
		t = append(t, templatePart{text[at:i[0]], name})
		at = i[1]
	}
	return append(t, templatePart{text: text[at:]})
}
