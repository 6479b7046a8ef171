package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/httpread"
	"github.com/weir-go/weir/internal/strictyaml"
)

// route is a cost of the requests with a method and a path. An empty field is ignored.
type route struct {
	methods  methods
	patterns []pattern
	units    int64
	text     string
}

// unitsByRoute returns the cost of a request by the first of the routes that it meets, or base if it
// meets none. If the path has several readings, the highest cost of a reading counts, so that no spelling
// of a path is cheaper for a client than another. For an ambiguous path, the highest of base and of the costs of
// all routes with the method counts.
func (c *cost) unitsByRoute(r *Request, base int64) (units int64) {
	method, fold := methodOf(r.Method), c.ignoreCase || r.IgnoreCase
	if len(r.Readings) == 0 || r.Readings[0].Form == AnyForm {
		if why := r.PathAmbiguity(); why != "" && why != httpread.EscapedSlash {
			units = base
			for i := range c.routes {
				if c.routes[i].methods&method != 0 {
					units = max(units, c.routes[i].units)
				}
			}
			return units
		}
	}
	var room [lookupRoom]lookup
	for _, l := range appendLookups(room[:0], r, fold) {
		of := base
		for i := range c.routes {
			if c.routes[i].admits(method, l.path, fold) {
				of = c.routes[i].units
				break
			}
		}
		units = max(units, of)
	}
	return units
}

func (t *route) admits(method methods, path string, fold bool) bool {
	if t.methods&method == 0 {
		return false
	}
	return len(t.patterns) == 0 || slices.ContainsFunc(t.patterns, func(p pattern) bool { return p.meets(path, fold) })
}

// routes reads the costs by method and path.
func (p *parser) routes(r *Rule, v strictyaml.Value) (all []route) {
	items := readItems(v)
	if len(items) > maxNot {
		v.Errorf("by has %d entries: use at most %d", len(items), maxNot)
		return nil
	}
	for _, item := range items {
		m := item.Map(routeFields...)
		t := route{units: m.Get("units").Required().Int(0, maxRate)}
		var names []string
		names, t.methods = p.methods(m.Get("method"))
		switch {
		case !item.IsMap():
			continue
		case !m.HasAny("method", "path"):
			item.Errorf("by has an entry for all requests: give it a method or a path, or use default")
		case t.methods&r.methods == 0 && len(names) > 0:
			m.Get("method").Errorf("by has no effect: the rule applies to no request with the method in by (%s)", strings.Join(names, " or "))
		}
		paths, patterns, _ := patternsIn(m.Get("path"), "by", func(path strictyaml.Value, p pattern) {
			if len(r.key.pattern.segments) > 0 && !p.overlaps(r.key.pattern) {
				path.Errorf("by has no effect: no path matches both %q of the rule and %q of by", r.key.pattern.text, p.text)
			}
		})
		t.patterns = patterns
		t.text = fmt.Sprintf("%d for %s", t.units, strings.Join(append(names, paths...), " or "))
		all = append(all, t)
	}
	return all
}
