package rules

import (
	"encoding"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-go/weir"
)

// schemaNode is what the Schema uses of JSON Schema. Fields that are not here
// make the test fail: it would not know what they say.
type schemaNode struct {
	Schema               string                 `json:"$schema"`
	ID                   string                 `json:"$id"`
	Ref                  string                 `json:"$ref"`
	Defs                 map[string]*schemaNode `json:"$defs"`
	Title                string                 `json:"title"`
	Description          string                 `json:"description"`
	Type                 string                 `json:"type"`
	Default              any                    `json:"default"`
	Const                *string                `json:"const"`
	Enum                 []string               `json:"enum"`
	Properties           map[string]*schemaNode `json:"properties"`
	AdditionalProperties any                    `json:"additionalProperties"`
	PropertyNames        *schemaNode            `json:"propertyNames"`
	MaxProperties        int                    `json:"maxProperties"`
	Required             []string               `json:"required"`
	Items                *schemaNode            `json:"items"`
	MinItems             int                    `json:"minItems"`
	MaxItems             int                    `json:"maxItems"`
	UniqueItems          bool                   `json:"uniqueItems"`
	OneOf                []*schemaNode          `json:"oneOf"`
	AnyOf                []*schemaNode          `json:"anyOf"`
	Minimum              *float64               `json:"minimum"`
	Maximum              *float64               `json:"maximum"`
	MinLength            int                    `json:"minLength"`
	MaxLength            int                    `json:"maxLength"`
	Pattern              string                 `json:"pattern"`
}

func readSchema(t *testing.T) *schemaNode {
	file, err := os.Open("schema.json")
	require.NoError(t, err)
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	var root schemaNode
	require.NoError(t, decoder.Decode(&root))
	return &root
}

func TestTheSchemaHasTheFieldsThatTheParserKnows(t *testing.T) {
	root := readSchema(t)
	cost := root.Defs["cost"].OneOf[2]
	for name, c := range map[string]struct {
		in     *schemaNode
		fields []string
	}{
		"the file": {root, fileFields},
		"tier":     {root.Defs["tier"], tierFields},
		"exempt":   {root.Defs["exempt"], exemptFields},
		"rule":     {root.Defs["rule"], ruleFields},
		"match":    {root.Defs["match"], matchFields},
		"not":      {root.Defs["not"], notFields},
		"exact":    {root.Defs["exact"], exactFields},
		"limit":    {root.Defs["limit"], limitFields},
		"numbers":  {root.Defs["numbers"], numberFields},
		"cost":     {cost, costFields},
		"outcome":  {root.Defs["outcome"], outcomeFields},
		"reserve":  {root.Defs["reserve"].OneOf[2], costFields},
		"settle":   {root.Defs["settle"], settleFields},
		"soft":     {root.Defs["soft"], softFields},
	} {
		var has []string
		for field := range c.in.Properties {
			has = append(has, field)
		}
		require.ElementsMatch(t, c.fields, has, name)
		require.Equal(t, false, c.in.AdditionalProperties, name)
	}
	for name, c := range map[string]struct {
		in    *schemaNode
		names []string
	}{
		"method":      {root.Defs["method"], methodNames},
		"algorithm":   {root.Defs["limit"].Properties["algorithm"], spelled[weir.Algorithm]()},
		"calendar":    {root.Defs["limit"].Properties["calendar"], spelled[weir.Calendar]()[1:]},
		"scope":       {root.Defs["rule"].Properties["scope"], spelled[weir.Scope]()},
		"partition":   {root.Defs["rule"].Properties["partition"], spelled[weir.PartitionPolicy]()},
		"on_error":    {root.Defs["settle"].Properties["on_error"], onErrorNames},
		"missing_key": {root.Defs["rule"].Properties["missing_key"], lackingNames},
		"key":         {root.Defs["part"].AnyOf[0], keyNames[:len(keyNames)-1]},
	} {
		require.Equal(t, c.names, c.in.Enum, name)
	}
}

// spelled are the names of an enumeration's values, in their order.
func spelled[T interface {
	~uint8
	encoding.TextMarshaler
}]() (names []string) {
	for value := T(0); ; value++ {
		name, err := value.MarshalText()
		if err != nil {
			return names
		}
		names = append(names, string(name))
	}
}

// valid reports whether a document is as the Schema says; it knows what the Schema uses.
func (n *schemaNode) valid(root *schemaNode, v any) bool {
	if n.Ref != "" && !root.Defs[filepath.Base(n.Ref)].valid(root, v) || n.Const != nil && v != *n.Const || !n.chosen(root, v) {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		return n.is("object") && n.validMap(root, v)
	case []any:
		return n.is("array") && n.validList(root, v)
	case string:
		return n.is("string") && n.validText(v)
	case float64:
		return (n.is("number") || n.Type == "integer" && v == float64(int64(v))) && n.validNumber(v)
	case bool:
		return n.is("boolean")
	}
	return false
}

func (n *schemaNode) is(kind string) bool { return n.Type == "" || n.Type == kind }

// chosen reports whether a value is one of those that the node lists.
func (n *schemaNode) chosen(root *schemaNode, v any) bool {
	if text, isText := v.(string); n.Enum != nil && !(isText && slices.Contains(n.Enum, text)) {
		return false
	}
	count := func(of []*schemaNode) (held int) {
		for _, s := range of {
			if s.valid(root, v) {
				held++
			}
		}
		return held
	}
	return (n.AnyOf == nil || count(n.AnyOf) > 0) && (n.OneOf == nil || count(n.OneOf) == 1)
}

func (n *schemaNode) validList(root *schemaNode, v []any) bool {
	if len(v) < n.MinItems || n.MaxItems > 0 && len(v) > n.MaxItems {
		return false
	}
	return n.Items == nil || !slices.ContainsFunc(v, func(item any) bool { return !n.Items.valid(root, item) })
}

func (n *schemaNode) validText(v string) bool {
	return len(v) >= n.MinLength && (n.MaxLength == 0 || len(v) <= n.MaxLength) &&
		(n.Pattern == "" || regexp.MustCompile(n.Pattern).MatchString(v))
}

func (n *schemaNode) validNumber(v float64) bool {
	return (n.Minimum == nil || v >= *n.Minimum) && (n.Maximum == nil || v <= *n.Maximum)
}

func (n *schemaNode) validMap(root *schemaNode, v map[string]any) bool {
	if n.MaxProperties > 0 && len(v) > n.MaxProperties {
		return false
	}
	for _, field := range n.Required {
		if _, ok := v[field]; !ok {
			return false
		}
	}
	for field, value := range v {
		if n.PropertyNames != nil && !n.PropertyNames.valid(root, field) {
			return false
		}
		p, known := n.Properties[field]
		switch additional := n.AdditionalProperties.(type) {
		case bool:
			if !known && !additional {
				return false
			}
		case map[string]any:
			if !known {
				text, _ := json.Marshal(additional)
				p = new(schemaNode)
				if json.Unmarshal(text, p) != nil {
					return false
				}
			}
		}
		if p != nil && !p.valid(root, value) {
			return false
		}
	}
	return true
}

// document is a YAML text as JSON has it.
func document(t *testing.T, text string) (v any) {
	t.Helper()
	var plain any
	require.NoError(t, yaml.Unmarshal([]byte(text), &plain))
	asJSON, err := json.Marshal(plain)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(asJSON, &v))
	return v
}

func TestTheExamplesAreGoodAndAsTheSchemaSays(t *testing.T) {
	root := readSchema(t)
	files, err := filepath.Glob("examples/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		mustParse(t, string(text))
		require.True(t, root.valid(root, document(t, string(text))), name)
	}
	require.True(t, root.valid(root, document(t, large(50))))
}

func TestTheSchemaAllowsWhatTheParserReads(t *testing.T) {
	root := readSchema(t)
	const good = "\nkey: ip\nlimit: {rate: 1, per: 1s}"
	for want, texts := range map[bool][]string{true: {
		"cost: 1", "match: {not: {path: /a}}", "match: {not: [{path: [/a, /b]}, {method: [OPTIONS]}]}", "match: {not: {header: {X-A: '*'}, host: a}}",
		"match: {header: {X-V: {exact: 'a*'}}}", "match: {header: {X-V: [a, {exact: 'a*'}]}}", "match: {host: {exact: a}}",
	}, false: {
		"match: {not: {}}", "match: {not: []}", "match: {not: /a}", "match: {not: {path: a}}", "match: {not: {paths: /a}}", "match: {not: {not: {path: /a}}}",
		"match: {header: {X-V: {prefix: a}}}", "match: {header: {X-V: {exact: ''}}}", "match: {header: {X-V: {}}}",
		"match: {pat: /}", "match: {path: v1}", "match: {method: get}", "limits: []", "cost: -1", "cost: size", "cost: {default: 1}", "soft: {over: 20%}", "soft: {over: 2, for: 1m}",
		"count: 401", "count: {status: []}", "refund_on: {status: 600}", "refund_on: {status: 9xx}", "reserve: size\nsettle: {json: a}", "reserve: {default: 1}\nsettle: {json: a}",
		"settle: {unit: 2}", "settle: {json: []}", "settle: {json: [[a], b]}", "settle: {json: [[a], []]}", "settle: {sse: [[[a]]]}", "settle: {json: a, on_error: spend}",
		"partition: fail-open", "shadow: 1",
	}} {
		for _, fields := range texts {
			_, err := Parse("rules.yaml", []byte(one(fields+good)))
			require.Equal(t, want, err == nil, "%s: %v", fields, err)
			require.Equal(t, want, root.valid(root, document(t, one(fields+good))), fields)
		}
	}
	for _, text := range []string{
		"version: 1", "rules: {}", one("key: ip"), one("limit: {rate: 1, per: 1s}"), one("keys: ip" + good), one("key: who\nlimit: {rate: 1, per: 1s}"),
		one("key: ip\nlimit: {rate: 0, per: 1s}"), one("key: ip\nlimit: {rate: 1}"), one("key: ip\nlimit: {rate: 1, per: 1h, calendar: day}"),
		one("key: ip\nlimit: {rate: 1, per: 5}"), one("key: ip\nlimit: {rate: 1, per: day}"), one("key: ip\nlimit: {rate: 1, algorithm: in_flight, per: 1s}"),
		"tiers: {free: {times: 2}}\nrules: []", "tiers: {'a/b': {}}\nrules: []", "exempt: {ips: a}\nrules: []",
	} {
		_, err := Parse("rules.yaml", []byte(text))
		require.Error(t, err, text)
		require.False(t, root.valid(root, document(t, text)), text)
	}
}
