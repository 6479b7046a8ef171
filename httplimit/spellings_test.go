package httplimit

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/httpread"
)

// written is a row of the table in testdata/spellings.txt.
type written struct {
	sent   []string // request line without the version, and the lines of the header
	meets  []string // names of rules; nil if net/http answers with 400
	answer bool     // net/http itself answers with 400
	refuse bool     // refused with RefuseAmbiguousPaths
}

var code = regexp.MustCompile("`([^`]+)`")

func codes(cell string) (all []string) {
	for _, m := range code.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// spellings returns the rules and the rows of the table in testdata/spellings.txt.
func spellings(t *testing.T) (file string, rows []written) {
	text, err := os.ReadFile("testdata/spellings.txt")
	require.NoError(t, err)
	_, file, _ = strings.Cut(string(text), "```yaml\n")
	file, table, _ := strings.Cut(file, "```\n")
	require.NotEmpty(t, file)
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows = append(rows, written{
			sent: codes(cells[1]), meets: codes(cells[3]), answer: strings.TrimSpace(cells[3]) == "400",
			refuse: strings.TrimSpace(cells[4]) == "400",
		})
	}
	require.Len(t, rows, 39)
	return file, rows
}

// send writes a request literally. It returns the status of the response, and the names of the
// rules that the request met.
func send(t *testing.T, server *httptest.Server, sent []string) (status int, met []string) {
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	lines := slices.Clone(sent)
	lines[0] += " HTTP/1.1"
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "Host:") }) {
		lines = append(lines, "Host: localhost")
	}
	_, err = fmt.Fprint(conn, strings.Join(append(lines, "Connection: close", "", ""), "\r\n"))
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	for _, name := range regexp.MustCompile(`"([a-z]+)";q=`).FindAllStringSubmatch(answer.Header.Get("RateLimit-Policy"), -1) {
		met = append(met, name[1])
	}
	return answer.StatusCode, met
}

func TestPathSpellingsMeetDocumentedRules(t *testing.T) {
	file, rows := spellings(t)
	serve := func(o Options) *httptest.Server {
		m := newLimiter(t, file, o, weir.Config{})
		s := httptest.NewServer(m.Handler(hello))
		t.Cleanup(s.Close)
		return s
	}
	lenient, strict := serve(Options{}), serve(Options{RefuseAmbiguousPaths: true})
	for _, row := range rows {
		t.Run(strings.Join(row.sent, " with "), func(t *testing.T) {
			status, met := send(t, lenient, row.sent)
			if row.answer {
				require.Equal(t, http.StatusBadRequest, status)
			} else {
				require.Equal(t, http.StatusOK, status)
			}
			require.Equal(t, row.meets, met)
			status, met = send(t, strict, row.sent)
			if row.refuse {
				require.Equal(t, http.StatusBadRequest, status)
				require.Empty(t, met)
				return
			}
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, row.meets, met)
		})
	}
}

func TestAmbiguousPathIsRefusedWithReason(t *testing.T) {
	var told []Outcome
	served := 0
	m := newLimiter(t, "rules: [{name: all, key: global, limit: {rate: 10, per: 1h}}, {name: a, match: {path: /a/}, key: global, limit: {rate: 100, per: 1h}}]", Options{
		RefuseAmbiguousPaths: true,
		Skip:                 func(r *http.Request) bool { return r.URL.Path == "//health" },
		OnDecision:           func(_ *http.Request, o *Outcome) { told = append(told, *o) },
	}, weir.Config{})
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	for path, why := range map[string]string{
		`/a\b`: "a backslash", "/a%5Cb": "a backslash", "/a;b": "a semicolon", "/a%3Bb": "a semicolon",
		"/a%2Fb": "an escaped slash", "//a": "an empty segment", "/a//": "an empty segment",
		"/a%252fb": "a double escape", "/a%2500": "a double escape",
		"/a%00": "a control character", "/%7f": "a control character", "/%ff": "invalid UTF-8",
		"/a%2F%2Fb": "an empty segment", "/b%2F..": "a dot segment", "/b#c": "a fragment", "/#": "a fragment", "/a%2Fb#": "a fragment",
		"/./a": "a dot segment", "/a/..": "a dot segment", "/a/%2e%2E": "a dot segment", "/%2e": "a dot segment",
	} {
		w := answer(h, get(path, "192.0.2.1", "Accept", "application/json"))
		require.Equal(t, http.StatusBadRequest, w.Code, path)
		require.JSONEq(t, `{"error":"ambiguous_path","message":"the path has `+why+`, which servers interpret differently: send the path without it"}`, w.Body.String(), path)
		require.Empty(t, w.Header().Get("RateLimit"))
		require.Empty(t, w.Header().Get("Retry-After"))
	}
	require.Len(t, told, 21)
	for _, o := range told {
		require.Equal(t, http.StatusBadRequest, o.Status)
		require.Error(t, o.Err)
		require.NotNil(t, o.Snapshot)
		require.Empty(t, o.Verdicts)
	}
	require.Zero(t, served)
	remaining := ""
	for _, path := range []string{"/", "/a/b/", "/a.b/..c/.../d", "/%61", "/%E2%82%AC", "/100%25", "/100%25z9", "//health", "/a:b@c,d=e+f", "/group%2Fproject", "/a/group%2Fproject|"} {
		w := answer(h, get(path, "192.0.2.1"))
		require.Equal(t, http.StatusOK, w.Code, path)
		remaining = w.Header().Get("X-RateLimit-Remaining")
	}
	require.Equal(t, 11, served)
	require.Equal(t, "0", remaining, "only what went on is counted, but for what is skipped")
}

func TestUnambiguousPathDoesNotAllocate(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if httpread.Ambiguity("/v1/items/77/parts.json") != "" {
			t.Fail()
		}
	}))
}
