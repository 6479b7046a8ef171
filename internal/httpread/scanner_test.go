package httpread

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sumOf returns the Sum of the terms that the texts describe.
func sumOf(t testing.TB, texts ...string) (sum Sum) {
	t.Helper()
	for _, text := range texts {
		term, err := ParseTerm(text)
		require.NoError(t, err)
		require.Equal(t, text, term.String())
		sum = append(sum, term)
	}
	return sum
}

// inParts scans a text as a whole, and then in parts of 1, 2 and 3 bytes. It returns the result, which must be
// the same each time.
func inParts(t testing.TB, text string, begin func() (scan func([]byte), s *Scanner)) (sum int64, all bool) {
	t.Helper()
	scan, s := begin()
	scan([]byte(text))
	sum, all = s.Sum()
	for size := 1; size < 4; size++ {
		scan, s := begin()
		for i := 0; i < len(text); i += size {
			scan([]byte(text[i:min(len(text), i+size)]))
		}
		again, same := s.Sum()
		require.Equal(t, fmt.Sprint(sum, all), fmt.Sprint(again, same), "%q in parts of %d", text, size)
	}
	return sum, all
}

func TestLastNumberAtPathIsFound(t *testing.T) {
	const usage = "usage.total_tokens"
	for _, c := range []struct {
		text  string
		paths []string
		sum   int64
		all   bool
	}{
		{`{"usage":{"total_tokens":42}}`, []string{usage}, 42, true},
		{`{"usage":{"prompt_tokens":40,"total_tokens":42,"x":{"total_tokens":1}},"total_tokens":7}`, []string{usage}, 42, true},
		{`{"a":{"usage":{"total_tokens":1}},"usage":{"total_tokens":2}}`, []string{usage}, 2, true},
		{`{"usage":[{"total_tokens":1}],"list":["usage",{"total_tokens":3}]}`, []string{usage}, 0, false},
		{`[{"usage":{"total_tokens":1}}]`, []string{usage}, 1, true},
		{`[{"usage":{"total_tokens":1}}, {"usage":{"total_tokens":7}}, {"n":1}]`, []string{usage}, 7, true},
		{`[[{"usage":{"total_tokens":1}}]]`, []string{usage}, 0, false},
		{`[1,"usage",{"usage":[{"total_tokens":1}]},{"total_tokens":2}]`, []string{usage}, 0, false},
		{`[]{"usage":{"total_tokens":2}}[{"usage":{"total_tokens":3}}]`, []string{usage}, 3, true},
		{`{"a":1,"b":null}`, []string{"a", "b or 0", "c or 0"}, 1, true},
		{`{"a":1,"b":5}`, []string{"a", "b or 0", "c or 0"}, 6, true},
		{`{"b":5}`, []string{"a", "b or 0"}, 5, false},
		{`{"usage":null}`, []string{usage}, 0, false},
		{`{"usage":{"total_tokens":"42"}}`, []string{usage}, 0, false},
		{`{"usage":{"total_tokens":-42}}`, []string{usage}, 0, false},
		{`{"usage":{"total_tokens":41.2}}`, []string{usage}, 42, true},
		{`{"usage":{"total_tokens":4.2e1}}`, []string{usage}, 42, true},
		{`{"usage":{"total_tokens":99999999999999999999}}`, []string{usage}, 9223372036854775807, true},
		{`{"text":"\"usage\":{\"total_tokens\":1}","usage":{"total_tokens":2}}`, []string{usage}, 2, true},
		{`{"us\u0061ge":{"total_tokens":2}}`, []string{usage}, 2, true},
		{"{ \"usage\" : {\r\n\t\"total_tokens\" : 2 } }", []string{usage}, 2, true},
		{`{"max_tokens":1,"max_tokens":2}`, []string{"max_tokens"}, 2, true},
		{"{\"n\":1}\n{\"n\":2}\n{\"m\":3}", []string{"n"}, 2, true},
		{`{"a":{"b":1},"c":2}`, []string{"a.b", "c"}, 3, true},
		{`{"a":{"b":1}}`, []string{"a.b", "c"}, 1, false},
		{`{"a":{},"b":[],"c":[[],{}],"n":5}`, []string{"n"}, 5, true},
		{`{"n":true,"n":false,"n":5,"n":null}`, []string{"n"}, 5, true},
		{strings.Repeat("[", maxDepth+1) + `{"n":5}`, []string{"n"}, 0, false},
		{`{"` + strings.Repeat("a", 1000) + `":1,"n":5}`, []string{"n"}, 5, true},
		{`{"n":` + strings.Repeat("1", 1000) + `,"m":5}`, []string{"n"}, 0, false},
		{`<html>{"n":5}`, []string{"n"}, 0, false},
		{`{"n":5`, []string{"n"}, 0, false},
		{"", []string{"n"}, 0, false},
	} {
		p := sumOf(t, c.paths...)
		sum, all := inParts(t, c.text, func() (func([]byte), *Scanner) { s := NewScanner(p); return s.Scan, s })
		require.Equal(t, fmt.Sprint(c.sum, c.all), fmt.Sprint(sum, all), c.text)
	}
}

func TestScannerReturnsFirstSumFound(t *testing.T) {
	sums := []Sum{sumOf(t, "total"), sumOf(t, "in", "out", "cached or 0"), sumOf(t, "prompt", "completion")}
	for text, want := range map[string]string{
		`{"in":1,"out":2}`:                           "3 true",
		`{"in":1,"out":2,"cached":4}`:                "7 true",
		`{"in":1,"out":2,"total":9}`:                 "9 true",
		`{"prompt":1,"completion":2,"in":3}`:         "3 true",
		`{"prompt":1,"in":5,"cached":3}`:             "8 false",
		`{"prompt":7,"in":5}`:                        "7 false",
		`{}`:                                         "0 false",
		`[{"in":1,"out":1},{"out":5,"cached":null}]`: "6 true",
	} {
		sum, all := inParts(t, text, func() (func([]byte), *Scanner) { s := NewScanner(sums...); return s.Scan, s })
		require.Equal(t, want, fmt.Sprint(sum, all), text)
	}
}

const (
	openAI = `data: {"id":"a","choices":[{"delta":{"content":"hi \"usage\""}}],"usage":null}

data: {"id":"a","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}

data: [DONE]

`
	anthropic = "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\r\n\r\n" +
		"event: ping\r\ndata: {\"type\": \"ping\"}\r\n\r\n" +
		"event: message_delta\r\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\r\n\r\n" +
		"event: message_delta\r\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\r\n\r\n"
)

func TestLastNumberInEventsIsUsed(t *testing.T) {
	for _, c := range []struct {
		about, text string
		paths       []string
		sum         int64
		all         bool
	}{
		{"OpenAI", openAI, []string{"usage.total_tokens"}, 21, true},
		{"OpenAI without usage", strings.ReplaceAll(openAI, "total_tokens", "tokens"), []string{"usage.total_tokens"}, 0, false},
		{"Anthropic", anthropic, []string{"message.usage.input_tokens", "usage.output_tokens"}, 40, true},
		{"Anthropic, broken off", anthropic[:120], []string{"message.usage.input_tokens", "usage.output_tokens"}, 25, false},
		{"data in several lines", "\xef\xbb\xbfdata: {\"n\":\ndata:  5}\n\n", []string{"n"}, 5, true},
		{"old line ends", "data:{\"n\":5}\r\rdata:{\"m\":6}\r\r", []string{"n"}, 5, true},
		{"what is no data", ": {\"n\":1}\nid: {\"n\":1}\nevent\ndatum: {\"n\":1}\ndatabase: {\"n\":1}\ndata\n\ndata: {\"m\":1}\n\n", []string{"n"}, 0, false},
		{"an event that is cut in the middle", "data: {\"n\":[1,\n\ndata: {\"n\":5}\n\n", []string{"n"}, 5, true},
	} {
		p := sumOf(t, c.paths...)
		sum, all := inParts(t, c.text, func() (func([]byte), *Scanner) {
			e := &Events{Scanner: NewScanner(p)}
			return e.Scan, e.Scanner
		})
		require.Equal(t, fmt.Sprint(c.sum, c.all), fmt.Sprint(sum, all), c.about)
	}
}

func TestPathConsistsOfObjectNames(t *testing.T) {
	p, err := ParsePath("usage.total-tokens_2")
	require.NoError(t, err)
	require.Equal(t, "usage.total-tokens_2", p.String())
	for _, wrong := range []string{"", ".", "a.", "a..b", "$.a[0]", "a b", "a?", "a or 0", "a?.b", strings.Repeat("a", 65), strings.Repeat("a.", 8) + "a"} {
		_, err := ParsePath(wrong)
		require.ErrorContains(t, err, fmt.Sprintf("%q", wrong))
	}
}

func TestScannerMemoryIsBounded(t *testing.T) {
	s := NewScanner(sumOf(t, "a.b"))
	part := []byte(`{"a` + strings.Repeat("x", 4096))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { s.Scan(part) }), 0.0)
	require.LessOrEqual(t, cap(s.text), 2*maxRaw)
}

// lastNumber returns the last number at a path of a valid JSON text.
func lastNumber(t *testing.T, text []byte, path Path) (n int64, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	depth := 0
	var walk func(names Path) bool
	walk = func(names Path) bool { // walks a value; names are the rest of the path, nil for no path
		token, err := decoder.Token()
		if err == io.EOF {
			return false
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case json.Delim:
			for decoder.More() {
				var below Path
				if token == '[' && depth == 0 {
					below = names
				}
				if token == '{' {
					name, err := decoder.Token()
					require.NoError(t, err)
					if len(names) > 0 && names[0] == name {
						below = names[1:]
					} else {
						below = nil
					}
				}
				depth++
				walk(below)
				depth--
			}
			_, err := decoder.Token()
			require.NoError(t, err)
		case json.Number:
			if names != nil && len(names) == 0 && len(token) <= maxNumber {
				if x, is := whole(token.String()); is {
					n, ok = x, true
				}
			}
		}
		return true
	}
	walk(path)
	return n, ok
}

// In valid JSON, the Scanner finds the same numbers as encoding/json. No other text causes a panic.
func FuzzScanner(f *testing.F) {
	f.Add([]byte(`{"usage":{"total_tokens":42}}`))
	f.Add([]byte(`[{"usage":[1,{"total_tokens":4.5e3}]}]`))
	f.Add([]byte(`{"us\u0061ge":{"total_tokens":1,"x":"\\\""},"usage":{"y":null}}`))
	f.Add([]byte(openAI))
	path := sumOf(f, "usage.total_tokens")
	f.Fuzz(func(t *testing.T, text []byte) {
		sum, all := inParts(t, string(text), func() (func([]byte), *Scanner) { s := NewScanner(path); return s.Scan, s })
		inParts(t, string(text), func() (func([]byte), *Scanner) { e := &Events{Scanner: NewScanner(path)}; return e.Scan, e.Scanner })
		if json.Valid(text) && bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) <= maxDepth {
			n, ok := lastNumber(t, text, path[0].Path)
			require.Equal(t, fmt.Sprint(n, ok), fmt.Sprint(sum, all), "%q", text)
		}
	})
}

func FuzzParseTerm(f *testing.F) {
	f.Add("usage.total_tokens")
	f.Add("usage.cached_tokens or 0")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParsePath(text); err == nil {
			require.Equal(t, text, p.String())
		}
		if term, err := ParseTerm(text); err == nil {
			require.Equal(t, text, term.String())
		}
	})
}
