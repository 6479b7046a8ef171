package main

import (
	"cmp"
	"embed"
	"encoding"
	"fmt"
	"io/fs"
	"math"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
	countsync "github.com/weir-go/weir/sync"
	"github.com/weir-go/weir/weirtest"
)

// Names of values in scenario files. The types of limits define further names.
var (
	memberships = []string{"simulated", "gossip"}
	// faultNames begins at FaultSplit.
	faultNames = []string{"split", "heal", "cut", "link", "kill", "start", "leave", "freeze", "thaw", "skew", "slow", "lose", "revert"}
)

func (k FaultKind) String() string {
	if k < FaultSplit || k > FaultRevert {
		return fmt.Sprintf("FaultKind(%d)", uint8(k))
	}
	return faultNames[k-FaultSplit]
}

// The defaults of fields that a file omits.
const (
	defaultSeed    = 1
	defaultLatency = 500 * time.Microsecond
	defaultJitter  = 200 * time.Microsecond
	// The defaults of weirtest: a round trip takes 80 to 150 ms.
	defaultWANLatency = 40 * time.Millisecond
	defaultWANJitter  = 35 * time.Millisecond
	// The period of a CPU quota on Linux.
	defaultEvery = 100 * time.Millisecond
)

//go:embed scenarios/*.yaml
var scenarioFiles embed.FS

// bundledScenarios returns the scenarios that come with the project, sorted by name.
func bundledScenarios() ([]*Scenario, error) {
	files, err := fs.Glob(scenarioFiles, "scenarios/*.yaml") // sorted
	if err != nil {
		return nil, err
	}
	var all []*Scenario
	for _, name := range files {
		text, err := scenarioFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		s, err := parse(name, text)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// parse reads the file of a scenario. The argument name is the name of the file; without
// directory and ending, name is the name of the scenario. The error reports each value
// that does not fit or, if there are none, each conflict between fields, with line and
// column.
func parse(name string, text []byte) (*Scenario, error) {
	file, err := strictyaml.Parse(name, text)
	if err != nil {
		return nil, err
	}
	base := path.Base(strings.ReplaceAll(name, `\`, "/"))
	r := &reader{s: &Scenario{Name: strings.TrimSuffix(strings.TrimSuffix(base, ".yaml"), ".yml")}}
	r.scenario(file.Root())
	if err := file.Err(); err != nil {
		return nil, err // a value that does not fit would be reported again below
	}
	r.check()
	if err := file.Err(); err != nil {
		return nil, err
	}
	r.s.sort()
	return r.s, nil
}

// reader creates a Scenario from a file, and remembers the place of each part.
type reader struct {
	s             *Scenario
	top           fields
	nodes         []strictyaml.Value // the values with the names of the nodes, in the order of Scenario.Nodes
	limits        []fields           // in the order of Scenario.Limits; loads and faults have the orders of Scenario.Loads and Scenario.Faults
	loads, faults []fields
	names         struct{ nodes, regions, limits []string } // the names that are known so far
}

// fields returns the named field of an entry. An error that is reported at the Value has
// the line and column of the field.
type fields func(name string) strictyaml.Value

func (r *reader) scenario(root strictyaml.Value) {
	s, top := r.s, root.Map("about", "seed", "lasts", "membership", "network", "wan", "nodes", "later", "settings", "limits", "load", "faults")
	r.top = top.Get
	s.About = strings.Join(strings.Fields(top.Get("about").Required().Text()), " ")
	s.Lasts = top.Get("lasts").Required().Duration(time.Second, maxLasts)
	s.Gossip = top.Get("membership").OneOf("membership", memberships) == memberships[1]
	s.Network = weirtest.Link{Latency: defaultLatency, Jitter: defaultJitter}
	r.fill(top.Get("network").Map(fieldNames(s.Network)...), &s.Network)
	s.Seed = defaultSeed
	if v := top.Get("seed"); v.Present() {
		s.Seed = v.Uint()
	}
	r.readNodes(top.Get("nodes").Required(), false)
	r.readNodes(top.Get("later"), true)
	r.names.nodes = s.allNodes()
	r.names.regions = slices.DeleteFunc(s.regions(), func(name string) bool { return name == "" })
	if v := top.Get("wan"); v.Present() {
		s.WAN = s.wanLink()
		r.fill(v.Map(fieldNames(s.WAN)...), &s.WAN)
		if s.WAN == (weirtest.Link{}) {
			v.Errorf("wan has no latency: set one")
		}
	}
	r.fill(top.Get("settings").Map(fieldNames(s.Settings)...), &s.Settings)
	for _, v := range top.Get("limits").Required().List() {
		r.readLimit(v)
	}
	for _, v := range top.Get("load").Required().List() {
		r.readLoad(v)
	}
	for _, v := range top.Get("faults").List() {
		r.readFaults(v)
	}
}

// ranges has the ranges of fields, by the name of the field, which may follow the name of
// its type, or by the name of the type for all other fields of the type. A frame of 64 bytes has room for data beside its
// header.
var ranges = map[string][2]int64{
	"Link":  {0, int64(time.Minute)},
	"Caps":  {1, math.MaxInt32},
	"Load":  {0, int64(maxLasts)},
	"Frame": {64, math.MaxInt32}, "Hot": {0, 10_000},
	"At": {0, int64(maxLasts)}, "By": {-int64(maxLasts), int64(maxLasts)}, "Pauses": {0, int64(maxEvery)}, "Every": {int64(time.Millisecond), int64(maxEvery)},
	"Keys": {1, maxKeys}, "Units": {1, math.MaxInt64}, "Load.Burst": {1, maxAsks},
	"Keeps": {int64(time.Millisecond), int64(maxLasts)}, "Settles": {int64(time.Millisecond), int64(maxLasts)},
	"Load.Pauses": {int64(time.Millisecond), int64(maxLasts)},
	"TTL":         {int64(time.Second), int64(time.Hour)},
}

// fill sets those fields of a struct that a map contains under their names in files.
func (r *reader) fill(m strictyaml.Map, into any) {
	of := reflect.ValueOf(into).Elem()
	for field, value := range of.Fields() {
		v := m.Get(fileName(field.Name))
		if !v.Present() {
			continue // the default stays
		}
		low, high := int64(math.MinInt64), int64(math.MaxInt64)
		for _, name := range []string{of.Type().Name(), field.Name, of.Type().Name() + "." + field.Name} {
			if b, limited := ranges[name]; limited {
				low, high = b[0], b[1]
			}
		}
		switch p := value.Addr().Interface().(type) {
		case *string:
			*p = v.Text()
		case *bool:
			*p = v.Bool()
		case *uint64:
			*p = v.Uint()
		case *int:
			*p = int(v.Int(low, high))
		case *int64:
			*p = v.Int(low, high)
		case *time.Duration:
			*p = v.Duration(time.Duration(low), time.Duration(high))
		case *float64:
			switch field.Name {
			case "Rate":
				*p = readRate(v)
			case "Zipf":
				*p = v.Float(1.0001, 10)
			default:
				*p = v.Percent()
			}
		case *[]string:
			*p = r.list(v)
		case *map[string]int64:
			*p = make(map[string]int64)
			for _, e := range v.Entries() {
				(*p)[e.Field] = e.Value.Int(low, high)
			}
		case encoding.TextUnmarshaler:
			if err := p.UnmarshalText([]byte(v.Text())); err != nil {
				v.Errorf("%v", err)
			}
		case *weir.Ban:
			r.fill(v.Map(fieldNames(*p)...), p)
		case *weir.BanLengths:
			for i, length := range v.OneOrMore() {
				if i == len(p) {
					v.Errorf("bans have at most %d lengths: remove the rest", len(p))
					break
				}
				p[i] = length.Duration(time.Second, 366*24*time.Hour)
			}
		case *countsync.Caps:
			r.fill(v.Map(fieldNames(*p)...), p)
		}
	}
}

// readNodes reads a list of names, or a list for each region.
func (r *reader) readNodes(v strictyaml.Value, later bool) {
	add := func(region string, v strictyaml.Value) {
		for _, name := range v.List() {
			r.nodes = append(r.nodes, name)
			r.s.Nodes = append(r.s.Nodes, Node{Name: name.Text(), Region: region, Later: later})
		}
	}
	if !v.IsMap() {
		add("", v)
		return
	}
	for _, e := range v.Entries() {
		add(e.Field, e.Value)
	}
}

func (r *reader) readLimit(v strictyaml.Value) {
	l := weir.Limit{}
	m := v.Map(fieldNames(l)...)
	m.Get("name").Required()
	m.Get("rate").Required()
	if r.fill(m, &l); l.Algorithm != weir.InFlight {
		m.Get("per").Required()
	}
	r.limits, r.s.Limits = append(r.limits, m.Get), append(r.s.Limits, l)
	r.names.limits = append(r.names.limits, l.Name)
}

func (r *reader) readLoad(v strictyaml.Value) {
	l := Load{}
	m := v.Map(append(fieldNames(l), "at", "repeat")...)
	r.fill(m, &l)
	l.Limit = m.Get("limit").Required().OneOf("limit", r.names.limits)
	switch at := m.Get("at"); {
	case l.Burst == 0 && at.Present():
		at.Errorf(`"at" is the time of a burst: use "begins" and "ends"`)
	case l.Burst == 0 && m.Get("repeat").Present():
		m.Get("repeat").Errorf(`"repeat" applies to a burst: a steady load continues anyway`)
	case l.Burst != 0 && !m.Get("begins").Present():
		l.Begins = at.Required().Duration(0, maxLasts)
	case l.Burst != 0:
		m.Get("begins").Errorf(`"begins" applies to a steady load: a burst has "at"`)
	}
	for at := range r.repeated(m.Get("repeat"), l.Begins, r.s.Lasts) {
		l.Begins = at
		r.loads, r.s.Loads = append(r.loads, m.Get), append(r.s.Loads, l)
	}
}

// readFaults reads an entry, which may describe several faults: a fault, the fault that
// undoes it, and both again for each repetition.
func (r *reader) readFaults(v strictyaml.Value) {
	m := v.Map(append([]string{"at", "breaks", "by", "pauses", "every", "for", "repeat"}, faultNames...)...)
	m.Get("at").Required()
	f := Fault{}
	r.fill(m, &f)
	for i, name := range faultNames {
		v := m.Get(name)
		if !v.Present() {
			continue
		}
		if f.Kind != 0 {
			v.Errorf("%s and %v in the same fault: write a fault for each", name, f.Kind)
			return
		}
		f.Kind = FaultSplit + FaultKind(i)
		switch f.Kind {
		case FaultSplit:
			for _, side := range v.List() {
				f.Sides = append(f.Sides, r.list(side))
			}
		case FaultHeal:
			if !v.Bool() {
				v.Errorf("heal is false: write heal: true, or leave the fault out")
			}
		case FaultCut:
			ends := v.Map("from", "to")
			f.From, f.To = r.node(ends.Get("from").Required()), r.node(ends.Get("to").Required())
		case FaultLink:
			link := v.Map(append(fieldNames(f.Link), "from", "to")...)
			f.From, f.To = r.node(link.Get("from")), r.node(link.Get("to"))
			f.Link = r.s.usualLink(&f)
			r.fill(link, &f.Link)
		default:
			f.Nodes = r.list(v)
		}
	}
	if f.Kind == 0 {
		v.Errorf("the fault has no kind: add one of %s", strings.Join(faultNames, ", "))
		return
	}
	for _, own := range []struct{ field, of string }{{"breaks", "split and cut"}, {"by", "skew"}, {"pauses", "slow"}, {"every", "slow"}} {
		switch v, isOwn := m.Get(own.field), strings.Contains(own.of, f.Kind.String()); {
		case !isOwn && v.Present():
			v.Errorf("%q applies to %s, not to %v", own.field, own.of, f.Kind)
		case isOwn && (own.field == "by" || own.field == "pauses"):
			v.Required()
		}
	}
	if f.Every = cmp.Or(f.Every, defaultEvery); f.Pauses == 0 {
		f.Every = 0
	}
	lasting := m.Get("for")
	length := lasting.Duration(0, maxLasts)
	undo, undone := f.undo()
	if lasting.Present() && !undone {
		lasting.Errorf(`"for" has no effect: no fault undoes %v`, f.Kind)
	}
	for at := range r.repeated(m.Get("repeat"), f.At, r.s.Lasts) {
		f.At = at
		r.faults, r.s.Faults = append(r.faults, m.Get), append(r.s.Faults, f)
		if lasting.Present() && undone {
			undo.At = at + length
			r.faults, r.s.Faults = append(r.faults, func(string) strictyaml.Value { return lasting }), append(r.s.Faults, undo)
		}
	}
}

// undo returns the fault that ends f, and whether there is one.
func (f *Fault) undo() (Fault, bool) {
	switch f.Kind {
	case FaultSplit, FaultCut, FaultLink:
		return Fault{Kind: FaultHeal}, true
	case FaultKill, FaultLeave:
		return Fault{Kind: FaultStart, Nodes: f.Nodes}, true
	case FaultFreeze:
		return Fault{Kind: FaultThaw, Nodes: f.Nodes}, true
	case FaultSkew:
		return Fault{Kind: FaultSkew, Nodes: f.Nodes, By: -f.By}, true
	case FaultSlow:
		return Fault{Kind: FaultSlow, Nodes: f.Nodes}, f.Pauses > 0
	}
	return Fault{}, false
}

// repeated yields the time in the argument at, and then, after each interval, the further times until an end. It
// reads the interval and the end from the fields every and until of v. If v is not present, repeated yields only
// the first time.
func (r *reader) repeated(v strictyaml.Value, at, lasts time.Duration) func(func(time.Duration) bool) {
	m := v.Map("every", "until")
	every, until := time.Duration(0), at
	if v.Present() {
		every = m.Get("every").Required().Duration(time.Millisecond, maxLasts)
		until = m.Get("until").Required().Duration(min(at, lasts), cmp.Or(lasts, maxLasts))
		if every > 0 && (until-at)/every > maxRepeats {
			m.Get("every").Errorf("the entry is repeated %d times: use at most %d", (until-at)/every, maxRepeats)
			every = 0
		}
	}
	return func(yield func(time.Duration) bool) {
		for yield(at) && every > 0 && at+every <= until {
			at += every
		}
	}
}

// node reads the name of a node or a region.
func (r *reader) node(v strictyaml.Value) string {
	what := "node"
	if len(r.names.regions) > 0 {
		what = "node or region"
	}
	return v.OneOf(what, slices.Concat(r.names.nodes, r.names.regions))
}

// list reads names of nodes. The name of a region stands for all its nodes.
func (r *reader) list(v strictyaml.Value) (names []string) {
	for _, v := range v.OneOrMore() {
		name := r.node(v)
		if slices.Contains(r.names.regions, name) {
			names = append(names, r.s.nodesOf(name)...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// sort sorts the faults by time. Faults at the same time keep their order.
func (s *Scenario) sort() {
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// readRate reads a rate, like 50/s, 3000/m or 5/100ms, as a number of checks in a second.
func readRate(v strictyaml.Value) float64 {
	const low, high = 0.001, 100_000
	text := v.Literal()
	count, per, ok := strings.Cut(text, "/")
	x, err := strconv.ParseFloat(count, 64)
	if per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	d, noTime := time.ParseDuration(per)
	switch {
	case text == "":
		return 0 // v has reported an error, or is absent
	case err == nil && !ok:
		v.Errorf("rate is %s: add a period, like %s/s", text, text)
		return 0
	case err != nil || noTime != nil || d <= 0:
		v.Errorf("rate is %q: use a rate, like 50/s", text)
		return 0
	}
	if d != time.Second {
		x /= d.Seconds()
	}
	if !(x >= low && x <= high) {
		v.Errorf("rate is %s: use %v/s to %v/s", text, low, high)
	}
	return x
}
