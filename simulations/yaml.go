package main

import (
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
	countsync "github.com/weir-go/weir/sync"
	"github.com/weir-go/weir/weirtest"
)

// yaml returns the scenario as a file, which parse reads as an equal Scenario.
func (s *Scenario) yaml() []byte {
	membership, wan := "", (*yaml.Node)(nil)
	if s.Gossip {
		membership = memberships[1]
	}
	if s.WAN != (weirtest.Link{}) {
		wan = mapping(linkFields(s.WAN, weirtest.Link{})...)
	}
	var limits, loads, faults []*yaml.Node
	for _, l := range s.Limits {
		limits = append(limits, mapping(fieldsOf(l)...))
	}
	for _, l := range s.Loads {
		loads = append(loads, loadEntry(l))
	}
	for _, f := range s.Faults {
		faults = append(faults, faultEntry(f, s.usualLink(&f)))
	}
	top := mapping(
		"about", node(s.About), "seed", node(s.Seed), "lasts", s.Lasts, "membership", membership,
		"network", mapping(linkFields(s.Network, weirtest.Link{})...), "wan", wan, "nodes", s.nodesEntry(false), "later", s.nodesEntry(true),
		"settings", mapping(fieldsOf(s.Settings)...),
		"limits", sequence(0, limits), "load", sequence(0, loads), "faults", sequence(0, faults))
	top.Style = 0
	written, err := yaml.Marshal(top)
	if err != nil {
		panic(err) // a tree of scalars can always be marshalled
	}
	return written
}

// nodesEntry returns the names of the nodes, or the names of the nodes of each region.
func (s *Scenario) nodesEntry(later bool) *yaml.Node {
	of := make(map[string][]string)
	for _, n := range s.Nodes {
		if n.Later == later {
			of[n.Region] = append(of[n.Region], n.Name)
		}
	}
	if names := of[""]; names != nil && len(of) == 1 {
		return node(names)
	}
	var fields []any
	for _, region := range s.regions() {
		fields = append(fields, region, of[region])
	}
	return mapping(fields...)
}

// linkFields returns the fields of a link, without loss and duplicates that equal the
// values of usual.
func linkFields(l, usual weirtest.Link) []any {
	fields := []any{"latency", node(l.Latency), "jitter", node(l.Jitter)}
	if l.Loss != usual.Loss {
		fields = append(fields, "loss", plain(percent(l.Loss)))
	}
	if l.Duplicates != usual.Duplicates {
		fields = append(fields, "duplicates", plain(percent(l.Duplicates)))
	}
	return fields
}

func loadEntry(l Load) *yaml.Node {
	fields := fieldsOf(l)
	for i := 0; i < len(fields); i += 2 {
		switch {
		case fields[i] == "rate" && l.Rate != 0:
			fields[i+1] = plain(decimal(l.Rate) + "/s")
		case fields[i] == "begins" && l.Burst != 0:
			fields[i], fields[i+1] = "at", node(l.Begins)
		}
	}
	return mapping(fields...)
}

// fieldsOf returns the names of the fields of a struct in files, and their values.
func fieldsOf(v any) (fields []any) {
	for at, value := range reflect.ValueOf(v).Fields() {
		fields = append(fields, fileName(at.Name), value.Interface())
	}
	return fields
}

// fieldNames returns the names of the fields of a struct in files.
func fieldNames(v any) (names []string) {
	for field := range reflect.TypeOf(v).Fields() {
		names = append(names, fileName(field.Name))
	}
	return names
}

// fileName returns the name of a field in files: max_keys for MaxKeys, and ttl for TTL.
func fileName(field string) string {
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 && unicode.IsLower(rune(field[i-1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func faultEntry(f Fault, usual weirtest.Link) *yaml.Node {
	fields := []any{"at", node(f.At), f.Kind.String()}
	switch f.Kind {
	case FaultSplit:
		var sides []*yaml.Node
		for _, side := range f.Sides {
			sides = append(sides, node(side))
		}
		fields = append(fields, sequence(yaml.FlowStyle, sides))
	case FaultHeal:
		fields = append(fields, true)
	case FaultCut:
		fields = append(fields, mapping("from", f.From, "to", f.To))
	case FaultLink:
		fields = append(fields, mapping(append([]any{"from", f.From, "to", f.To}, linkFields(f.Link, usual)...)...))
	case FaultSlow:
		fields = append(fields, f.Nodes, "pauses", node(f.Pauses))
		if f.Every != defaultEvery {
			fields = append(fields, "every", f.Every)
		}
	default:
		fields = append(fields, f.Nodes)
	}
	return mapping(append(fields, "breaks", f.Breaks, "by", f.By)...)
}

// mapping returns a YAML map of fields and values, without values that are zero or empty.
// mapping returns nil if no value is left.
func mapping(fields ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for i := 0; i < len(fields); i += 2 {
		if v := reflect.ValueOf(fields[i+1]); !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0) {
			n.Content = append(n.Content, node(fields[i]), node(fields[i+1]))
		}
	}
	if len(n.Content) == 0 {
		return nil
	}
	return n
}

func node(value any) *yaml.Node {
	switch v := value.(type) {
	case *yaml.Node:
		return v
	case time.Duration:
		return plain(enum.Duration(v))
	case float64:
		return plain(decimal(v))
	case countsync.Caps:
		return mapping(fieldsOf(v)...)
	case weir.Ban:
		return mapping(fieldsOf(v)...)
	case weir.BanLengths:
		var lengths []*yaml.Node
		for _, length := range v {
			if length > 0 {
				lengths = append(lengths, node(length))
			}
		}
		return sequence(yaml.FlowStyle, lengths)
	}
	n := new(yaml.Node)
	if err := n.Encode(value); err != nil {
		panic(err) // never happens: the value is a text, a number, or a list of names
	}
	if n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
	return n
}

func plain(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// sequence returns nil if there are no items.
func sequence(style yaml.Style, items []*yaml.Node) *yaml.Node {
	if len(items) == 0 {
		return nil
	}
	return &yaml.Node{Kind: yaml.SequenceNode, Style: style, Content: items}
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// percent returns x in percent. The result is exact, as the decimal of x is.
func percent(x float64) string {
	text := decimal(x)
	_, part, _ := strings.Cut(text, ".")
	exact, _ := new(big.Rat).SetString(text) // SetString never fails for a decimal number
	return exact.Mul(exact, big.NewRat(100, 1)).FloatString(max(0, len(part)-2)) + "%"
}
