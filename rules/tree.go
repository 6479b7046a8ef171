package rules

import (
	"cmp"
	"slices"
	"strings"
)

// tree finds the patterns that match a path. insert refuses a pattern that overlaps with another
// pattern if neither is more general, and must be called for the more general patterns first.
// Therefore the patterns that match a path are nested: they are the most specific pattern and its
// parents. Match relies on this. If a pattern were inserted before a more general pattern, its
// parent would be wrong, because parents are set once.
//
// The search is that of http.ServeMux: a literal segment is more specific than a wildcard, and a
// wildcard is more specific than the rest.
type tree struct {
	literals map[string]*tree
	cased    map[string][]*tree // the trees of literals with upper case, by the text in lower case
	hasCased bool               // only in the root: whether any tree below has cased
	wild     *tree
	end      *place // the pattern that ends here
	slash    *place // the pattern that ends here with {$}
	rest     *place // the pattern that ends here with a rest
}

// place is a pattern in a tree, with its rules.
type place struct {
	pattern pattern
	parent  *place  // the next more general pattern
	rules   []*Rule // without the rules in byValue
	byValue []byValue
}

// byValue has the rules that require certain values of a header field, certain users or certain API
// keys. There may be a rule for each of many tenants.
type byValue struct {
	of    part
	rules map[string][]*Rule
}

// valuesOf returns a part of a request and the values of this part that a rule requires: a request meets the
// rule only if the part has one of the values. Without such a condition, values is empty.
func valuesOf(r *Rule) (of part, values []string) {
	for _, h := range r.When.Headers {
		if len(h.Values) > 0 {
			return part{from: fromHeader, name: h.Name}, h.Values
		}
	}
	if len(r.When.Users) > 0 {
		return part{from: fromUser}, r.When.Users
	}
	return part{from: fromAPIKey}, r.When.apiKeys
}

func (p *place) add(r *Rule) {
	of, values := valuesOf(r)
	if len(values) == 0 {
		p.rules = append(p.rules, r)
		return
	}
	at := slices.IndexFunc(p.byValue, func(b byValue) bool { return b.of == of })
	if at < 0 {
		at = len(p.byValue)
		p.byValue = append(p.byValue, byValue{of, make(map[string][]*Rule)})
	}
	for _, value := range values {
		if !slices.Contains(p.byValue[at].rules[value], r) {
			p.byValue[at].rules[value] = append(p.byValue[at].rules[value], r)
		}
	}
}

// insert returns the place of a pattern, and adds it if necessary. The pattern must not be more
// general than a pattern in the tree (see pattern.generality). If a pattern in the tree overlaps
// with it and neither is more general, insert returns the place of that pattern as conflict.
func (t *tree) insert(p pattern) (at, conflict *place) {
	if conflict = t.conflict(p.segments, false, false); conflict != nil {
		return nil, conflict
	}
	parent, root := t.find(p.example(), false, true), t
	for _, s := range p.segments {
		var next **place
		switch s.kind {
		case literal:
			if t.literals == nil {
				t.literals = make(map[string]*tree)
			}
			if t.literals[s.text] == nil {
				t.literals[s.text] = new(tree)
				if lower := strings.ToLower(s.text); lower != s.text {
					if t.cased == nil {
						t.cased = make(map[string][]*tree)
					}
					t.cased[lower] = append(t.cased[lower], t.literals[s.text])
					root.hasCased = true
				}
			}
			t = t.literals[s.text]
			continue
		case wild:
			if t.wild == nil {
				t.wild = new(tree)
			}
			t = t.wild
			continue
		case slash:
			next = &t.slash
		case rest:
			next = &t.rest
		}
		return fill(next, p, parent), nil
	}
	return fill(&t.end, p, parent), nil
}

func fill(at **place, p pattern, parent *place) *place {
	if *at == nil {
		*at = &place{pattern: p, parent: parent}
	}
	return *at
}

// conflict returns a place whose pattern conflicts with p: both match some path, and each matches a
// path that the other does not match. pIs and otherIs report whether p and the other pattern were more
// specific in an earlier segment.
func (t *tree) conflict(p []segment, pIs, otherIs bool) *place {
	if t == nil {
		return nil
	}
	if len(p) == 0 {
		return placeIfBoth(t.end, pIs, otherIs)
	}
	if c := placeIfBoth(t.rest, pIs || p[0].kind != rest, otherIs); c != nil {
		return c
	}
	switch p[0].kind {
	case literal:
		if c := t.literals[p[0].text].conflict(p[1:], pIs, otherIs); c != nil {
			return c
		}
		return t.wild.conflict(p[1:], true, otherIs)
	case wild:
		for _, next := range t.literals {
			if c := next.conflict(p[1:], pIs, true); c != nil {
				return c
			}
		}
		return t.wild.conflict(p[1:], pIs, otherIs)
	case slash:
		return placeIfBoth(t.slash, pIs, otherIs)
	}
	return t.placeBelow(pIs)
}

// placeBelow returns any place below t, or nil. All these places overlap with a pattern whose rest
// begins here, and are more specific from here on.
func (t *tree) placeBelow(pIs bool) *place {
	if t == nil || !pIs {
		return nil
	}
	if at := cmp.Or(t.slash, t.wild.anyPlace()); at != nil {
		return at
	}
	for _, next := range t.literals {
		if at := next.anyPlace(); at != nil {
			return at
		}
	}
	return nil
}

func (t *tree) anyPlace() *place {
	if t == nil {
		return nil
	}
	return cmp.Or(t.end, t.rest, t.placeBelow(true))
}

func placeIfBoth(at *place, pIs, otherIs bool) *place {
	if pIs && otherIs {
		return at
	}
	return nil
}

// find returns the most specific place that matches a path, or nil. If slashed is true, the path
// has an additional final slash. If escaped is true, the segments of the path are decoded before
// they are compared.
func (t *tree) find(path string, slashed, escaped bool) *place {
	if path == "" {
		if !slashed {
			return t.end
		}
		path = "/"
	}
	if path == "/" {
		if t.slash != nil {
			return t.slash
		}
		return t.rest
	}
	part, _, _ := strings.Cut(path[1:], "/")
	after := path[1+len(part):]
	if len(t.literals) > 0 {
		text := part
		if escaped {
			text = unescape(part)
		}
		if next := t.literals[text]; next != nil {
			if at := next.find(after, slashed, escaped); at != nil {
				return at
			}
		}
	}
	if t.wild != nil {
		if at := t.wild.find(after, slashed, escaped); at != nil {
			return at
		}
	}
	return t.rest
}

// collectAnyCase collects the places that match a path in any case. These need not be nested, so
// each of them is looked up.
func (m *match) collectAnyCase(t *tree, path string, slashed, escaped bool) {
	if t == nil {
		return
	}
	if path == "" {
		if !slashed {
			m.collect(t.end)
			return
		}
		path = "/"
	}
	m.collect(t.rest)
	if path == "/" {
		m.collect(t.slash)
		return
	}
	part, _, _ := strings.Cut(path[1:], "/")
	after := path[1+len(part):]
	m.collectAnyCase(t.wild, after, slashed, escaped)
	if escaped {
		part = unescape(part)
	}
	part = strings.ToLower(part)
	m.collectAnyCase(t.literals[part], after, slashed, escaped)
	for _, next := range t.cased[part] {
		m.collectAnyCase(next, after, slashed, escaped)
	}
}
