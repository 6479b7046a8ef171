package rules

import (
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/strictyaml"
)

// insertion is a rule to be inserted into the trees.
type insertion struct {
	at      strictyaml.Value
	rule    *Rule
	pattern pattern
}

// insertRules inserts the rules into the trees, the more general patterns first.
func (p *parser) insertRules() {
	slices.SortStableFunc(p.insertions, func(a, b insertion) int {
		af, al, aw := a.pattern.generality()
		bf, bl, bw := b.pattern.generality()
		return slices.Compare([]int{af, al, aw}, []int{bf, bl, bw})
	})
	inserted := make(map[*place]insertion)
	for _, one := range p.insertions {
		for _, t := range p.trees(one.rule) {
			at, conflict := t.insert(one.pattern)
			if conflict != nil {
				p.conflict(one, inserted[conflict])
				continue
			}
			if _, there := inserted[at]; !there {
				inserted[at] = one
				p.paths[t] = append(p.paths[t], one.pattern.paths()...)
			}
			at.add(one.rule)
		}
	}
}

// trees returns the trees that contain a rule: a tree for each of its hosts, or the tree for all
// hosts.
func (p *parser) trees(r *Rule) (trees []*tree) {
	if len(r.When.Hosts) == 0 {
		return []*tree{&p.set.any}
	}
	s := p.set
	for _, host := range r.When.Hosts {
		in := s.hosts
		if below, ok := strings.CutPrefix(host, "*"); ok {
			in, host = s.below, below
			s.hostLabels = max(s.hostLabels, strings.Count(host, "."))
		}
		if in[host] == nil {
			in[host] = new(tree)
		}
		trees = append(trees, in[host])
	}
	return trees
}

// conflict adds an error at the later of two patterns that conflict.
func (p *parser) conflict(one, other insertion) {
	line, column := one.at.Position()
	if l, c := other.at.Position(); slices.Compare([]int{l, c}, []int{line, column}) > 0 {
		one, other = other, one
	}
	line, _ = other.at.Position()
	one.at.Errorf("path %q conflicts with %q of rule %q on %s: some paths match both, and neither is more specific; replace one of them with several patterns that do not conflict",
		one.pattern.text, other.pattern.text, other.rule.Name, other.at.Line(line))
}
