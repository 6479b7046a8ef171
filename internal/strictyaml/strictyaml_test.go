package strictyaml

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

// limit is the type that the tests read. Each kind of value has a field.
type limit struct {
	Name, Policy string
	On           bool
	Rate         int64
	Version      uint64
	Ratio, Loss  float64
	Per          time.Duration
	Nodes        []string
	Regions      map[string][]string
}

func readLimit(text string) (l limit, err error) {
	file, err := Parse("limits.yaml", []byte(text))
	if err != nil {
		return l, err
	}
	m := file.Root().Map("name", "policy", "enabled", "rate", "version", "ratio", "loss", "per", "nodes", "regions")
	l = limit{
		Name:    m.Get("name").Required().Text(),
		Policy:  m.Get("policy").OneOf("policy", []string{"fair_share", "fail_open"}),
		On:      m.Get("enabled").Bool(),
		Rate:    m.Get("rate").Int(1, 1000),
		Version: m.Get("version").Uint(),
		Ratio:   m.Get("ratio").Float(0, 1),
		Loss:    m.Get("loss").Percent(),
		Per:     m.Get("per").Duration(time.Millisecond, time.Hour),
	}
	for _, v := range m.Get("nodes").OneOrMore() {
		l.Nodes = append(l.Nodes, v.Text())
	}
	for _, e := range m.Get("regions").Entries() {
		if l.Regions == nil {
			l.Regions = make(map[string][]string)
		}
		for _, v := range e.Value.List() {
			l.Regions[e.Field] = append(l.Regions[e.Field], v.Text())
		}
	}
	return l, file.Err()
}

func TestValuesAreReadAsTypesOfTheirFields(t *testing.T) {
	l, err := readLimit(`
name: "404" # in quotes, it is a text
policy: fair_share
enabled: true
rate: 1_000
version: 18446744073709551615
ratio: 2.5e-1
loss: 0.1%
per: 1m30s
nodes: [a, b]
regions: {east: [c], west: [d, e]}
`)
	require.NoError(t, err)
	require.Equal(t, limit{
		Name: "404", Policy: "fair_share", On: true, Rate: 1000, Version: math.MaxUint64, Ratio: 0.25, Loss: 0.001,
		Per: 90 * time.Second, Nodes: []string{"a", "b"},
		Regions: map[string][]string{"east": {"c"}, "west": {"d", "e"}},
	}, l)
}

func TestLiteralIsTextOfFile(t *testing.T) {
	for text, want := range map[string]string{
		"a": "a", "'5'": "5", "5": "5", "0x1F": "0x1F", "007": "007", "1_000": "1_000", "5.50": "5.50", "true": "true", "False": "False", "yes": "yes", "2026-01-02": "2026-01-02", "''": "",
	} {
		file, err := Parse("f.yaml", []byte("k: "+text))
		require.NoError(t, err)
		require.Equal(t, want, file.Root().Map("k").Get("k").Literal(), text)
		require.NoError(t, file.Err(), text)
	}
	for text, want := range map[string]string{"": "f.yaml:1:3: k has no value: give it one, or remove it", "[a]": "f.yaml:1:4: k is a list: use a single value"} {
		file, err := Parse("f.yaml", []byte("k: "+text))
		require.NoError(t, err)
		require.Empty(t, file.Root().Map("k").Get("k").Literal())
		require.EqualError(t, file.Err(), want)
	}
}

func TestDecodeReadsEachKindOfValue(t *testing.T) {
	read := func(text string) (any, error) {
		file, err := Parse("f.yaml", []byte(text))
		require.NoError(t, err)
		return file.Root().Decode(), file.Err()
	}
	got, err := read("{a: {b: [1, 2.5, -0x10, 1_000]}, c: True, d: '5', e: text, f: , g: [], h: {}, i: 2026-01-02, 7: seven, j: [[a], {b: c}]}")
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"a": map[string]any{"b": []any{1.0, 2.5, -16.0, 1000.0}}, "c": true, "d": "5", "e": "text", "f": nil, "g": []any{}, "h": map[string]any{},
		"i": "2026-01-02", "7": "seven", "j": []any{[]any{"a"}, map[string]any{"b": "c"}},
	}, got)
	for text, want := range map[string]string{
		"{a: .nan}":               "f.yaml:1:5: a is .nan: use a finite number, or put it in quotes",
		"{a: [1, -.inf]}":         "f.yaml:1:9: a is -.inf: use a finite number, or put it in quotes",
		"{a: {b: 1, c: 2, b: 3}}": `f.yaml:1:18: field "b" is set twice: remove one (the first is on line 1)`,
	} {
		_, err := read(text)
		require.EqualError(t, err, want)
	}
}

func TestSingleValueIsListOfOne(t *testing.T) {
	l, err := readLimit("name: api\nnodes: a")
	require.NoError(t, err)
	require.Equal(t, limit{Name: "api", Nodes: []string{"a"}}, l)
}

func TestErrorHasPositionAndSuggestion(t *testing.T) {
	for _, c := range []struct{ about, text, want string }{
		{"a misspelt field", "name: api\nrte: 5", `limits.yaml:2:1: unknown field "rte": did you mean "rate"?`},
		{"two letters swapped", "name: api\nepr: 5s", `limits.yaml:2:1: unknown field "epr": did you mean "per"?`},
		{"another case", "Name: api", "limits.yaml:1:1: unknown field \"Name\": did you mean \"name\"?\nlimits.yaml:1:1: name is missing"},
		{"a field like no other", "name: api\nwindow: 5s", `limits.yaml:2:1: unknown field "window": known are name, policy, enabled, rate, version, ratio, loss, per, nodes, regions`},
		{"a field twice", "name: api\nrate: 5\nname: web", `limits.yaml:3:1: field "name" is set twice: remove one (the first is on line 1)`},
		{"a field that is no text", "name: api\n[a]: 5", `limits.yaml:2:1: a field is a list: use text`},
		{"a merge key", "name: api\n<<: {rate: 5}", `limits.yaml:2:1: unknown field "<<": known are name, policy, enabled, rate, version, ratio, loss, per, nodes, regions`},
		{"a required field that is missing", "{rate: 5}", `limits.yaml:1:1: name is missing`},
		{"a field without a value", "name:\nrate: 5", `limits.yaml:1:6: name has no value: give it one, or remove it`},
		{"a misspelt name", "name: api\npolicy: fairshare", `limits.yaml:2:9: unknown policy "fairshare": did you mean "fair_share"?`},
		{"an unknown name", "name: api\npolicy: strict", `limits.yaml:2:9: unknown policy "strict": known are fair_share, fail_open`},
		{"an empty name", "name: api\npolicy: ''", `limits.yaml:2:9: unknown policy "": known are fair_share, fail_open`},
		{"a number for a text", "name: 404", `limits.yaml:1:7: name is 404, a number: put it in quotes if it is a text`},
		{"a truth for a text", "name: true", `limits.yaml:1:7: name is true, true or false: put it in quotes if it is a text`},
		{"a date for a text", "name: 2026-01-02", `limits.yaml:1:7: name is 2026-01-02, a date: put it in quotes if it is a text`},
		{"a text for a truth", "name: api\nenabled: yes", `limits.yaml:2:10: enabled is "yes": use true or false`},
		{"a list for a map", "[name, api]", `limits.yaml:1:1: the file is a list: use a map` + "\n" + `limits.yaml:1:1: name is missing`},
		{"a map for a number", "name: api\nrate: {per: 5s}", `limits.yaml:2:7: rate is a map: use a single value`},
		{"a map for a list", "name: api\nnodes: {a: b}", `limits.yaml:2:8: nodes is a map: use a single value`},
		{"a text for a list", "name: api\nregions: {a: b}", `limits.yaml:2:14: a is a text: use a list`},
		{"a text for a number", "name: api\nrate: many", `limits.yaml:2:7: rate is "many": use a whole number`},
		{"a number in quotes", "name: api\nrate: '5'", `limits.yaml:2:7: rate is the text "5": write it without quotes`},
		{"a broken number", "name: api\nrate: 1.5", `limits.yaml:2:7: rate is "1.5": use a whole number`},
		{"a number out of range", "name: api\nrate: 5000", `limits.yaml:2:7: rate is 5000: use 1 to 1000`},
		{"a number out of every range", "name: api\nrate: 99999999999999999999", `limits.yaml:2:7: rate is 99999999999999999999: use 1 to 1000`},
		{"a number below zero", "name: api\nversion: -1", `limits.yaml:2:10: version is "-1": use a whole number, 0 to 18446744073709551615`},
		{"a ratio out of range", "name: api\nratio: 1.5", `limits.yaml:2:8: ratio is 1.5: use 0 to 1`},
		{"no number", "name: api\nratio: .nan", `limits.yaml:2:8: ratio is ".nan": use a number`},
		{"infinity", "name: api\nratio: 1e999", `limits.yaml:2:8: ratio is "1e999": use a number`},
		{"a duration without its unit", "name: api\nper: 30", `limits.yaml:2:6: per is 30: add a unit, like 30s or 30ms`},
		{"a duration that is none", "name: api\nper: soon", `limits.yaml:2:6: per is "soon": use a duration, like 1m30s or 250ms`},
		{"a duration out of range", "name: api\nper: 2h", `limits.yaml:2:6: per is 2h: use 1ms to 1h0m0s`},
		{"a part that is no percentage", "name: api\nloss: 0.5", `limits.yaml:2:7: loss is 0.5: use a percentage, like 50%`},
		{"more than everything", "name: api\nloss: 150%", `limits.yaml:2:7: loss is 150%: use 0% to 100%`},
		{"a percentage without its sign", "name: api\nloss: 80", `limits.yaml:2:7: loss is 80: use a percentage, like 80%`},
		{"a zero without its sign", "name: api\nloss: 0", `limits.yaml:2:7: loss is 0: use a percentage, like 0%`},
		{"a percentage that is none", "name: api\nloss: some%", `limits.yaml:2:7: loss is "some%": use a percentage, like 0.1%`},
		{"several at once, in their order", "rate: 0\nper: 1\nnme: api", "limits.yaml:1:1: name is missing\nlimits.yaml:1:7: rate is 0: use 1 to 1000\nlimits.yaml:2:6: per is 1: add a unit, like 1s or 1ms\nlimits.yaml:3:1: unknown field \"nme\": did you mean \"name\"?"},

		{"nothing", "", `limits.yaml: the file is empty`},
		{"only a comment", "# nothing\n", `limits.yaml: the file is empty`},
		{"no YAML", "name: [a\nrate: 5", `limits.yaml:2: not YAML: did not find expected ',' or ']'`},
		{"no YAML further on", "name: api\nrate: 5\nnodes: [a\nper: 5s", `limits.yaml:3: not YAML: did not find expected ',' or ']'`},
		{"no YAML at once", "name: api: web", `limits.yaml:1: not YAML: mapping values are not allowed in this context`},
		{"a tab", "name: api\nnodes:\n\t- a", `limits.yaml:3: not YAML: found character that cannot start any token`},
		{"a quote that does not end", "name: api\nrate: 5\npolicy: 'a", `limits.yaml:3: not YAML: found unexpected end of stream`},
		{"an alias", "name: &a api\npolicy: *a", `limits.yaml:1:7: &a is an anchor, and aliases are not read: remove it`},
		{"a tag", "name: !!binary aGk=", `limits.yaml:1:7: !!binary is a tag, and tags are not read: remove it`},
		{"two documents", "name: api\n---\nname: web", `limits.yaml:3:1: the file has a second document: write one document in each file`},
		{"too deep", strings.Repeat("[", 40) + strings.Repeat("]", 40), `limits.yaml:1:33: this value is nested more than 32 deep: use fewer levels`},
		{"too long", strings.Repeat("#", MaxBytes+1), `limits.yaml: the file has 1048577 bytes: at most 1048576 are read`},
	} {
		_, err := readLimit(c.text)
		require.EqualError(t, err, c.want, c.about)
	}
}

func TestErrReturnsFirstErrorsOfFile(t *testing.T) {
	var text strings.Builder
	text.WriteString("name: api\n")
	for i := range 1000 {
		text.WriteString(strings.Repeat("x", 20+i%40) + string(rune('a'+i%26)) + ": 1\n")
	}
	_, err := readLimit(text.String())
	require.ErrorContains(t, err, "limits.yaml: there are ")
	require.Equal(t, maxTold+1, strings.Count(err.Error(), "\n")+1)
}

// These repetitions make careless parsers slow or large.
func TestHostileFilesAreReadInLinearTime(t *testing.T) {
	for _, part := range []string{
		"[", "{", "{a: ", "[a,", "- ", "? ", "a: ", "\n", "# c\na: b\n", "- a\n# c\n\n", "a\n ", "'", "\"", "!a ",
		"&a ", "&a [*a,", "*a ", "[{a: b}: ", "|\n", "---\n", "%TAG ! a\n", "- [\n", " ", "\t", "\xff", "? a\n#b\n",
	} {
		before := lab.CPU()
		_, err := readLimit(strings.Repeat(part, MaxBytes/len(part)))
		require.Error(t, err, "%q", part)
		require.Less(t, lab.CPU()-before, 20*time.Second, "%q", part) // the usual time is 0.3 s
	}
}

func FuzzNoFilePanics(f *testing.F) {
	f.Add("name: api\nrate: 5\nper: 1m\nloss: 1%\nnodes: [a]\nregions: {a: [b]}")
	f.Add("a: &a [*a]\n<<: *a")
	f.Add("? [a]\n: {b: c}\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := readLimit(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NotContains(t, text, "\x00")
		require.True(t, l.Loss >= 0 && l.Loss <= 1, "loss %v", l.Loss)
		require.True(t, l.Ratio >= 0 && l.Ratio <= 1, "ratio %v", l.Ratio)
	})
}

func TestTimeMeantReadsCommonFormsOnly(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1d": day, "1 day": day, "2days": 2 * day, "day": day, " 1 W ": 7 * day, "1wk": 7 * day, "1mo": 30 * day, "1 year": 365 * day,
		"1 minute": time.Minute, "minute": time.Minute, "90 Secs": 90 * time.Second, "0.5h": 30 * time.Minute, "1d12h": 36 * time.Hour, "1h 30min": 90 * time.Minute,
	} {
		d, ok := TimeMeant(text)
		require.True(t, ok, text)
		require.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "soon", "1", "0 days", "-1 day", "1M", "1.2.3d", "1e3d", "300000 years", "1d!", "d1", "1 day 2", "infd"} {
		_, ok := TimeMeant(text)
		require.False(t, ok, text)
	}
}
