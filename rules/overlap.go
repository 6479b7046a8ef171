package rules

import (
	"slices"
)

// MaxMet is the maximum number of limits that a request may meet: a node can decide on as many
// together (weir.Node.AllowAll). Parse refuses a file if a request could meet more. A request
// with several lines of a header field, or with a path whose escapes can be read in two ways,
// meets the rules for each line and for each reading. Such a request can therefore meet more than
// MaxMet limits, and Match stops one rule above MaxMet.
const MaxMet = 255

// meetingCounter computes how many limits a request can meet.
type meetingCounter struct {
	kinds int // number of kinds of requests: pairs of a method and a tier, where the last tier stands for none
	tiers int
	sizes map[*place][]int32
}

func newMeetingCounter(tiers int) *meetingCounter {
	return &meetingCounter{(len(methodNames) + 1) * (tiers + 1), tiers, make(map[*place][]int32)}
}

// size returns the number of limits in the rules of a place, for each kind of request. It
// assumes that each header field of a request has a single line.
func (c *meetingCounter) size(at *place) []int32 {
	if sizes, known := c.sizes[at]; known {
		return sizes
	}
	sizes := c.count(at.rules)
	for _, h := range at.byValue {
		most := make([]int32, c.kinds)
		for _, rules := range h.rules {
			for i, n := range c.count(rules) {
				most[i] = max(most[i], n)
			}
		}
		for i := range sizes {
			sizes[i] += most[i]
		}
	}
	c.sizes[at] = sizes
	return sizes
}

func (c *meetingCounter) count(rules []*Rule) []int32 {
	sizes := make([]int32, c.kinds)
	for _, r := range rules {
		for i := range sizes {
			method, tier := i/(c.tiers+1), i%(c.tiers+1)
			if r.methods&(1<<method) != 0 && (r.tiers == 0 || r.tiers&(1<<tier) != 0) {
				sizes[i] += int32(len(r.Limits))
			}
		}
	}
	return sizes
}

// countMost returns the maximum number of limits for a request whose path meets the given places.
func (c *meetingCounter) countMost(places []*place) int {
	sum := make([]int32, c.kinds)
	for _, at := range places {
		for i, n := range c.size(at) {
			sum[i] += n
		}
	}
	return int(slices.Max(sum))
}

// checkCrowds reports an error if a request can meet more than MaxMet limits.
func (p *parser) checkCrowds() {
	c := newMeetingCounter(len(p.set.tiers))
	largest := make(map[*tree]int) // maximum number of limits in each tree
	for t, paths := range p.paths {
		for _, path := range paths {
			largest[t] = max(largest[t], c.countMost(t.places(path)))
		}
	}
	check := func(host string, trees []*tree) (crowded bool) {
		sum := 0
		trees = append(trees, &p.set.any)
		for t := range p.set.treesAbove(host) {
			trees = append(trees, t)
		}
		for _, t := range trees {
			sum += largest[t]
		}
		if sum <= MaxMet {
			return false
		}
		for _, t := range trees {
			for _, path := range p.paths[t] {
				var places []*place
				for _, t := range trees {
					places = append(places, t.places(path)...)
				}
				if p.tooMany(c, path, places) {
					return true
				}
			}
		}
		return false
	}
	for host, t := range p.set.hosts {
		if check(host, []*tree{t}) {
			return
		}
	}
	for host := range p.set.below {
		if check("x"+host, nil) {
			return
		}
	}
	check("", nil)
}

// tooMany reports whether a request to a path can meet too many limits. In this case it adds an
// error at the last of the rules that the request can meet.
func (p *parser) tooMany(c *meetingCounter, path string, places []*place) bool {
	n := c.countMost(places)
	if n <= MaxMet {
		return false
	}
	var last insertion
	for _, one := range p.insertions {
		if slices.ContainsFunc(places, func(at *place) bool { return at.hasRule(one.rule) }) && (last.rule == nil || one.rule.Index > last.rule.Index) {
			last = one
		}
	}
	last.at.Errorf("a request for %s can meet %d limits, of this rule and others: at most %d are decided together; match them more narrowly, or remove some", path, n, MaxMet)
	return true
}

func (p *place) hasRule(r *Rule) bool {
	if slices.Contains(p.rules, r) {
		return true
	}
	for _, h := range p.byValue {
		for _, rules := range h.rules {
			if slices.Contains(rules, r) {
				return true
			}
		}
	}
	return false
}

// paths returns paths that together meet each place that a path of the pattern can meet: a
// path that the pattern matches and, if the pattern ends with a slash after a segment, the same
// path without the slash.
func (p pattern) paths() []string {
	path := p.example()
	if last := p.segments[len(p.segments)-1].kind; last != slash && last != rest || len(p.segments) == 1 {
		return []string{path}
	}
	whole := pattern{segments: p.segments[:len(p.segments)-1]}
	return []string{path, whole.example()}
}

// places returns the places whose rules a request to a path meets.
func (t *tree) places(path string) (all []*place) {
	for _, slashed := range []bool{false, true} {
		for at := t.find(path, slashed && path[len(path)-1] != '/', true); at != nil && !slices.Contains(all, at); at = at.parent {
			all = append(all, at)
		}
	}
	return all
}
