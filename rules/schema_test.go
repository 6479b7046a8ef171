package rules

import (
	"encoding"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/snippets"
)

func readSchema(t *testing.T) *snippets.Schema {
	root := new(snippets.Schema)
	require.NoError(t, snippets.ReadSchema(Schema(), root))
	return root
}

// conforms reports whether the Schema allows a YAML text.
func conforms(t *testing.T, root *snippets.Schema, text string) bool {
	t.Helper()
	var plain, v any
	require.NoError(t, yaml.Unmarshal([]byte(text), &plain))
	asJSON, err := json.Marshal(plain)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(asJSON, &v))
	return root.Check(v, root.Defs) == nil
}

func TestSchemaHasFieldsOfParser(t *testing.T) {
	root := readSchema(t)
	cost := root.Defs["cost"].OneOf[2]
	for name, c := range map[string]struct {
		in     *snippets.Schema
		fields []string
	}{
		"the file": {root, fileFields},
		"tier":     {root.Defs["tier"], tierFields},
		"time":     {root.Defs["time"], windowFields},
		"of times": {root.Defs["timeNumbers"], timeFields},
		"exempt":   {root.Defs["exempt"], exemptFields},
		"deny":     {root.Defs["deny"], denyFields},
		"rule":     {root.Defs["rule"], ruleFields},
		"match":    {root.Defs["match"], matchFields},
		"not":      {root.Defs["not"], notFields},
		"exact":    {root.Defs["exact"], exactFields},
		"limit":    {root.Defs["limit"], limitFields},
		"numbers":  {root.Defs["numbers"], numberFields},
		"cost":     {cost, costFields},
		"outcome":  {root.Defs["outcome"], outcomeFields},
		"reserve":  {root.Defs["reserve"].OneOf[2], reserveFields},
		"route":    {root.Defs["route"], routeFields},
		"settle":   {root.Defs["settle"], settleFields},
		"soft":     {root.Defs["soft"], softFields},
		"ban":      {root.Defs["ban"], banFields},
		"adapt":    {root.Defs["adapt"], adaptFields},
		"raise":    {root.Defs["raise"], raiseFields},
		"denied":   {root.Defs["denied"], deniedFields},
		"of tiers": {root.Defs["deniedTexts"], deniedTextFields},
	} {
		var has []string
		for field := range c.in.Properties {
			has = append(has, field)
		}
		require.ElementsMatch(t, c.fields, has, name)
		require.Equal(t, "false", string(c.in.AdditionalProperties), name)
	}
	for name, c := range map[string]struct {
		in    *snippets.Schema
		names []string
	}{
		"day":         {root.Defs["day"], dayNames},
		"method":      {root.Defs["method"], methodNames},
		"algorithm":   {root.Defs["limit"].Properties["algorithm"], namesOfEnum[weir.Algorithm]()},
		"calendar":    {root.Defs["limit"].Properties["calendar"], namesOfEnum[weir.Calendar]()[1:]},
		"scope":       {root.Defs["rule"].Properties["scope"], namesOfEnum[weir.Scope]()},
		"partition":   {root.Defs["rule"].Properties["partition"], namesOfEnum[weir.PartitionPolicy]()},
		"on_error":    {root.Defs["settle"].Properties["on_error"], onErrorNames},
		"missing_key": {root.Defs["rule"].Properties["missing_key"], lackingNames},
		"key":         {root.Defs["part"].AnyOf[0], keyNames[:6]},
	} {
		require.Equal(t, c.names, c.in.Enum, name)
	}
}

// namesOfEnum returns the names of all values of an enumeration, in order.
func namesOfEnum[T interface {
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

func TestExamplesConformToSchema(t *testing.T) {
	root := readSchema(t)
	files, err := filepath.Glob("examples/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		mustParse(t, string(text))
		require.True(t, conforms(t, root, string(text)), name)
	}
	require.True(t, conforms(t, root, largeFile(50)))
	require.True(t, conforms(t, root, denyFile))
	require.True(t, conforms(t, root, timed))
}

func TestSchemaAgreesWithParser(t *testing.T) {
	root := readSchema(t)
	const good = "\nkey: ip\nlimit: {rate: 2, per: 1s, keep: 1}"
	for want, texts := range map[bool][]string{true: {
		"cost: 1", "cost: {by: {method: POST, units: 5}}", "cost: {by: [{path: [/a, /b/], units: 0}, {method: [GET], path: /c, units: 2}], from: content_length, unit: 2, default: 3}", "enforce: 10%", "enabled: false", "match: {not: {path: /a}}", "match: {not: [{path: [/a, /b]}, {method: [OPTIONS]}]}", "match: {not: {header: {X-A: '*'}, host: a}}",
		"match: {header: {X-V: {exact: 'a*'}}}", "match: {header: {X-V: [a, {exact: 'a*'}]}}", "match: {host: {exact: a}}", "warn: 80%", "critical: {user: [a, {exact: b}]}", "critical: [{path: /a}, {method: GET, header: {X-A: '*'}}]",
		"match: {ip: 10.0.0.0/8, user: [a, {exact: 'b*'}], api_key: k, host: '*.a.com'}", "match: {not: {ip: [10.0.0.1]}}", "match: {not: {user: a}}",
		"denied: {title: No, detail: '{limit} {', upgrade_url: '/up?tier={tier}', html: '<style>p{color:red}</style>{detail}', headers: {X-A: '{limit}'}, tiers: {}}",
	}, false: {
		"warn: 80", "warn: 0.8", "warn: 80 %", "denied: {}", "denied: {text: a}", "denied: {detail: ''}", "denied: {upgrade_url: 'javascript:a'}", "denied: {headers: {X-A: ''}}", "denied: {headers: {X-A: \"a\\nb\"}}", "denied: {tiers: {a: {name: b}}}",
		"critical: {}", "critical: []", "critical: true", "critical: {not: {path: /a}}",
		"match: {not: {}}", "match: {not: []}", "match: {not: /a}", "match: {not: {path: a}}", "match: {not: {paths: /a}}", "match: {not: {not: {path: /a}}}",
		"match: {header: {X-V: {prefix: a}}}", "match: {header: {X-V: {exact: ''}}}", "match: {header: {X-V: {}}}",
		"match: {pat: /}", "match: {ip: []}", "match: {not: {user: []}}", "match: {path: v1}", "match: {method: get}", "limits: []", "cost: -1", "cost: size", "cost: {default: 1}", "cost: {by: []}", "cost: {by: {units: 1}}", "cost: {by: {method: GET}}", "cost: {by: {match: {method: GET}, units: 1}}", "reserve: {by: {method: GET, units: 2}}\nsettle: {json: a}", "soft: {over: 20%}", "soft: {over: 2, for: 1m}",
		"count: 401", "count: {status: []}", "refund_on: {status: 600}", "refund_on: {status: 9xx}", "reserve: size\nsettle: {json: a}", "reserve: {default: 1}\nsettle: {json: a}",
		"settle: {unit: 2}", "settle: {json: []}", "settle: {json: [[a], b]}", "settle: {json: [[a], []]}", "settle: {sse: [[[a]]]}", "settle: {json: a, on_error: spend}",
		"partition: fail-open", "shadow: 1", "enforce: 10", "enforce: some", "enabled: 0",
	}} {
		for _, fields := range texts {
			_, err := Parse("rules.yaml", []byte(oneRule(fields+good)))
			require.Equal(t, want, err == nil, "%s: %v", fields, err)
			require.Equal(t, want, conforms(t, root, oneRule(fields+good)), fields)
		}
	}
	for _, text := range []string{
		"version: 1", "rules: {}", oneRule("key: ip"), oneRule("key: [ip, ip]\nlimit: {rate: 1, per: 1s}"), oneRule("limit: {rate: 1, per: 1s}"), oneRule("keys: ip" + good), oneRule("key: who\nlimit: {rate: 1, per: 1s}"),
		oneRule("key: ip\nlimit: {rate: 0, per: 1s}"), oneRule("key: ip\nlimit: {rate: 1}"), oneRule("key: ip\nlimit: {rate: 1, per: 1h, calendar: day}"),
		oneRule("key: ip\nlimit: {rate: 1, per: 5}"), oneRule("key: ip\nlimit: {rate: 1, per: day}"), oneRule("key: ip\nlimit: {rate: 1, algorithm: in_flight, per: 1s}"),
		"tiers: {free: {times: 2}}\nrules: []", "times: {}\nrules: []", "times: [{}]\nrules: []", "times: [{name: a, from: 9:00}]\nrules: []", "times: [{name: a, to: '24:30'}]\nrules: []", "times: [{name: a, days: Mon}]\nrules: []",
		"times: [{name: a}]\n" + oneRule("key: ip\nlimit: {rate: 1, per: 1h, times: {a: {}}}"), "times: [{name: a}]\n" + oneRule("key: ip\nlimit: {rate: 1, per: 1h, times: {a: {multiply: 2, rate: 1}}}"), "tiers: {'a/b': {}}\nrules: []", "exempt: {ips: a}\nrules: []",
		"deny: []\nrules: []", "deny: {reason: r}\nrules: []", "deny: {ip: 192.0.2.1, until: soon}\nrules: []", "deny: {keys: a}\nrules: []",
	} {
		_, err := Parse("rules.yaml", []byte(text))
		require.Error(t, err, text)
		require.False(t, conforms(t, root, text), text)
	}
}
