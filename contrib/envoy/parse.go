package envoylimit

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
)

// Parse reads the configuration of a domain, in the format of envoyproxy/ratelimit. Errors
// contain the argument name. The error joins at most 20 errors in the text, each with line
// and column, and states the number of further errors. A field that is unknown or has no
// effect is an error.
func Parse(name string, text []byte) (*Config, error) {
	d, err := parse(name, text, false)
	if err != nil {
		return nil, err
	}
	return &Config{domains: map[string]*domain{d.name: d}}, nil
}

// parse reads the domain of a file. If the argument part is set, the file may contain only a
// part of the domain, and a limit may replace a limit of another part.
func parse(name string, text []byte, part bool) (*domain, error) {
	file, err := strictyaml.Parse(name, text)
	if err != nil {
		return nil, err
	}
	d := &domain{file: name, top: newLevel()}
	root := file.Root().Map("domain", "descriptors")
	at := root.Get("domain").Required()
	d.name = at.Literal()
	if at.Present() && at.IsText() && d.name == "" {
		at.Errorf(`"domain" is empty: use the name that Envoy sends`)
	}
	d.line, d.column = at.Position()
	r := reader{domain: d}
	if list := root.Get("descriptors"); !list.IsNull() {
		d.parts = r.level(d.top, list, d.name)
	}
	if !part {
		d.unreplaced(func(i int, why string) { r.replaces[i].Errorf("%s", why) })
	}
	return d, file.Err()
}

// reader reads the descriptors of a domain.
type reader struct {
	domain   *domain
	replaces []strictyaml.Value // values of the names in domain.replaces, for their positions in errors
}

// replacing is the name of a limit that another limit replaces.
type replacing struct {
	name string
	at   *strictyaml.Error // position of the name, without a message
}

var (
	descriptorFields = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "debit", "share_threshold", "detailed_metric", "value_to_metric", "metadata"}
	limitFields      = []string{"unit", "requests_per_unit", "unlimited", "name", "replaces"}
)

// level reads a list of descriptors into l, and returns the added descriptors. The argument
// path is the path of their parent.
func (r *reader) level(l *level, list strictyaml.Value, path string) (added []part) {
	lines := make(map[entry]int)
	for _, v := range list.List() {
		d := r.descriptor(v, path)
		if d.key == "" {
			continue // already reported
		}
		line, _ := v.Position()
		of := entry{d.key, d.value}
		if first, twice := lines[of]; twice {
			v.Errorf("a descriptor repeats this key and value: remove one (the first is on line %d)", first)
			continue
		}
		lines[of] = line
		l.add(d)
		added = append(added, part{d, r.errorAt(v)})
	}
	return added
}

// errorAt returns an error without a message at the position of a value.
func (r *reader) errorAt(v strictyaml.Value) *strictyaml.Error {
	line, column := v.Position()
	return strictyaml.NewError(r.domain.file, line, column, "")
}

func (r *reader) descriptor(v strictyaml.Value, path string) *descriptor {
	m := v.Map(descriptorFields...)
	d := new(descriptor)
	if !v.IsMap() {
		return d
	}
	key := m.Get("key").Required()
	d.key = key.Literal()
	if key.IsText() && d.key == "" {
		key.Errorf(`"key" is empty: use the key of the entries that the descriptor is for`)
	} else if err := keyError(d.key); err != nil {
		key.Errorf("%v", err)
	}
	d.setValue(m.Get("value").Literal())
	d.valued = m.Get("value_to_metric").Bool()
	if share := m.Get("share_threshold"); share.Bool() {
		d.shared = d.parts != nil
		if !d.shared {
			share.Errorf("share_threshold is for a value that has a *: remove it, or make the value a pattern")
		}
	}
	path += "." + d.label()
	if at := m.Get("rate_limit"); at.Present() {
		d.limit = r.limit(at, path)
		d.limit.shadow = m.Get("shadow_mode").Bool()
		d.limit.quota = m.Get("quota_mode").Bool()
		d.limit.debit = m.Get("debit").Bool()
		d.limit.detailed = m.Get("detailed_metric").Bool()
		if d.limit.shadow && d.limit.quota {
			m.Get("quota_mode").Errorf("quota_mode has no effect beside shadow_mode: remove one of them")
		}
		r.domain.limits = append(r.domain.limits, d.limit)
		if at := m.Get("metadata"); at.Present() {
			d.limit.metadata = metadataOf(at)
		}
	} else {
		const why = "%s is for a rate_limit, and this descriptor has none: descriptors below do not inherit it, so write it beside the rate_limit"
		for _, field := range []string{"shadow_mode", "quota_mode", "debit", "detailed_metric"} {
			if at := m.Get(field); at.Bool() {
				at.Errorf(why, field)
			}
		}
		if at := m.Get("metadata"); at.Present() {
			at.Errorf(why, "metadata")
		}
	}
	if below := m.Get("descriptors"); below.Present() && !below.IsNull() {
		d.below = newLevel()
		r.level(d.below, below, path)
	}
	return d
}

// metadataOf reads a map with values of any type.
func metadataOf(v strictyaml.Value) *structpb.Struct {
	if !v.IsMap() {
		v.Map() // reports the error
		return nil
	}
	m, _ := v.Decode().(map[string]any)
	s, err := structpb.NewStruct(m)
	if err != nil {
		v.Errorf("metadata has an invalid value: %v", err)
	}
	return s
}

func (r *reader) limit(v strictyaml.Value, path string) *limit {
	m := v.Map(limitFields...)
	l := &limit{path: path, name: m.Get("name").Literal()}
	for _, v := range m.Get("replaces").List() {
		at := v.Map("name").Get("name").Required()
		name := at.Literal()
		switch {
		case name == "" && !at.IsText(): // already reported
		case name == "":
			at.Errorf(`"name" is empty: use the name of the rate_limit to replace`)
		case name == l.name:
			at.Errorf(`"name" is %q, and this rate_limit itself has that name: use the name of another`, name)
		default:
			l.replaces = append(l.replaces, name)
			r.replaces = append(r.replaces, at)
			r.domain.replaces = append(r.domain.replaces, replacing{name, r.errorAt(at)})
		}
	}
	unit, requests := m.Get("unit"), m.Get("requests_per_unit")
	if m.Get("unlimited").Bool() {
		for _, v := range []strictyaml.Value{unit, requests} {
			if v.Present() {
				v.Errorf("the rate_limit is unlimited: remove unit and requests_per_unit, or unlimited")
				break
			}
		}
		return l
	}
	l.current = &rls.RateLimitResponse_RateLimit{Name: l.name, RequestsPerUnit: uint32(requests.Required().Int(0, math.MaxUint32))}
	name := strings.ToLower(unit.Required().Text())
	for _, u := range units {
		if u.name == name {
			l.current.Unit = u.unit
		}
	}
	if l.current.Unit == rls.RateLimitResponse_RateLimit_UNKNOWN && unit.IsText() {
		unit.Errorf("unknown unit %q: %s", name, enum.Suggest(name, unitNames()))
	}
	return l
}

// maxUnreplaced bounds the number of unknown names that are reported, because the error of a
// file has at most this number of lines.
const maxUnreplaced = 20

// unreplaced calls the function report for each name in a replaces field that no limit of the
// domain has. The number i is the index of the name in d.replaces.
func (d *domain) unreplaced(report func(i int, why string)) {
	known := make(map[string]bool)
	for _, l := range d.limits {
		if l.name != "" {
			known[l.name] = true
		}
	}
	names := slices.Sorted(maps.Keys(known))
	reported := 0
	for i, p := range d.replaces {
		if !known[p.name] && reported < maxUnreplaced {
			reported++
			report(i, fmt.Sprintf("no rate_limit of this domain has the name %q: %s", p.name, enum.Suggest(p.name, names)))
		}
	}
}

// Merge returns a Config with the domains of all configs. If two of them have the same domain,
// Merge returns an error with its name. To merge several files of one domain, use LoadMerged.
func Merge(configs ...*Config) (*Config, error) {
	all := &Config{domains: make(map[string]*domain)}
	var errs []error
	for _, c := range configs {
		for _, name := range c.Domains() {
			d := c.domains[name]
			if first := all.domains[name]; first != nil {
				errs = append(errs, strictyaml.NewError(d.file, d.line, d.column, fmt.Sprintf("domain %q is in %s, too: write each domain into one file, or use LoadMerged, Options.MergeDomains or -envoy_options=merge_domains", name, first.file)))
				continue
			}
			all.domains[name] = d
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}
