package main

import (
	"cmp"
	"maps"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
	"github.com/weir-go/weir/weirtest"
)

// These bounds prevent a scenario that does not end, by mistake.
const (
	maxLasts   = 24 * time.Hour
	maxNodes   = 64
	maxKeys    = 1_000_000
	maxFaults  = 10_000
	maxRepeats = 10_000
	maxAsks    = 20_000_000
	maxClock   = 30 * 24 * time.Hour // maximum sum of the steps of one clock
	maxEvery   = time.Minute         // maximum time from one pause of a slow node to the next
)

// validName matches names that hosts and metrics may have.
var validName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// check reports the errors that depend on several fields.
func (r *reader) check() {
	c := &checker{reader: r}
	c.checkSettings()
	c.checkNodes()
	c.checkLimits()
	c.checkLoads()
	c.checkFaults()
}

// checker reports errors at a place in the file.
type checker struct {
	*reader
	at fields
}

func (c *checker) report(field, format string, args ...any) { c.at(field).Errorf(format, args...) }

// reportLibrary reports an error that the library returned for a field.
func (c *checker) reportLibrary(field string, err error) {
	if err != nil {
		c.report(field, "%v", err)
	}
}

func (c *checker) checkSettings() {
	s := c.s
	c.at = c.top
	config := weir.Config{Replicas: s.Replicas, Expect: s.Expect, Timeout: s.Timeout, Forget: s.Forget, MaxKeys: s.MaxKeys}
	if s.Snapshots != 0 {
		config.Snapshots, config.SnapshotEvery = disk{}, s.Snapshots
	}
	// The nodes of all regions have the same shares, so it is enough that the library
	// checks those of the first region.
	if names := s.regions(); s.RegionShares != nil && len(names) > 0 {
		config.Bind, config.Region, config.Regions, config.RegionShares = "localhost:0", names[0], make(map[string][]string), s.RegionShares
		for _, name := range names[1:] {
			config.Regions[name] = []string{"any:1"}
		}
	}
	c.reportLibrary("settings", config.Validate())
	if s.Shared && s.Snapshots == 0 {
		c.report("settings", `"shared" applies to snapshots: set their interval with snapshots`)
	}
}

func (c *checker) checkNodes() {
	c.at = c.top
	switch {
	case len(c.s.Nodes) > maxNodes:
		c.report("nodes", "there are %d nodes: use at most %d", len(c.s.Nodes), maxNodes)
	case !slices.ContainsFunc(c.s.Nodes, func(n Node) bool { return !n.Later }):
		c.report("nodes", "no node runs at the beginning: name one or more")
	}
	regions := slices.ContainsFunc(c.s.Nodes, func(n Node) bool { return n.Region != "" })
	for i, n := range c.s.Nodes {
		c.at = func(string) strictyaml.Value { return c.nodes[i] }
		switch {
		case !validName.MatchString(n.Name):
			c.report("name", "node %q: use letters, digits, dots and dashes, at most 63", n.Name)
		case slices.Contains(c.names.nodes[:i], n.Name):
			c.report("name", "node %q is used twice: give each node its own name", n.Name)
		case regions && n.Region == "":
			c.report("name", "node %q has no region, but other nodes have one: give each node a region", n.Name)
		case n.Region != "" && !validName.MatchString(n.Region):
			c.report("name", "region %q: use letters, digits, dots and dashes, at most 63", n.Region)
		case n.Region != "" && slices.Contains(c.names.nodes, n.Region) && n.Name == c.s.nodesOf(n.Region)[0]:
			c.report("name", "region %q has the name of a node: use another name", n.Region)
		}
	}
	c.at = c.top
	if c.s.WAN != (weirtest.Link{}) && len(c.s.regions()) < 2 {
		c.report("wan", "wan describes links between regions, but there are no regions: write nodes like {eu: [a, b], us: [c, d]}")
	}
}

func (c *checker) checkLimits() {
	c.at = c.top
	if len(c.s.Limits) == 0 {
		c.report("limits", "there is no limit: add one or more")
	}
	for i, l := range c.s.Limits {
		c.at = c.limits[i]
		c.reportLibrary("name", l.Validate())
		switch {
		case !validName.MatchString(l.Name) && l.Name != "":
			c.report("name", "limit %q: use letters, digits, dots and dashes, at most 63", l.Name)
		case l.Name == witnessName:
			c.report("name", "limit %q: each run adds a limit with this name; use another name", l.Name)
		case slices.Contains(c.names.limits[:i], l.Name):
			c.report("name", "limit %q is used twice: give each limit its own name", l.Name)
		case l.Scope == weir.Global && len(c.s.regions()) < 2:
			c.report("scope", "limit %q is global, but there are no regions: write nodes like {eu: [a, b], us: [c, d]}", l.Name)
		}
	}
}

func (c *checker) checkLoads() {
	asks := 0.0
	for i, l := range c.s.Loads {
		c.at = c.loads[i]
		limit := c.s.Limits[slices.Index(c.names.limits, l.Limit)]
		if most := bounds.Capacity(&limit); l.Units > most || !l.Critical && l.Units > most-limit.Keep {
			c.report("units", `"units" is %d: %s never grants more than %d at a time`, l.Units, l.Limit, most)
		}
		if l.Critical && limit.Keep == 0 {
			c.report("critical", "critical checks spend kept units: set keep of %s", l.Limit)
		}
		c.checkLoad(l)
		c.checkOutcome(l, limit)
		if asks += c.s.countChecks(l, limit); asks > maxAsks {
			c.report("limit", "the loads up to this one send about %.0f checks: use at most %d; lower a rate, or set more units for each check", asks, maxAsks)
			return
		}
	}
	c.at = c.top
	if len(c.s.Loads) == 0 {
		c.report("load", "there is no load: add one or more")
	}
}

// checkLoad checks the fields of a load that depend on each other.
func (c *checker) checkLoad(l Load) {
	kinds, begins := 0, "begins"
	if l.Burst != 0 {
		begins = "at"
	}
	for _, is := range []bool{l.Rate != 0, l.Burst != 0, l.Adversary} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		c.report("limit", "a load has one of rate, burst and adversary: true; this load has %d of them", kinds)
	case l.Zipf != 0 && l.Keys < 2:
		c.report("zipf", "zipf is the popularity of keys: set keys to 2 or more")
	case l.Burst != 0 && l.Ends != 0:
		c.report("ends", `"ends" applies to a steady load: a burst has no end`)
	case l.Begins >= c.s.Lasts:
		c.report(begins, "%q is %s: the scenario ends at %s", begins, enum.Duration(l.Begins), enum.Duration(c.s.Lasts))
	case l.Ends != 0 && (l.Ends <= l.Begins || l.Ends > c.s.Lasts):
		c.report("ends", `"ends" is %s: use a time after the load begins, and up to %s`, enum.Duration(l.Ends), enum.Duration(c.s.Lasts))
	}
}

// checkOutcome checks that units are spent, held or settled as their limit requires.
func (c *checker) checkOutcome(l Load, limit weir.Limit) {
	reserves := c.s.hasReservations(l.Limit)
	switch {
	case l.Adversary && (l.Keeps > 0 || reserves || inFlightLimit(limit)):
		c.report("adversary", "an adversary spends units, and cannot hold or reserve them")
	case inFlightLimit(limit) && l.Settles > 0:
		c.report("settles", `%s is in_flight: its units are held, not settled; set the maximum time with "keeps"`, l.Limit)
	case l.TTL > 0 && l.Keeps == 0:
		c.report("ttl", `"ttl" applies to units that clients hold: set the maximum time with "keeps"`)
	case inFlightLimit(limit) && l.Keeps == 0:
		c.report("limit", `%s is in_flight: set the maximum time for which units are held with "keeps"`, l.Limit)
	case l.Keeps > 0 && !inFlightLimit(limit):
		c.report("keeps", `"keeps" applies to an in_flight limit: %s is %v`, l.Limit, limit.Algorithm)
	case l.Pauses > 0 && (!limit.Pauses || l.Adversary):
		c.report("pauses", `"pauses" applies to a steady load or a burst of a limit with pauses: true`)
	case reserves && l.Settles == 0:
		c.report("limit", `units of %s are reserved by another load: set "settles", the maximum time until these are settled`, l.Limit)
	}
}

// countChecks returns the approximate number of checks of a load.
func (s *Scenario) countChecks(l Load, limit weir.Limit) float64 {
	ends := cmp.Or(l.Ends, s.Lasts)
	lasts := (ends - l.Begins).Seconds()
	switch {
	case l.Adversary:
		from := cmp.Or(len(l.From), len(s.Nodes))
		moments := 4*float64(len(s.Faults)) + lasts/max(limit.Per.Seconds(), 0.001)
		granted := math.Ceil(float64(bounds.Capacity(&limit)) / float64(max(l.Units, 1)))
		if limit.Partition == weir.FailOpen {
			granted *= float64(from)
		}
		// Each key admits the units that the limit grants, and then there are
		// enoughDenials denials at each node.
		return moments * float64(max(l.Keys, 1)) * (granted + enoughDenials*float64(from))
	case l.Burst != 0:
		return float64(l.Burst)
	}
	return l.Rate * lasts
}

// condition is the state of a host after a number of faults.
type condition uint8

const (
	down condition = iota
	running
	frozen
)

func (c condition) String() string { return [...]string{"not running", "running", "frozen"}[c] }

// transitions contains, for each kind of fault, the required conditions of the nodes and
// their condition after the fault.
var transitions = map[FaultKind]struct {
	needs []condition
	makes condition
}{
	FaultKill:   {[]condition{running, frozen}, down},
	FaultStart:  {[]condition{down}, running},
	FaultLeave:  {[]condition{running}, down},
	FaultFreeze: {[]condition{running}, frozen},
	FaultThaw:   {[]condition{frozen}, running},
}

// checkFaults checks the faults in the order of time, which may differ from the order of the list.
func (c *checker) checkFaults() {
	c.at = c.top
	if len(c.s.Faults) > maxFaults {
		c.report("faults", "there are %d faults: use at most %d", len(c.s.Faults), maxFaults)
		return
	}
	order := make([]int, len(c.s.Faults))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.s.Faults[a].At, c.s.Faults[b].At) })
	hosts := c.s.beginning().hosts
	stepped := make(map[string]time.Duration)
	for _, i := range order {
		c.at = c.faults[i]
		c.checkFault(&c.s.Faults[i], hosts, stepped)
	}
}

// state is the state of a cluster after a number of faults.
type state struct {
	hosts map[string]condition
	cut   bool // a link differs from the usual link
}

// beginning returns the state before all faults.
func (s *Scenario) beginning() *state {
	b := &state{hosts: make(map[string]condition)}
	for _, name := range s.nodeNames(func(n Node) bool { return !n.Later }) {
		b.hosts[name] = running
	}
	return b
}

// apply changes the state as the faults do, and returns it.
func (s *state) apply(faults ...Fault) *state {
	for _, f := range faults {
		switch m, moves := transitions[f.Kind]; {
		case f.Kind == FaultSplit || f.Kind == FaultCut || f.Kind == FaultLink:
			s.cut = true
		case f.Kind == FaultHeal:
			s.cut = false
		case moves:
			for _, name := range f.Nodes {
				s.hosts[name] = m.makes
			}
		}
	}
	return s
}

// checkFault checks a fault, and applies it to the hosts.
func (c *checker) checkFault(f *Fault, hosts map[string]condition, stepped map[string]time.Duration) {
	field := f.Kind.String()
	if f.At >= c.s.Lasts {
		c.report("at", "%s at %s: the scenario ends at %s", field, enum.Duration(f.At), enum.Duration(c.s.Lasts))
		return
	}
	switch f.Kind {
	case FaultHeal:
		return
	case FaultSplit:
		c.checkSides(f)
		return
	case FaultCut, FaultLink:
		switch {
		case f.From == f.To && f.From != "":
			c.report(field, "%s from %q to itself: name two different nodes", field, f.From)
		case len(c.s.Nodes) > 1 && len(maps.Collect(c.s.between(f))) == 0:
			c.report(field, "%s from %q to %q: there is no such link; for the links of a region, name another region or its nodes", field, f.From, f.To)
		}
		return
	}
	c.checkNodeFault(f, hosts, stepped)
}

// checkNodeFault checks a fault of nodes, and applies it to them.
func (c *checker) checkNodeFault(f *Fault, hosts map[string]condition, stepped map[string]time.Duration) {
	field := f.Kind.String()
	if f.Kind == FaultSlow && (f.Pauses < 0 || f.Every > maxEvery || f.Pauses > 0 && f.Pauses >= f.Every) {
		c.report("pauses", "the pauses take %s in every %s: use shorter pauses, or freeze the node", enum.Duration(f.Pauses), enum.Duration(f.Every))
	}
	if (f.Kind == FaultLose || f.Kind == FaultRevert) && c.s.Snapshots == 0 {
		c.report(field, "%s applies to snapshots: set their interval with snapshots in the settings", field)
	}
	if len(f.Nodes) == 0 {
		c.report(field, "%s of no node: name one or more", field)
	}
	for i, name := range f.Nodes {
		if slices.Contains(f.Nodes[:i], name) {
			c.report(field, "%s names %q twice", field, name)
			continue
		}
		if f.Kind == FaultSkew {
			if stepped[name] += f.By; f.By == 0 || stepped[name].Abs() > maxClock {
				c.report("by", "the clock of %q is then off by %s: use steps other than 0, whose sum is at most %s", name, enum.Duration(stepped[name]), enum.Duration(maxClock))
			}
			continue
		}
		if f.Kind == FaultSlow || f.Kind == FaultLose || f.Kind == FaultRevert {
			continue // valid also for nodes that do not run yet
		}
		is := hosts[name]
		if m := transitions[f.Kind]; !slices.Contains(m.needs, is) {
			c.report(field, "%s of %q at %s: the node is %v at that time", field, name, enum.Duration(f.At), is)
			continue
		}
		hosts[name] = transitions[f.Kind].makes
	}
}

func (c *checker) checkSides(f *Fault) {
	if len(f.Sides) < 2 {
		c.report("split", "the number of sides is %d: use two sides or more, like [[a, b], [c]]", len(f.Sides))
	}
	var seen []string
	for _, side := range f.Sides {
		if len(side) == 0 {
			c.report("split", "a side of the split is empty: leave it out")
		}
		for _, name := range side {
			if slices.Contains(seen, name) {
				c.report("split", "node %q is named twice in the split: name each node once", name)
			}
			seen = append(seen, name)
		}
	}
}
