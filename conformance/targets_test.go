package conformance

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// route is a handler that every router has, with the path of its rule.
type route struct {
	name, path string
	segments   []string // "" for a parameter, "..." for the rest
}

var routes = []route{
	{"home", "/{$}", nil},
	{"login", "/login", []string{"login"}},
	{"file", "/files/{name}", []string{"files", ""}},
	{"project", "/projects/{group}", []string{"projects", ""}},
	{"grouped", "/projects/{group}/{project}", []string{"projects", "", ""}},
	{"item", "/v1/{tenant}/items/{id}", []string{"v1", "", "items", ""}},
	{"admin", "/admin/{rest...}", []string{"admin", "..."}},
	{"report", "/Reports/{id}", []string{"Reports", ""}},
	{"space", "/a%20b/{x}", []string{"a%20b", ""}},
	{"accent", "/caf%C3%A9/{x}", []string{"caf%C3%A9", ""}},
}

// ruleFile returns a file with a rule for each route, whose limits never deny.
func ruleFile() string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for _, r := range routes {
		fmt.Fprintf(&b, "- {name: %s, match: {path: %q}, key: ip, limit: {rate: 1000000000000, per: 1h}}\n", r.name, r.path)
	}
	return b.String()
}

// grammar generates random request targets. A client library would not send some of them.
type grammar struct{ *rand.Rand }

// odd is a list of segments that servers interpret in different ways, or that clients
// should have escaped.
var odd = []string{
	"..", ".", "...", "%2e%2e", "%2E", ".%2e", "..%2f", "%2f..", "a%2Fb", "a%2f..%2fb", "%2F", "a%2Fb%2Fc", "a%252Fb", "%252e%252e",
	"a|b", "{a}", "a^", "\"q\"", "<b>", "`", "a#b", "#", "#/../x", "a%23b", "a\\b", "a%5Cb", "..\\", ";v=1", "a;b=c", "..;", "%3B",
	"%00", "a%00.html", "%0d%0a", "%7f", "\xff", "%ff", "%c0%af", "\xc3\xa9", "%C3%A9", "%c3%a9", "%zz", "%", "%2", "a?b", "%3F", "a:b", "a@b", "*", "a*",
	"+", "a+b", "a%20b", "~", "$&", "'", "(a)", ",", "=", "[a]", "%5B", "%7C", "%41", "%61", "%25", "%2541", "A", "LOGIN", "files", "%66iles", ":p", "{name}",
}

// plain is a list of segments that a client library may send.
var plain = []string{"1", "77", "abc", "a-b_c", "x.json", "group%2Fproject", "a%20b", "%E2%82%AC", "b", "%40scope%2Fname", "admin", "items"}

func pick[T any](g grammar, of []T) T { return of[g.IntN(len(of))] }

// segment draws the value of a parameter.
func (g grammar) segment() string {
	switch g.IntN(10) {
	case 0, 1, 2, 3:
		return pick(g, plain)
	case 4:
		return pick(g, odd) + pick(g, odd)
	case 5:
		return pick(g, plain) + pick(g, odd)
	default:
		return pick(g, odd)
	}
}

// spelled returns a random spelling of a text, usually the text itself.
func (g grammar) spelled(text string) string {
	switch g.IntN(24) {
	case 0:
		return strings.ToUpper(text)
	case 1:
		return strings.ToLower(text)
	case 2, 3:
		if text != "" && !strings.Contains(text, "%") {
			i := g.IntN(len(text))
			format := pick(g, []string{"%s%%%02x%s", "%s%%%02X%s", "%s%%25%02x%s"})
			return fmt.Sprintf(format, text[:i], text[i], text[i+1:])
		}
	case 4:
		return text + pick(g, odd)
	}
	return text
}

// slash returns a random separator of two segments, usually a single slash.
func (g grammar) slash() string {
	if g.IntN(12) > 0 {
		return "/"
	}
	return pick(g, []string{"//", "///", "/./", "/../", "/x/../", "//../", "/x//../../", "%2F", "%2f", "\\", "/%2e/", "/%2e%2e/", "/x/%2e%2e/", ";/", "/..;/", "/;/", "#/", "/#/", "%5c", "|/"})
}

// target draws the method and the target of a request.
func (g grammar) target() (method, target string) {
	r := pick(g, routes)
	var b strings.Builder
	for _, s := range r.segments {
		b.WriteString(g.slash())
		switch s {
		case "":
			b.WriteString(g.segment())
		case "...":
			for range g.IntN(3) {
				b.WriteString(g.segment() + g.slash())
			}
			b.WriteString(g.segment())
		default:
			b.WriteString(g.spelled(s))
		}
	}
	if len(r.segments) == 0 || g.IntN(16) == 0 {
		b.WriteString(g.slash())
	}
	switch g.IntN(16) {
	case 0:
		b.WriteString(pick(g, []string{"#", "#a", "#/../login", "?a#b", "#?a", "#a|b"}))
	case 1:
		b.WriteString(pick(g, []string{"?", "?a=/../", "?a=%2F|", "??", "?/login"}))
	case 2:
		b.WriteString(pick(g, odd))
	case 3:
		b.WriteString("/" + g.segment())
	}
	target = b.String()
	switch g.IntN(60) {
	case 0:
		target = "http://h" + target
	case 1:
		target = "http:" + target
	case 2:
		target = "//h" + target
	case 3:
		target = strings.TrimPrefix(target, "/")
	case 4:
		target = "/" + pick(g, odd) + "/.." + target
	}
	method = "GET"
	if g.IntN(40) == 0 {
		method = "CONNECT"
	}
	return method, target
}
