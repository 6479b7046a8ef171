package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/spelling"
	"github.com/weir-go/weir/weirtest"
	"go.yaml.in/yaml/v3"
)

// yaml is the scenario as a file, which parse reads as an equal Scenario.
func (s *Scenario) yaml() []byte {
	top := new(mapping)
	top.text("about", s.About)
	if s.Seed != defaultSeed {
		top.plain("seed", strconv.FormatUint(s.Seed, 10))
	}
	top.duration("lasts", s.Lasts)
	if s.Gossip {
		top.text("membership", memberships[1])
	}
	top.add("network", flow(linkMapping(s.Network, weirtest.Link{})))
	if s.WAN != (weirtest.Link{}) {
		top.add("wan", flow(linkMapping(s.WAN, weirtest.Link{})))
	}
	s.addNodes(top, "nodes", false)
	s.addNodes(top, "later", true)

	settings := new(mapping)
	settings.int("replicas", int64(s.Replicas))
	settings.int("expect", int64(s.Expect))
	settings.nonzero("timeout", s.Timeout)
	settings.nonzero("forget", s.Forget)
	settings.int("max_keys", int64(s.MaxKeys))
	if len(s.RegionShares) > 0 {
		shares := new(mapping)
		for _, region := range slices.Sorted(maps.Keys(s.RegionShares)) {
			shares.plain(region, strconv.FormatInt(s.RegionShares[region], 10))
		}
		settings.add("region_shares", flow(shares))
	}
	settings.int("hot", int64(s.Hot))
	lower := new(mapping)
	names, fields := caps(&s.Caps)
	for i, name := range names {
		lower.int(name, int64(*fields[i]))
	}
	if len(lower.nodes) > 0 {
		settings.add("caps", flow(lower))
	}
	if len(settings.nodes) > 0 {
		top.add("settings", flow(settings))
	}

	var limits, loads, faults []*yaml.Node
	for _, l := range s.Limits {
		limits = append(limits, flow(limitMapping(l)))
	}
	for _, l := range s.Loads {
		loads = append(loads, flow(loadMapping(l)))
	}
	for _, f := range s.Faults {
		faults = append(faults, flow(faultMapping(f, s.usual(&f))))
	}
	top.add("limits", block(limits))
	top.add("load", block(loads))
	if len(faults) > 0 {
		top.add("faults", block(faults))
	}
	text, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: top.nodes})
	if err != nil {
		panic(err) // it is a tree of scalars, which are always marshalled
	}
	return text
}

func (s *Scenario) addNodes(top *mapping, field string, later bool) {
	byRegion := make(map[string][]string)
	var regions []string
	for _, n := range s.Nodes {
		if n.Later != later {
			continue
		}
		if byRegion[n.Region] == nil {
			regions = append(regions, n.Region)
		}
		byRegion[n.Region] = append(byRegion[n.Region], n.Name)
	}
	switch {
	case len(regions) == 0:
	case len(regions) == 1 && regions[0] == "":
		top.add(field, texts(byRegion[""]))
	default:
		m := new(mapping)
		for _, region := range regions {
			m.add(region, texts(byRegion[region]))
		}
		top.add(field, flow(m))
	}
}

// linkMapping leaves out parts that are as usual.
func linkMapping(l, usual weirtest.Link) *mapping {
	m := new(mapping)
	m.duration("latency", l.Latency)
	m.duration("jitter", l.Jitter)
	if l.Loss != usual.Loss {
		m.plain("loss", percent(l.Loss))
	}
	if l.Duplicates != usual.Duplicates {
		m.plain("duplicates", percent(l.Duplicates))
	}
	return m
}

func limitMapping(l weir.Limit) *mapping {
	m := new(mapping)
	m.text("name", l.Name)
	m.text("algorithm", l.Algorithm.String())
	m.int("rate", l.Rate)
	m.duration("per", l.Per)
	m.int("burst", l.Burst)
	if l.Scope != weir.Regional {
		m.text("scope", l.Scope.String())
	}
	m.text("partition", l.Partition.String())
	if l.Version != 0 {
		m.plain("version", strconv.FormatUint(l.Version, 10))
	}
	return m
}

func loadMapping(l Load) *mapping {
	m := new(mapping)
	m.text("limit", l.Limit)
	m.int("keys", int64(l.Keys))
	if l.Zipf != 0 {
		m.plain("zipf", decimal(l.Zipf))
	}
	if len(l.From) > 0 {
		m.add("from", texts(l.From))
	}
	m.int("units", l.Units)
	if l.Rate != 0 {
		m.plain("rate", decimal(l.Rate)+"/s")
	}
	m.int("burst", int64(l.Burst))
	if l.Adversary {
		m.plain("adversary", "true")
	}
	if l.Burst != 0 {
		m.duration("at", l.Begins)
	} else {
		m.nonzero("begins", l.Begins)
	}
	m.nonzero("ends", l.Ends)
	return m
}

func faultMapping(f Fault, usual weirtest.Link) *mapping {
	m := new(mapping)
	m.duration("at", f.At)
	switch f.Kind {
	case FaultSplit:
		var sides []*yaml.Node
		for _, side := range f.Sides {
			sides = append(sides, texts(side))
		}
		list := block(sides)
		list.Style = yaml.FlowStyle
		m.add("split", list)
		m.breaks(f)
	case FaultHeal:
		m.plain("heal", "true")
	case FaultCut, FaultLink:
		ends := new(mapping)
		if f.From != "" {
			ends.text("from", f.From)
		}
		if f.To != "" {
			ends.text("to", f.To)
		}
		if f.Kind == FaultLink {
			ends.nodes = append(ends.nodes, linkMapping(f.Link, usual).nodes...)
		}
		m.add(f.Kind.String(), flow(ends))
		m.breaks(f)
	case FaultSkew:
		m.add("skew", texts(f.Nodes))
		m.duration("by", f.By)
	case FaultSlow:
		m.add("slow", texts(f.Nodes))
		m.duration("pauses", f.Pauses)
		if f.Pauses > 0 && f.Every != defaultEvery {
			m.duration("every", f.Every)
		}
	default:
		m.add(f.Kind.String(), texts(f.Nodes))
	}
	return m
}

// mapping is a YAML map that is being written.
type mapping struct{ nodes []*yaml.Node }

func (m *mapping) add(field string, n *yaml.Node) {
	m.nodes = append(m.nodes, text(field), n)
}

func (m *mapping) text(field, value string) { m.add(field, text(value)) }

func (m *mapping) plain(field, value string) {
	m.add(field, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
}

func (m *mapping) breaks(f Fault) {
	if f.Breaks {
		m.plain("breaks", "true")
	}
}

// int leaves out a zero.
func (m *mapping) int(field string, n int64) {
	if n != 0 {
		m.plain(field, strconv.FormatInt(n, 10))
	}
}

func (m *mapping) duration(field string, d time.Duration) { m.plain(field, spelling.Duration(d)) }

func (m *mapping) nonzero(field string, d time.Duration) {
	if d != 0 {
		m.duration(field, d)
	}
}

// text is a scalar that is read as text: in quotes where it looks like a number.
func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

func texts(list []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, s := range list {
		n.Content = append(n.Content, text(s))
	}
	return n
}

func flow(m *mapping) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: m.nodes}
}

func block(items []*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Content: items}
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// percent is the decimal of x with its point moved by two places, and so exact.
func percent(x float64) string {
	whole, part, _ := strings.Cut(decimal(x), ".")
	for len(part) < 2 {
		part += "0"
	}
	s := strings.TrimLeft(whole+part[:2], "0")
	if s == "" {
		s = "0"
	}
	if len(part) > 2 {
		s += "." + part[2:]
	}
	return s + "%"
}
