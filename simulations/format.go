package main

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
	countsync "github.com/weir-go/weir/sync"
	"github.com/weir-go/weir/weirtest"
)

// The names that scenario files have beside those of limits, which are the types' own.
var (
	memberships = []string{"simulated", "gossip"}
	// faultNames start at FaultSplit.
	faultNames = []string{"split", "heal", "cut", "link", "kill", "start", "leave", "freeze", "thaw", "skew", "slow", "lose", "revert"}
)

func (k FaultKind) String() string {
	if k < FaultSplit || k > FaultRevert {
		return fmt.Sprintf("FaultKind(%d)", uint8(k))
	}
	return faultNames[k-FaultSplit]
}

// What a file has where it says nothing.
const (
	defaultSeed    = 1
	defaultLatency = 500 * time.Microsecond
	defaultJitter  = 200 * time.Microsecond
	// weirtest's: a round trip takes 80 to 150 ms.
	defaultWANLatency = 40 * time.Millisecond
	defaultWANJitter  = 35 * time.Millisecond
	// A CPU quota is shared out so often, on Linux.
	defaultEvery = 100 * time.Millisecond
)

//go:embed scenarios/*.yaml
var scenarioFiles embed.FS

// bundled are the scenarios that come with the project, by name.
func bundled() ([]*Scenario, error) {
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

// parse reads a scenario's file. The name is the file's; without its directory
// and ending it is the scenario's. The error tells everything that is wrong, with
// line and column.
func parse(name string, text []byte) (*Scenario, error) {
	file, err := strictyaml.Parse(name, text)
	if err != nil {
		return nil, err
	}
	r := &reader{places: make(map[place]fields)}
	base := path.Base(strings.ReplaceAll(name, `\`, "/"))
	s := r.scenario(strings.TrimSuffix(strings.TrimSuffix(base, ".yaml"), ".yml"), file.Root())
	if err := file.Err(); err != nil {
		return nil, err // what does not fit where it stands would be reported again below
	}
	s.check(func(at place, field, message string) {
		r.places[at](field).Errorf("%s", message)
	})
	if err := file.Err(); err != nil {
		return nil, err
	}
	s.sort()
	return s, nil
}

// reader makes a Scenario of what a file says, and remembers where it says it.
type reader struct {
	places map[place]fields
	names  struct{ nodes, regions, limits []string } // that are known so far
}

// fields finds the field of a place that an error is about.
type fields func(name string) strictyaml.Value

func (r *reader) scenario(name string, root strictyaml.Value) *Scenario {
	top := root.Map("about", "seed", "lasts", "membership", "network", "wan", "nodes", "later", "settings", "limits", "load", "faults")
	r.places[place{}] = top.Get
	s := &Scenario{
		Name:   name,
		About:  strings.Join(strings.Fields(top.Get("about").Required().Text()), " "),
		Seed:   defaultSeed,
		Lasts:  top.Get("lasts").Required().Duration(time.Second, maxLasts),
		Gossip: top.Get("membership").OneOf("membership", memberships) == memberships[1],
		Network: r.link(top.Get("network").Map("latency", "jitter", "loss", "duplicates"),
			weirtest.Link{Latency: defaultLatency, Jitter: defaultJitter}),
	}
	if v := top.Get("seed"); v.Present() {
		s.Seed = v.Uint()
	}
	r.nodes(s, top.Get("nodes").Required(), false)
	r.nodes(s, top.Get("later"), true)
	r.names.nodes = s.all()
	r.names.regions = slices.DeleteFunc(s.regions(), func(name string) bool { return name == "" })
	if v := top.Get("wan"); v.Present() {
		s.WAN = r.link(v.Map("latency", "jitter", "loss", "duplicates"), s.wan())
		if s.WAN == (weirtest.Link{}) {
			v.Errorf("wan takes no time: give it a latency")
		}
	}

	settings := top.Get("settings").Map("replicas", "expect", "timeout", "forget", "max_keys", "region_shares", "caps", "hot", "snapshots", "shared")
	r.places[place{part: partSettings}] = settings.Get
	s.Replicas = int(settings.Get("replicas").Int(math.MinInt32, math.MaxInt32))
	s.Expect = int(settings.Get("expect").Int(math.MinInt32, math.MaxInt32))
	s.Timeout = settings.Get("timeout").Duration(math.MinInt64, math.MaxInt64)
	s.Forget = settings.Get("forget").Duration(math.MinInt64, math.MaxInt64)
	s.MaxKeys = int(settings.Get("max_keys").Int(math.MinInt32, math.MaxInt32))
	if v := settings.Get("region_shares"); v.Present() {
		s.RegionShares = make(map[string]int64)
		for _, e := range v.Entries() {
			s.RegionShares[e.Field] = e.Value.Int(math.MinInt64, math.MaxInt64)
		}
	}

	s.Hot = int(settings.Get("hot").Int(0, 10_000))
	s.Snapshots = settings.Get("snapshots").Duration(math.MinInt64, math.MaxInt64)
	s.Shared = settings.Get("shared").Bool()
	if v := settings.Get("caps"); v.Present() {
		r.caps(s, v)
	}

	for _, v := range top.Get("limits").Required().List() {
		r.limit(s, v)
	}
	for _, l := range s.Limits {
		r.names.limits = append(r.names.limits, l.Name)
	}
	for _, v := range top.Get("load").Required().List() {
		r.load(s, v)
	}
	for _, v := range top.Get("faults").List() {
		r.faults(s, v)
	}
	return s
}

// leastFrame has room for something beside its header.
const leastFrame = 64

// caps are the fields of a stream's, in the order in which they are written.
func caps(c *countsync.Caps) (names []string, fields []*int) {
	return []string{"frame", "fold", "queued", "scan_below", "looks", "logs", "ranges", "statements", "reports"},
		[]*int{&c.Frame, &c.Fold, &c.Queued, &c.ScanBelow, &c.Looks, &c.Logs, &c.Ranges, &c.Statements, &c.Reports}
}

func (r *reader) caps(s *Scenario, v strictyaml.Value) {
	names, fields := caps(&s.Caps)
	m := v.Map(names...)
	for i, name := range names {
		least := int64(1)
		if name == "frame" {
			least = leastFrame
		}
		*fields[i] = int(m.Get(name).Int(least, math.MaxInt32))
	}
}

// nodes reads a list of names, or one for each region.
func (r *reader) nodes(s *Scenario, v strictyaml.Value, later bool) {
	add := func(region string, v strictyaml.Value) {
		for _, name := range v.List() {
			r.places[place{partNode, len(s.Nodes)}] = func(string) strictyaml.Value { return name }
			s.Nodes = append(s.Nodes, Node{Name: name.Text(), Region: region, Later: later})
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

func (r *reader) limit(s *Scenario, v strictyaml.Value) {
	m := v.Map("name", "algorithm", "rate", "per", "burst", "scope", "partition", "no_leases", "version")
	r.places[place{partLimit, len(s.Limits)}] = m.Get
	per := m.Get("per")
	algorithm := strictyaml.Named[weir.Algorithm](m.Get("algorithm"))
	if algorithm != weir.InFlight {
		per = per.Required()
	}
	s.Limits = append(s.Limits, weir.Limit{
		Name:      m.Get("name").Required().Text(),
		Algorithm: algorithm,
		Rate:      m.Get("rate").Required().Int(math.MinInt64, math.MaxInt64),
		Per:       per.Duration(math.MinInt64, math.MaxInt64),
		Burst:     m.Get("burst").Int(math.MinInt64, math.MaxInt64),
		Scope:     strictyaml.Named[weir.Scope](m.Get("scope")),
		Partition: strictyaml.Named[weir.PartitionPolicy](m.Get("partition")),
		NoLeases:  m.Get("no_leases").Bool(),
		Version:   m.Get("version").Uint(),
	})
}

func (r *reader) load(s *Scenario, v strictyaml.Value) {
	m := v.Map("limit", "keys", "zipf", "from", "units", "rate", "burst", "adversary", "begins", "ends", "at", "repeat", "keeps", "ttl", "settles")
	l := Load{
		Limit:     m.Get("limit").Required().OneOf("limit", r.names.limits),
		Keys:      int(m.Get("keys").Int(1, maxKeys)),
		Zipf:      m.Get("zipf").Float(1.0001, 10),
		From:      r.list(s, m.Get("from")),
		Units:     m.Get("units").Int(1, math.MaxInt64),
		Rate:      m.Get("rate").Rate(0.001, 100_000),
		Burst:     int(m.Get("burst").Int(1, maxAsks)),
		Adversary: m.Get("adversary").Bool(),
		Begins:    m.Get("begins").Duration(0, maxLasts),
		Ends:      m.Get("ends").Duration(0, maxLasts),
		Keeps:     m.Get("keeps").Duration(time.Millisecond, maxLasts),
		TTL:       m.Get("ttl").Duration(time.Second, time.Hour),
		Settles:   m.Get("settles").Duration(time.Millisecond, maxLasts),
	}
	switch at := m.Get("at"); {
	case l.Burst == 0 && at.Present():
		at.Errorf("at is when a burst comes: use begins and ends")
	case l.Burst != 0 && !m.Get("begins").Present():
		l.Begins = at.Required().Duration(0, maxLasts)
	case l.Burst != 0:
		m.Get("begins").Errorf("begins is of a steady load: a burst has at")
	}
	if l.Burst == 0 {
		if m.Get("repeat").Present() {
			m.Get("repeat").Errorf("repeat is of a burst: a steady load goes on anyway")
		}
		r.places[place{partLoad, len(s.Loads)}] = m.Get
		s.Loads = append(s.Loads, l)
		return
	}
	for at := range r.repeated(m.Get("repeat"), l.Begins, s.Lasts) {
		l.Begins = at
		r.places[place{partLoad, len(s.Loads)}] = m.Get
		s.Loads = append(s.Loads, l)
	}
}

// faults reads one entry, which may be of several faults: what it does, what
// undoes that, and both again for each time that it is repeated.
func (r *reader) faults(s *Scenario, v strictyaml.Value) {
	m := v.Map(append([]string{"at", "breaks", "by", "pauses", "every", "for", "repeat"}, faultNames...)...)
	f := Fault{At: m.Get("at").Required().Duration(0, maxLasts)}
	for i, name := range faultNames {
		v := m.Get(name)
		if !v.Present() {
			continue
		}
		if f.Kind != 0 {
			v.Errorf("%s and %v in one fault: write one fault for each", name, f.Kind)
			return
		}
		f.Kind = FaultSplit + FaultKind(i)
		switch f.Kind {
		case FaultSplit:
			for _, side := range v.List() {
				f.Sides = append(f.Sides, r.list(s, side))
			}
		case FaultHeal:
			if !v.Bool() {
				v.Errorf("heal is false: write heal: true, or leave the fault out")
			}
		case FaultCut:
			ends := v.Map("from", "to")
			f.From, f.To = r.node(ends.Get("from").Required()), r.node(ends.Get("to").Required())
		case FaultLink:
			link := v.Map("from", "to", "latency", "jitter", "loss", "duplicates")
			f.From, f.To = r.node(link.Get("from")), r.node(link.Get("to"))
			f.Link = r.link(link, s.usual(&f))
		case FaultSkew:
			f.Nodes = r.list(s, v)
			f.By = m.Get("by").Required().Duration(-maxLasts, maxLasts)
		case FaultSlow:
			f.Nodes = r.list(s, v)
			f.Pauses = m.Get("pauses").Required().Duration(0, maxEvery)
			f.Every = defaultEvery
			if v := m.Get("every"); v.Present() {
				f.Every = v.Duration(time.Millisecond, maxEvery)
			}
			if f.Pauses == 0 {
				f.Every = 0
			}
		default:
			f.Nodes = r.list(s, v)
		}
	}
	if f.Kind == 0 {
		v.Errorf("the fault does nothing: say which, one of %s", strings.Join(faultNames, ", "))
		return
	}
	f.Breaks = m.Get("breaks").Bool()
	for _, own := range []struct {
		field string
		kind  FaultKind
	}{{"by", FaultSkew}, {"pauses", FaultSlow}, {"every", FaultSlow}} {
		if v := m.Get(own.field); f.Kind != own.kind && v.Present() {
			v.Errorf("%s is of %v: %v has none", own.field, own.kind, f.Kind)
		}
	}
	lasting := m.Get("for")
	length := lasting.Duration(0, maxLasts)
	undo, undone := f.undo()
	if lasting.Present() && !undone {
		lasting.Errorf("for has no meaning here: nothing undoes %v", f.Kind)
	}
	for at := range r.repeated(m.Get("repeat"), f.At, s.Lasts) {
		f.At = at
		r.fault(s, f, m.Get)
		if lasting.Present() && undone {
			undo.At = at + length
			r.fault(s, undo, func(string) strictyaml.Value { return lasting })
		}
	}
}

func (r *reader) fault(s *Scenario, f Fault, at fields) {
	r.places[place{partFault, len(s.Faults)}] = at
	s.Faults = append(s.Faults, f)
}

// undo is the fault that ends one.
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

// repeated is at, and then every so often until.
func (r *reader) repeated(v strictyaml.Value, at, lasts time.Duration) func(func(time.Duration) bool) {
	m := v.Map("every", "until")
	every, until := time.Duration(0), at
	if v.Present() {
		every = m.Get("every").Required().Duration(time.Millisecond, maxLasts)
		until = m.Get("until").Required().Duration(min(at, lasts), cmp.Or(lasts, maxLasts))
		if every > 0 && (until-at)/every > maxRepeats {
			m.Get("every").Errorf("repeated %d times: at most %d", (until-at)/every, maxRepeats)
			every = 0
		}
	}
	return func(yield func(time.Duration) bool) {
		for yield(at) && every > 0 && at+every <= until {
			at += every
		}
	}
}

func (r *reader) link(m strictyaml.Map, l weirtest.Link) weirtest.Link {
	if v := m.Get("latency"); v.Present() {
		l.Latency = v.Duration(0, time.Minute)
	}
	if v := m.Get("jitter"); v.Present() {
		l.Jitter = v.Duration(0, time.Minute)
	}
	if v := m.Get("loss"); v.Present() {
		l.Loss = v.Percent()
	}
	if v := m.Get("duplicates"); v.Present() {
		l.Duplicates = v.Percent()
	}
	return l
}

// node is a node's name, or a region's.
func (r *reader) node(v strictyaml.Value) string {
	what := "node"
	if len(r.names.regions) > 0 {
		what = "node or region"
	}
	return v.OneOf(what, slices.Concat(r.names.nodes, r.names.regions))
}

// list is names of nodes; a region's stands for all of its nodes.
func (r *reader) list(s *Scenario, v strictyaml.Value) (names []string) {
	for _, v := range v.OneOrMore() {
		name := r.node(v)
		if slices.Contains(r.names.regions, name) {
			names = append(names, s.of(name)...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// sort puts faults in the order of time; those of one instant stay as they are.
func (s *Scenario) sort() {
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}
