package strictyaml

import (
	"encoding"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weir-go/weir/internal/enum"
)

// Value is a position in a file with its content: a map, a list, or a scalar such as a
// text or a number. The content is empty for an absent field, for which every method
// returns the zero value. A value of the wrong type is reported to the File, and also
// yields the zero value.
type Value struct {
	file *File
	at   *yaml.Node // position for errors: node, or the map that lacks the field
	node *yaml.Node // nil if absent
	name string     // name of the field, for messages

	secretFields bool // errors do not contain the names of fields that are not known
}

// WithSecretFields returns the value such that no error contains the name of a field of the map, or of
// a map in it, unless Map knows the field. The values that Fields and List return do not have this property.
func (v Value) WithSecretFields() Value {
	v.secretFields = true
	return v
}

// Present reports whether there is a value.
func (v Value) Present() bool { return v.node != nil }

// IsNull reports whether the field is present without a value.
func (v Value) IsNull() bool {
	return v.node != nil && v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == "!!null"
}

// IsMap reports whether the value is a map.
func (v Value) IsMap() bool { return v.node != nil && v.node.Kind == yaml.MappingNode }

// IsList reports whether the value is a list.
func (v Value) IsList() bool { return v.node != nil && v.node.Kind == yaml.SequenceNode }

// Errorf reports an error at the value, or, if the value is absent, at the map that lacks
// it.
func (v Value) Errorf(format string, args ...any) {
	v.file.report(v.at, format, args...)
}

// Required reports an error if the value is absent.
func (v Value) Required() Value {
	if v.node == nil {
		v.Errorf("%s is missing", v.displayName())
	}
	return v
}

// Map contains the fields of a map.
type Map struct {
	in     Value
	fields map[string]Value
}

// Get returns the value of a field.
func (m Map) Get(field string) Value {
	if v, ok := m.fields[field]; ok {
		return v
	}
	return Value{file: m.in.file, at: m.in.at, name: field}
}

// HasAny reports whether the map has at least one of the given fields. It ignores fields that were not
// passed to Value.Map.
func (m Map) HasAny(fields ...string) bool {
	return slices.ContainsFunc(fields, func(field string) bool { return m.Get(field).Present() })
}

// Map reads a map, and reports an error for each field that is not in known, or that
// occurs twice.
func (v Value) Map(known ...string) Map {
	m := Map{in: v, fields: make(map[string]Value)}
	for _, e := range v.Entries() {
		if !slices.Contains(known, e.Field) {
			if v.secretFields {
				e.Key.Errorf("unknown field: known are %s", strings.Join(known, ", "))
				continue
			}
			e.Key.Errorf("unknown field %q: %s", e.Field, enum.Suggest(e.Field, known))
			continue
		}
		e.Value.name = e.Field
		m.fields[e.Field] = e.Value
	}
	return m
}

// Entry is a field of a map with its value.
type Entry struct {
	Field      string
	Key, Value Value
}

// Entries reads a map with arbitrary field names, in the order of the file.
func (v Value) Entries() (entries []Entry) {
	if !v.checkKind(yaml.MappingNode) {
		return nil
	}
	first := make(map[string]int, len(v.node.Content)/2)
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		k, node := v.node.Content[i], v.node.Content[i+1]
		key := Value{file: v.file, at: k, node: k, name: "field"}
		quoted, name := strconv.Quote(k.Value)+" ", k.Value
		if v.secretFields {
			quoted, name = "", "this field"
		}
		switch line, twice := first[k.Value]; {
		case k.Kind != yaml.ScalarNode || k.ShortTag() == "!!null":
			key.Errorf("a field is %s: use text", kind(k))
		case twice:
			key.Errorf("field %sis set twice: remove one (the first is on %s)", quoted, v.Line(line))
		default:
			first[k.Value] = k.Line
			entries = append(entries, Entry{k.Value, key, Value{file: v.file, at: node, node: node, name: name, secretFields: v.secretFields}})
		}
	}
	return entries
}

// Fields returns the fields of a map without reporting errors, or nil if v is not
// a map, and leaves out fields whose name is not a scalar.
func (v Value) Fields() (entries []Entry) {
	if !v.IsMap() {
		return nil
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		k, node := v.node.Content[i], v.node.Content[i+1]
		if k.Kind == yaml.ScalarNode {
			entries = append(entries, Entry{k.Value, Value{file: v.file, at: k, node: k, name: "field"}, Value{file: v.file, at: node, node: node, name: k.Value}})
		}
	}
	return entries
}

// List reads a list.
func (v Value) List() (items []Value) {
	if !v.checkKind(yaml.SequenceNode) {
		return nil
	}
	items = make([]Value, 0, len(v.node.Content))
	for _, node := range v.node.Content {
		items = append(items, Value{file: v.file, at: node, node: node, name: v.name})
	}
	return items
}

// OneOrMore reads a list, or a single value as a list with that value.
func (v Value) OneOrMore() []Value {
	if v.node == nil || v.node.Kind == yaml.SequenceNode {
		return v.List()
	}
	return []Value{v}
}

// Text reads a text. A value that YAML reads as a different type, such as a number or true,
// is an error unless it is in quotes.
func (v Value) Text() string {
	text, _ := v.text()
	return text
}

func (v Value) text() (text string, ok bool) {
	switch {
	case !v.checkKind(yaml.ScalarNode):
		return "", false
	case v.node.ShortTag() != "!!str":
		v.Errorf("%s is %s, %s: put it in quotes if it is a text", v.displayName(), v.node.Value, kind(v.node))
		return "", false
	}
	return v.node.Value, true
}

// Literal reads a text, and returns a number, a date, true or false as it is written in
// the file.
func (v Value) Literal() string {
	if !v.checkKind(yaml.ScalarNode) {
		return ""
	}
	return v.node.Value
}

// Decode reads a value of any type as a map[string]any, a []any, a string, a finite float64, a
// bool, or nil for a field without a value. A date is returned as it is written in the
// file.
func (v Value) Decode() any {
	switch {
	case v.node == nil || v.IsNull():
		return nil
	case v.IsMap():
		m := make(map[string]any)
		for _, e := range v.Entries() {
			m[e.Field] = e.Value.Decode()
		}
		return m
	case v.node.Kind == yaml.SequenceNode:
		all := []any{}
		for _, item := range v.List() {
			all = append(all, item.Decode())
		}
		return all
	}
	switch v.node.ShortTag() {
	case "!!bool":
		return strings.EqualFold(v.node.Value, "true")
	case "!!int", "!!float":
		var x float64
		if err := v.node.Decode(&x); err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
			v.Errorf("%s is %s: use a finite number, or put it in quotes", v.displayName(), v.node.Value)
			return nil
		}
		return x
	}
	return v.node.Value
}

// OneOf reads a text that must be in known. In errors, the argument what describes the
// known values.
func (v Value) OneOf(what string, known []string) string {
	text, ok := v.text()
	if ok && !slices.Contains(known, text) {
		v.Errorf("unknown %s %q: %s", what, text, enum.Suggest(text, known))
		return ""
	}
	return text
}

// Named reads the name of a value of T, or returns the zero value if there is none. It
// reports the errors of T.
func Named[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](v Value) (value T) {
	if text, ok := v.text(); ok {
		if err := P(&value).UnmarshalText([]byte(text)); err != nil {
			v.Errorf("%v", err)
		}
	}
	return value
}

// Bool reads true or false.
func (v Value) Bool() bool {
	text := v.plain()
	if text != "" && text != "true" && text != "false" {
		v.Errorf("%s is %q: use true or false", v.displayName(), text)
	}
	return text == "true"
}

// Int reads a decimal integer from low to high.
func (v Value) Int(low, high int64) int64 {
	text := v.plain()
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		v.Errorf("%s is %q: use a whole number", v.displayName(), text)
		return 0
	case err != nil || n < low || n > high:
		v.Errorf("%s is %s: use %d to %d", v.displayName(), text, low, high)
		return 0
	}
	return n
}

// Uint reads a decimal integer from zero.
func (v Value) Uint() uint64 {
	text := v.plain()
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		v.Errorf("%s is %q: use a whole number, 0 to %d", v.displayName(), text, uint64(math.MaxUint64))
	}
	return n
}

// Float reads a number from low to high.
func (v Value) Float(low, high float64) float64 {
	text := v.plain()
	if text == "" {
		return 0
	}
	x, ok := number(text)
	if !ok {
		v.Errorf("%s is %q: use a number", v.displayName(), text)
		return 0
	}
	return v.between(text, x, low, high, strconv.FormatFloat(low, 'g', -1, 64)+" to "+strconv.FormatFloat(high, 'g', -1, 64))
}

// Duration reads a duration in the form of time.ParseDuration, such as 1m30s or 250ms,
// from low to high. Only 0 needs no unit.
func (v Value) Duration(low, high time.Duration) time.Duration {
	text := v.plain()
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		if _, ok := number(text); ok {
			v.Errorf("%s is %s: add a unit, like %ss or %sms", v.displayName(), text, text, text)
		} else if meant, ok := TimeMeant(text); ok && meant >= low && meant <= high {
			v.Errorf("%s is %q: write %s", v.displayName(), text, enum.Duration(meant))
		} else if ok {
			v.Errorf("%s is %q, which is %s: use %v to %v", v.displayName(), text, enum.Duration(meant), low, high)
		} else {
			v.Errorf("%s is %q: use a duration, like 1m30s or 250ms", v.displayName(), text)
		}
		return 0
	}
	if d < low || d > high {
		v.Errorf("%s is %s: use %v to %v", v.displayName(), text, low, high)
		return 0
	}
	return d
}

// Percent reads a percentage, such as 0.1%, as 0.001. 0 needs its percent sign, too.
func (v Value) Percent() float64 {
	text := v.plain()
	if text == "" {
		return 0
	}
	digits, ok := strings.CutSuffix(text, "%")
	x, isNumber := number(digits)
	switch {
	case isNumber && !ok:
		if x <= 1 { // a part of one
			x *= 100
		}
		v.Errorf("%s is %s: use a percentage, like %s%%", v.displayName(), text, strconv.FormatFloat(x, 'f', -1, 64))
		return 0
	case !isNumber:
		v.Errorf("%s is %q: use a percentage, like 0.1%%", v.displayName(), text)
		return 0
	}
	// The decimal point is shifted instead of dividing the number, so that each float has
	// a text that is read as exactly that float.
	if shifted, err := strconv.ParseFloat(digits+"e-2", 64); err == nil {
		x = shifted
	} else {
		x /= 100
	}
	return v.between(text, x, 0, 1, "0% to 100%")
}

func (v Value) between(text string, x, low, high float64, want string) float64 {
	if x >= low && x <= high {
		return x
	}
	v.Errorf("%s is %s: use %s", v.displayName(), text, want)
	return 0
}

// plain returns the text of a scalar that is written without quotes. It reports an error for any other
// value, and returns "".
func (v Value) plain() string {
	if !v.checkKind(yaml.ScalarNode) {
		return ""
	}
	if v.node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		v.Errorf("%s is the text %q: write it without quotes", v.displayName(), v.node.Value)
		return ""
	}
	return v.node.Value
}

// checkKind reports whether the value has the wanted kind, and reports an error for a value of
// a different kind.
func (v Value) checkKind(want yaml.Kind) bool {
	switch {
	case v.node == nil:
		return false
	case v.IsNull():
		v.Errorf("%s has no value: give it one, or remove it", v.displayName())
	case v.node.Kind != want:
		v.Errorf("%s is %s: use %s", v.displayName(), kind(v.node), kind(&yaml.Node{Kind: want, Tag: "any"}))
	default:
		return true
	}
	return false
}

func (v Value) displayName() string {
	if v.name == "" {
		return "the file"
	}
	return v.name
}

// kind describes the kind of a node.
func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!timestamp":
		return "a date"
	case "!!str":
		return "a text"
	}
	return "a single value"
}

// number parses a finite decimal number.
func number(text string) (float64, bool) {
	if strings.ContainsAny(text, "xXpPiInN_") {
		return 0, false // hexadecimal numbers, infinities and NaN
	}
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && !math.IsInf(x, 0)
}
