package rules

import (
	"slices"

	"github.com/weir-go/weir/internal/strictyaml"
)

// exceptions reads the exceptions of a rule, and refuses an exception that excludes every request
// of the rule, or none.
func (p *parser) exceptions(r *Rule, rulePath pattern, v strictyaml.Value) {
	items := v.OneOrMore()
	switch {
	case len(items) == 0:
		v.Errorf("the field not has no entries: remove it, or add an entry that selects the requests to leave out")
	case len(items) > maxNot:
		v.Errorf("the field not has %d entries: use at most %d in a rule", len(items), maxNot)
		return
	}
	left := r.methods // methods that no exception excludes completely
	for _, item := range items {
		e, good := p.exception(item)
		if good && p.isEffective(r, rulePath, &e, item) {
			if len(e.Hosts)+len(e.Paths)+len(e.Headers)+len(e.Tiers) == 0 && e.Clients.isEmpty() {
				if left &^= e.methods; left == 0 {
					item.Errorf("the field not leaves no request to the rule: the entries of not name all methods of the rule")
				}
			}
			r.When.Not = append(r.When.Not, e)
		}
	}
}

// exception reads an entry of the field not. If good is false, exception has added an error.
func (p *parser) exception(v strictyaml.Value) (e Exception, good bool) {
	if !v.IsMap() {
		if v.IsText() {
			v.Errorf("the field not is %q: say what it is, like {path: %s} or {method: OPTIONS}", v.Text(), orPath(v.Text()))
		} else {
			v.Map(notFields...)
		}
		return e, false
	}
	return p.conditions(v, v.Map(notFields...), "not", "the field not is empty: it would leave every request out")
}

// conditions reads the conditions of an entry of a field. If good is false, conditions has added an error.
// Without any condition, the text of the error is the argument empty.
func (p *parser) conditions(v strictyaml.Value, m strictyaml.Map, field, empty string) (e Exception, good bool) {
	e.Methods, e.methods = p.methods(m.Get("method"))
	e.Hosts = p.hosts(m.Get("host"))
	e.Headers = p.headers(m.Get("header"))
	e.Tiers, e.tiers = p.tiersOf(m.Get("tier"))
	e.Clients, good = p.clientsOf(m)
	var isGood bool
	e.Paths, e.patterns, isGood = patternsIn(m.Get("path"), field, func(strictyaml.Value, pattern) {})
	good = good && isGood
	for field, n := range map[string]int{"method": len(e.Methods), "host": len(e.Hosts), "path": len(e.Paths), "header": len(e.Headers), "tier": len(e.Tiers)} {
		if m.Get(field).Present() && n == 0 {
			good = false // the invalid values of the field have errors of their own
		}
	}
	if good && len(e.Methods)+len(e.Hosts)+len(e.Paths)+len(e.Headers)+len(e.Tiers) == 0 && e.Clients.isEmpty() {
		v.Errorf("%s", empty)
		good = false
	}
	return e, good
}

// patternsIn reads the paths of an entry of a field, and calls check for each pattern. If good is false,
// patternsIn has added an error.
func patternsIn(v strictyaml.Value, field string, check func(item strictyaml.Value, p pattern)) (texts []string, patterns []pattern, good bool) {
	items := readItems(v)
	if len(items) > maxNot {
		v.Errorf("path has %d entries: use at most %d in an entry of %s", len(items), maxNot, field)
		return nil, nil, false
	}
	for _, item := range items {
		text := item.Text()
		if !item.IsText() {
			continue
		}
		pattern, err := parsePattern(text)
		if err != nil {
			item.Errorf("%v", err)
			continue
		}
		check(item, pattern)
		texts, patterns = append(texts, text), append(patterns, pattern)
	}
	return texts, patterns, len(patterns) == len(items)
}

func orPath(text string) string {
	if text != "" && text[0] == '/' {
		return text
	}
	return "/healthz"
}

// isEffective reports whether an exception excludes some of the requests of the rule, and not all
// of them. Otherwise an error is added.
func (p *parser) isEffective(r *Rule, rulePath pattern, e *Exception, v strictyaml.Value) bool {
	none := func(what, values string) bool {
		v.Errorf("the field not has no effect: the rule applies to no request with the %s in not (%s)", what, values)
		return false
	}
	disjointHosts := func(theirs, own []string) bool {
		return len(theirs) > 0 && len(own) > 0 &&
			!slices.ContainsFunc(theirs, func(one string) bool { return coverHost(own, one) }) && !slices.ContainsFunc(own, func(one string) bool { return coverHost(theirs, one) })
	}
	switch {
	case e.methods&r.methods == 0:
		return none("method", (&Exception{Methods: e.Methods}).String())
	case e.tiers != 0 && r.tiers != 0 && e.tiers&r.tiers == 0:
		return none("tier", (&Exception{Tiers: e.Tiers}).String())
	case disjointHosts(e.Hosts, r.When.Hosts):
		return none("host", (&Exception{Hosts: e.Hosts}).String())
	}
	for i := range e.patterns {
		if !e.patterns[i].overlaps(rulePath) {
			v.Errorf("the field not has no effect: no path matches both %q of the rule and %q of not", rulePath.text, e.Paths[i])
			return false
		}
	}
	allHosts := len(e.Hosts) == 0 || len(r.When.Hosts) > 0 && !slices.ContainsFunc(r.When.Hosts, func(h string) bool { return !coverHost(e.Hosts, h) })
	allTiers := e.tiers == 0 || r.tiers != 0 && r.tiers&^e.tiers == 0
	allPaths := len(e.patterns) == 0 || slices.ContainsFunc(e.patterns, func(q pattern) bool { return q.covers(rulePath) })
	if len(e.Headers) == 0 && e.Clients.isEmpty() && r.methods&^e.methods == 0 && allHosts && allTiers && allPaths {
		v.Errorf("the field not leaves no request to the rule: all of its requests are in not (%s)", e)
		return false
	}
	return true
}
