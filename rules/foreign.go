package rules

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/strictyaml"
)

// Rules compare texts literally, and paths by whole segments. A text that other products
// read as a pattern is refused, because a rule with the literal text would match
// no request and report no error. Each kind of text has a way to write the characters
// themselves: a path and the name of a header field have escapes, and other texts have
// {exact: TEXT}.

// textOf reads a text, or {exact: TEXT}, in which each character stands for itself.
func textOf(v strictyaml.Value) (text string, exact bool) {
	if v.IsMap() {
		inner := v.Map(exactFields...).Get("exact").Required()
		return inner.Text(), inner.IsText()
	}
	return v.Text(), false
}

// patternIn returns the part of a text that other products read as a pattern, and the kind of
// the pattern. It returns empty strings if the text has no such part.
func patternIn(text string) (part, meaning string) {
	if part, as := patternAtStart(text); part != "" {
		return part, as
	}
	if part := between(text, '[', ']', 2); part != "" {
		return part, "a set of characters"
	}
	if part := between(text, '{', '}', 1); part != "" {
		return part, "a placeholder"
	}
	for i := range len(text) {
		rest := text[i:]
		switch text[i] {
		case '*':
			return "*", "a wildcard"
		case '|':
			return "|", "a choice"
		case '?':
			// A URL may have a query, and ?1 is true in a structured field (RFC 9651).
			if !strings.Contains(text, "/") && text != "?0" && text != "?1" {
				return "?", "a wildcard"
			}
		case '.':
			if strings.HasPrefix(rest, ".+") {
				return ".+", "a regular expression"
			}
		case '$':
			if i > 0 && len(rest) == 1 {
				return "$", "a regular expression"
			}
		case '\\':
			if isClass(rest[1:]) {
				return rest[:2], "a regular expression"
			}
		}
	}
	return "", ""
}

// patternAtStart returns the prefix of a text that other products read as the beginning of a
// pattern, and the kind of the pattern. It returns empty strings if the text has no such prefix,
// or is a single character.
func patternAtStart(text string) (part, as string) {
	for _, is := range [...]struct{ prefix, as, before string }{
		{"!", "a negation", ""}, {"=~", "a regular expression", ""}, {"~", "a regular expression", ""}, {"^", "a regular expression", ""},
		{"=", "a comparison", ""}, {"(?", "a regular expression", ""},
		{"<", "a comparison", "=0123456789 "}, {">", "a comparison", "=0123456789 "}, // before other characters, < may begin a link or a mail address
	} {
		if strings.HasPrefix(text, is.prefix) && len(text) > 1 && (is.before == "" || strings.IndexByte(is.before, text[1]) >= 0) {
			return is.prefix, is.as
		}
	}
	return "", ""
}

// between returns the part of a text from the first opening bracket to the next closing bracket, if
// the closing bracket is at least the given number of bytes later. Otherwise it returns "".
func between(text string, open, close byte, apart int) string {
	if i := strings.IndexByte(text, open); i >= 0 {
		if n := strings.IndexByte(text[i:], close); n >= apart {
			return text[i : i+n+1]
		}
	}
	return ""
}

// isClass reports whether a backslash before the text is an escape of a regular expression. In
// DOMAIN\dora it is not, because a name continues after the letter.
func isClass(after string) bool {
	switch {
	case after == "":
		return false
	case strings.IndexByte("dDwWsSbB", after[0]) >= 0:
		return len(after) == 1 || !isAlphanumeric(after[1])
	}
	return strings.IndexByte(`.+*?()[]{}^$|\/-`, after[0]) >= 0
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// refusePattern reports an error for a text that other products read as a pattern. If secret is
// true, the error contains only the first character of the pattern, and not the text.
func refusePattern(v strictyaml.Value, name, text string, secret bool) {
	part, as := patternIn(text)
	if part == "" {
		return
	}
	told := fmt.Sprintf("%s is %q", name, text)
	exact := fmt.Sprintf("{exact: %q} for this one", text)
	if secret {
		part = part[:1]
		told, exact = "one "+name, "{exact: ...} around this one"
	}
	remedy := "list each text"
	if as == "a negation" {
		remedy = "list each text, leave requests out with match.not"
	}
	v.Errorf("%s: %s reads as %s, and texts are compared as they are: %s, or write %s", told, part, as, remedy, exact)
}

// foreignPath returns the remedy for a path that does not begin with a slash and that another
// product reads as a pattern. The result is "" if no such product is known.
func foreignPath(text string) string {
	bare := strings.TrimLeft(text, "!~^=*@ ")
	if !strings.HasPrefix(bare, "/") || strings.ContainsAny(bare, "^$*+?()[]\\| ") {
		bare = "/..."
	}
	switch {
	case text[0] == '!':
		return fmt.Sprintf("! does not negate here: write not: {path: %s} in match", bare)
	case text[0] == '=':
		return fmt.Sprintf("= has no meaning here: write %s, which matches only itself, as it has no final slash", bare)
	case strings.HasPrefix(text, "^~"):
		return fmt.Sprintf("^~ has no meaning here: write %s, with a final slash to match all below it", bare)
	case text[0] == '~' || text[0] == '^' || strings.HasPrefix(text, "(?") || strings.HasPrefix(text, ".*"):
		return "a path is not a regular expression: begin it with /, and use {name} for one segment and {name...} or a final slash for the rest"
	case text[0] == '*':
		return "* is not a wildcard: begin it with /, and use {name} for one segment and {name...} or a final slash for the rest"
	case strings.Contains(text, "(`") || strings.Contains(text, `("`) || strings.Contains(text, "('"):
		return "a path is not an expression: write the path alone, like /shop/ for /shop and all below it"
	}
	return ""
}

// foreignSegment returns the remedy for a segment without a wildcard that other products read
// as a pattern, or "". Each character that it refuses can be written as an escape.
func foreignSegment(path, part string, last bool) string {
	escape := func(c byte) string { return fmt.Sprintf("%%%02X for the character", c) }
	if part == "*" || part == "**" || part == "..." {
		return fmt.Sprintf("%s stands for itself here: use {name} for one segment and {name...} for the rest, or %s", part, escape(part[0]))
	}
	if part[0] == ':' {
		return fmt.Sprintf("%s stands for itself here: use {%s}, or %%3A for the character", part, strings.TrimRight(part[1:], "?*+"))
	}
	if name, rest, ok := bracketed(part); ok {
		return fmt.Sprintf("%s stands for itself here: use {%s%s}, or %s", part, name, rest, escape(part[0]))
	}
	for i := range len(part) {
		switch c := part[i]; c {
		case '*':
			if bare := strings.TrimSuffix(path, "*"); last && i == len(part)-1 && !strings.Contains(bare, "*") {
				return fmt.Sprintf("* stands for itself here, and a wildcard is a whole segment: write %s/ for %s and all below it, or %%2A for the character", bare, bare)
			}
			return "* stands for itself here, and a wildcard is a whole segment: use {name} for one and {name...} for the rest, or %2A for the character"
		case ':':
			if !isAlphanumeric(part[i-1]) && i+1 < len(part) && isName(part[i+1:i+2]) {
				return "a wildcard is a whole segment, like {name}, and : begins none: use {name}, or " + escape(c)
			}
		case '+':
			if i > 0 && part[i-1] == '.' {
				return fmt.Sprintf("a path is not a regular expression, and %c stands for itself: use {name} for one segment and {name...} or a final slash for the rest, or %s", c, escape(c))
			}
		case '^', '$', '|', '\\', '[', ']', '(', ')', '<', '>', '"', '`':
			return fmt.Sprintf("a path is not a regular expression, and %c stands for itself: use {name} for one segment and {name...} or a final slash for the rest, or %s", c, escape(c))
		case '%':
			if _, err := url.PathUnescape(part[i:min(i+3, len(part))]); err != nil {
				return "% begins an escape of two hexadecimal digits: write " + escape(c)
			}
		}
	}
	return ""
}

// bracketed reads a segment like <id>, <int:id>, [id] or [...rest], which is a wildcard in other
// products. The same wildcard in a rules file is {name} or, if the result rest is "...", {name...}.
func bracketed(part string) (name, rest string, ok bool) {
	if last := part[len(part)-1]; (part[0] != '<' || last != '>') && (part[0] != '[' || last != ']') {
		return "", "", false
	}
	name = strings.Trim(part, "<>[]")
	if after, isRest := strings.CutPrefix(name, "..."); isRest {
		name, rest = after, "..."
	} else if after, isRest := strings.CutPrefix(name, "path:"); isRest {
		name, rest = after, "..."
	} else if _, after, typed := strings.Cut(name, ":"); typed {
		name = after
	}
	return name, rest, isName(name)
}

// foreignWildcard returns the remedy for a wildcard in the syntax of other products, like
// {id:[0-9]+} or {*path}, or "".
func foreignWildcard(name string) string {
	if rest := strings.TrimLeft(name, "*"); rest != name && isName(rest) {
		return fmt.Sprintf("the rest of a path is {%s...}", rest)
	}
	if bare, _, typed := strings.Cut(strings.TrimRight(name, "?*+"), ":"); bare != name && isName(bare) {
		if typed {
			return fmt.Sprintf("a wildcard has no pattern and no type: use {%s}", bare)
		}
		return fmt.Sprintf("a wildcard is not optional: use {%s}, and a rule of its own for the path without it", bare)
	}
	return ""
}

// foreignHost returns the remedy for a host that other products read as a pattern, or "".
func foreignHost(text string) string {
	bare := strings.TrimLeft(text, "!~^.*")
	switch {
	case text[0] == '!':
		return fmt.Sprintf("! does not negate here: write not: {host: %s} in match", bare)
	case text == "_":
		return "_ stands for no host: leave host out to match all"
	case strings.Contains(text, "*"), text[0] == '.':
		return "only *. at the beginning is a wildcard, as in *.example.com; list each other host, or leave it out to match all"
	case strings.Contains(text, ","):
		return "write a list, like [a.example.com, b.example.com]"
	case strings.ContainsFunc(text, func(c rune) bool {
		return c < utf8.RuneSelf && !isAlphanumeric(byte(c)) && !strings.ContainsRune("-._:[]% /\t{}@", c)
	}):
		return "hosts are not regular expressions: list each host, or leave it out to match all"
	}
	return ""
}

// foreignMethod returns the remedy for a method that other products read as a pattern, or "".
func foreignMethod(text string) string {
	parts := strings.FieldsFunc(text, func(c rune) bool { return c == '|' || c == ',' || c == ' ' })
	switch {
	case text == "":
		return ""
	case text[0] == '!':
		return fmt.Sprintf("! does not negate here: write not: {method: %s} in match", strings.TrimLeft(text, "! "))
	case text == "*" || strings.EqualFold(text, "any") || strings.EqualFold(text, "all"):
		return "leave method out to match all"
	case len(parts) > 1:
		return fmt.Sprintf("write a list, like [%s]", strings.Join(parts, ", "))
	case strings.ContainsAny(text, "^$*.()[]~\\+?"):
		return "a method is not a regular expression: list each one, or leave method out to match all"
	}
	return ""
}

// foreignTier returns the remedy for a tier that other products read as a pattern, or "".
func foreignTier(text string) string {
	switch {
	case text == "*":
		return "leave tier out to match all"
	case strings.HasPrefix(text, "!"):
		return fmt.Sprintf("! does not negate here: write not: {tier: %s} in match", text[1:])
	}
	return ""
}

// foreignNetwork returns the network for a text with the wildcards of other products, like
// 10.0.*.*, in the syntax of a file, and "" for other texts.
func foreignNetwork(text string) string {
	bare, cut := text, false
	for {
		next, ok := strings.CutSuffix(bare, ".*")
		if !ok {
			break
		}
		bare, cut = next, true
	}
	parts := strings.Count(bare, ".") + 1
	if !cut || parts > 3 {
		return ""
	}
	network := fmt.Sprintf("%s%s/%d", bare, strings.Repeat(".0", 4-parts), 8*parts)
	if _, ok := networkOf(network); !ok {
		return ""
	}
	return network
}
