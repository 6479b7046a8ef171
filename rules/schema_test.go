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

// valid says whether a document is as the Schema says; it knows what the Schema
// uses.
func (n *schemaNode) valid(root *schemaNode, v any) bool {
	if n.Ref != "" && !root.Defs[filepath.Base(n.Ref)].valid(root, v) {
		return false
	}
	if n.Const != nil && v != *n.Const {
		return false
	}
	if text, isText := v.(string); n.Enum != nil && !(isText && slices.Contains(n.Enum, text)) {
		return false
	}
	holds := func(s *schemaNode) bool { return s.valid(root, v) }
	if n.AnyOf != nil && !slices.ContainsFunc(n.AnyOf, holds) {
		return false
	}
	if n.OneOf != nil {
		held := 0
		for _, s := range n.OneOf {
			if holds(s) {
				held++
			}
		}
		if held != 1 {
			return false
		}
	}
	switch v := v.(type) {
	case map[string]any:
		return n.validMap(root, v)
	case []any:
		if n.Type != "" && n.Type != "array" || len(v) < n.MinItems || n.MaxItems > 0 && len(v) > n.MaxItems {
			return false
		}
		for _, item := range v {
			if n.Items != nil && !n.Items.valid(root, item) {
				return false
			}
		}
	case string:
		return (n.Type == "" || n.Type == "string") && len(v) >= n.MinLength && (n.MaxLength == 0 || len(v) <= n.MaxLength) &&
			(n.Pattern == "" || regexp.MustCompile(n.Pattern).MatchString(v))
	case float64:
		return (n.Type == "" || n.Type == "number" || n.Type == "integer" && v == float64(int64(v))) &&
			(n.Minimum == nil || v >= *n.Minimum) && (n.Maximum == nil || v <= *n.Maximum)
	case bool:
		return n.Type == "" || n.Type == "boolean"
	default:
		return false
	}
	return true
}

func (n *schemaNode) validMap(root *schemaNode, v map[string]any) bool {
	if n.Type != "" && n.Type != "object" || n.MaxProperties > 0 && len(v) > n.MaxProperties {
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

func TestTheSchemaAllowsWhatTheParserReads(t *testing.T) {
	root := readSchema(t)
	files, err := filepath.Glob("examples/*")
	require.NoError(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, root.valid(root, document(t, string(text))), name)
	}
	require.True(t, root.valid(root, document(t, large(50))))
}

func TestTheSchemaRefusesWhatTheParserRefuses(t *testing.T) {
	root := readSchema(t)
	const good = "\nkey: ip\nlimit: {rate: 1, per: 1s}"
	require.True(t, root.valid(root, document(t, one("cost: 1"+good))))
	for _, text := range []string{
		"version: 1", "rules: {}", one("key: ip"), one("limit: {rate: 1, per: 1s}"), one("keys: ip" + good), one("match: {pat: /}" + good),
		one("match: {path: v1}" + good), one("match: {method: get}" + good), one("key: who\nlimit: {rate: 1, per: 1s}"),
		one("key: ip\nlimit: {rate: 0, per: 1s}"), one("key: ip\nlimit: {rate: 1}"), one("key: ip\nlimit: {rate: 1, per: 1h, calendar: day}"),
		one("key: ip\nlimit: {rate: 1, per: 5}"), one("key: ip\nlimit: {rate: 1, per: day}"), one("limits: []" + good), one("cost: -1" + good),
		one("cost: size" + good), one("cost: {default: 1}" + good), one("soft: {over: 20%}" + good), one("soft: {over: 2, for: 1m}" + good),
		one("partition: fail-open" + good), one("shadow: 1" + good), "tiers: {free: {times: 2}}\nrules: []", "tiers: {'a/b': {}}\nrules: []", "exempt: {ips: a}\nrules: []",
	} {
		_, err := Parse("rules.yaml", []byte(text))
		require.Error(t, err, text)
		require.False(t, root.valid(root, document(t, text)), text)
	}
}
