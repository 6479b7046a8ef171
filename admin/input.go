package admin

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
)

const (
	maxBodyBytes = 64 << 10
	maxTextBytes = 4 << 20 // maximum of a body with a text of rules, which has at most 1 MiB before it is encoded as JSON
	maxKeyBytes  = 1024    // the maximum of a node
	maxUnits     = 1_000_000_000_000
)

// field is a parameter of a query, or a field of a JSON object, that a request may have.
type field struct {
	name string
	// into receives the value: a *string, *int64, *float64, *bool, *time.Duration, *[16]byte, *netip.Addr, another
	// encoding.TextUnmarshaler, or a *time.Time for a time in the future. It is a *[]string for a parameter that
	// may occur several times, an http.Header for a field that contains header fields, and a list for a field
	// that contains objects. An empty text leaves a *string unchanged.
	into     any
	required bool
	// least and most bound a number and a duration in nanoseconds, and most bounds the bytes of a text. The
	// value has no bounds if most is 0.
	least, most int64
	known       func() []string // returns all valid texts besides ""; nil if every text is valid
}

// list is the value of field.into that reads a JSON list of objects. The list has at least 1 object.
type list struct {
	most int // the maximum number of objects
	// read is called for each object. It passes the fields to read to the function object.
	read func(object func(fields ...field))
}

// faults are the errors in a request, so that a response can report all of them.
type faults []string

// add adds a fault.
func (w *faults) add(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

// err returns a refusal with all faults, and nil if there are none.
func (w faults) err() error {
	if len(w) == 0 {
		return nil
	}
	return refuse(http.StatusBadRequest, "%s", strings.Join(w, "; "))
}

// checkNames adds a fault for each of the given names that is not among the fields, and sorts given.
func (w *faults) checkNames(kind string, given []string, fields []field) {
	var known []string
	for _, f := range fields {
		known = append(known, f.name)
	}
	slices.Sort(given)
	for _, name := range given {
		if !slices.Contains(known, name) {
			w.add("unknown %s %q: %s", kind, name, enum.Suggest(name, known))
		}
	}
}

// parameters reads the query. Unknown parameters and missing required parameters are errors, and repeated
// parameters unless they are read into a *[]string.
func (r *request) parameters(fields ...field) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(http.StatusBadRequest, "the query is not valid application/x-www-form-urlencoded: escape %%, &, + and ;")
	}
	var wrong faults
	wrong.checkNames("parameter", slices.Collect(maps.Keys(query)), fields)
	for _, f := range fields {
		values := query[f.name]
		many, isMany := f.into.(*[]string)
		switch {
		case isMany:
			*many = values
		case len(values) > 1:
			wrong.add("parameter %q is set %d times: send it once", f.name, len(values))
		case len(values) == 1:
			f.read(&wrong, values[0])
		case f.required:
			wrong.add("parameter %q is missing", f.name)
		}
	}
	return wrong.err()
}

// body reads the body, which must be a JSON object of at most r.maxBody bytes. Unknown, repeated and missing
// required fields are errors.
func (r *request) body(fields ...field) error {
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if charset := parameters["charset"]; err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return refuse(http.StatusUnsupportedMediaType, "send application/json")
	}
	if r.URL.RawQuery != "" {
		return refuse(http.StatusBadRequest, "send the fields in the body: this path takes no query")
	}
	// The error is ignored, because a recorder in a test supports no deadlines.
	_ = http.NewResponseController(r.w).SetReadDeadline(time.Now().Add(r.stepTimeout))
	text, err := io.ReadAll(http.MaxBytesReader(r.w, r.Body, r.maxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", r.maxBody)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, "the body did not arrive within %v", r.stepTimeout)
	case err != nil:
		return refuse(http.StatusBadRequest, "the body ended early")
	}
	var wrong faults
	if err := wrong.readObject("the body", text, fields); err != nil {
		return err
	}
	return wrong.err()
}

// readObject reads a JSON object with these fields, and adds their faults. It returns an error if text
// is not an object of distinct fields. name is for messages.
func (w *faults) readObject(name string, text []byte, fields []field) error {
	given, err := splitObject(name, text)
	if err != nil {
		return err
	}
	w.checkNames("field", slices.Collect(maps.Keys(given)), fields)
	for _, f := range fields {
		switch value, ok := given[f.name]; {
		case ok:
			_, isList := f.into.(list) // a list checks each of its objects itself
			if half := findHalfSurrogate(value); half != "" && !isList {
				w.add("%s has %s, half of a surrogate pair, which is not a character: send both halves, or UTF-8", f.name, half)
				continue
			}
			f.readJSON(w, value)
		case f.required:
			w.add("field %q is missing", f.name)
		}
	}
	return nil
}

// splitObject returns the fields of a JSON object. A field that occurs twice is an error.
func splitObject(name string, text []byte) (map[string]json.RawMessage, error) {
	fail := func(format string, args ...any) (map[string]json.RawMessage, error) {
		return nil, refuse(http.StatusBadRequest, format, args...)
	}
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return fail("%s is empty: send a JSON object", name)
	case !utf8.Valid(text):
		return fail("%s is not UTF-8", name)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(text, new(json.RawMessage))); ok {
		return fail("%s is not JSON: at byte %d: %v", name, syntax.Offset, syntax)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if open, _ := decoder.Token(); open != json.Delim('{') {
		return fail("%s is not a JSON object", name)
	}
	fields := make(map[string]json.RawMessage)
	for decoder.More() {
		token, _ := decoder.Token()
		key, _ := token.(string)
		if _, twice := fields[key]; twice {
			return fail("field %q is set twice: remove one", key)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return fail("%s is not JSON: %v", name, err)
		}
		fields[key] = value
	}
	return fields, nil
}

// readJSON reads the value of a field: a JSON number for an *int64 or *float64, and a string for other scalars
// except *bool.
func (f *field) readJSON(wrong *faults, value json.RawMessage) {
	told, isText, want := string(value), value[0] == '"', ""
	switch into := f.into.(type) {
	case list:
		into.readJSON(wrong, f.name, value)
	case http.Header:
		if !readHeader(into, value) {
			want = "an object of texts, in quotes"
		}
	case *bool:
		if json.Unmarshal(value, into) != nil || value[0] == 'n' {
			want = "true or false, without quotes"
		}
	case *int64, *float64:
		if isText {
			want = "a number, without quotes"
		} else {
			f.read(wrong, told)
		}
	default:
		var text string
		if !isText || json.Unmarshal(value, &text) != nil {
			want = "a text, in quotes"
		} else {
			f.read(wrong, text)
		}
	}
	if want != "" {
		wrong.add("%s is %s: use %s", f.name, shorten(told), want)
	}
}

// findHalfSurrogate returns the first escape in a JSON text that is half of a surrogate pair, and "" if
// there is none. encoding/json decodes each of them as U+FFFD, so that different keys would become equal.
func findHalfSurrogate(text []byte) string {
	if bytes.IndexByte(text, '\\') < 0 {
		return ""
	}
	for _, escape := range escapes.FindAllSubmatch(text, -1) {
		if half := escape[1]; half != nil {
			return string(half)
		}
	}
	return ""
}

// escapes matches an escape in a JSON text: a surrogate pair, half of a pair, or any other escape. Its group
// matches only the half.
var escapes = regexp.MustCompile(`\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)|\\.`)

// readHeader adds the fields of a JSON object of strings to header, in the order of the text. Names that differ
// only in case are lines of the same field, as in net/http. readHeader reports whether the text is an object of
// strings.
func readHeader(header http.Header, text []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if open, _ := decoder.Token(); open != json.Delim('{') {
		return false
	}
	for decoder.More() {
		name, _ := decoder.Token()
		value, err := decoder.Token()
		line, isText := value.(string)
		if err != nil || !isText {
			return false
		}
		header.Add(name.(string), line)
	}
	return true
}

// readJSON reads each object of a list, and adds its faults with the index of the object.
func (l list) readJSON(wrong *faults, name string, value json.RawMessage) {
	var all []json.RawMessage
	if value[0] != '[' || json.Unmarshal(value, &all) != nil || len(all) == 0 || len(all) > l.most {
		wrong.add("%s is %s: use a list of 1 to %d objects", name, shorten(string(value)), l.most)
		return
	}
	for i, text := range all {
		at := fmt.Sprintf("%s[%d]", name, i)
		l.read(func(fields ...field) {
			var of faults
			if err := of.readObject(at, text, fields); err != nil {
				wrong.add("%v", err)
			}
			for _, problem := range of {
				wrong.add("%s: %s", at, problem)
			}
		})
	}
}

// read converts text to the type of f.into, and adds a fault if that fails or the value is not valid.
func (f *field) read(wrong *faults, text string) {
	told := strconv.Quote(shorten(text))
	var err error
	switch into := f.into.(type) {
	case *string:
		*into = cmp.Or(text, *into)
		f.checkText(wrong, text)
	case *int64:
		if *into, err = strconv.ParseInt(text, 10, 64); err != nil {
			wrong.add("%s is %s: use a whole number", f.name, shorten(text))
		} else if f.most > 0 && (*into < f.least || *into > f.most) {
			wrong.add("%s is %d: use %d to %d", f.name, *into, f.least, f.most)
		}
	case *float64:
		if *into, err = strconv.ParseFloat(text, 64); err != nil {
			wrong.add("%s is %s: use a number", f.name, shorten(text))
		} else if f.most > 0 && !(*into >= float64(f.least) && *into <= float64(f.most)) {
			wrong.add("%s is %v: use %d to %d", f.name, *into, f.least, f.most)
		}
	case *time.Duration:
		*into = f.readDuration(wrong, text)
	case *time.Time:
		if *into, err = time.Parse(time.RFC3339, text); err != nil {
			wrong.add("%s is %s: use a time like 2006-01-02T15:04:05Z", f.name, told)
		} else if !into.After(time.Now()) {
			wrong.add("%s is %s, which is past: use a later time", f.name, into.UTC().Format(time.RFC3339))
		}
	case *[16]byte:
		id, err := hex.DecodeString(text)
		if copy(into[:], id); err != nil || len(id) != len(into) {
			wrong.add("%s is %s: use the 32 hexadecimal digits from the list", f.name, told)
		}
	case *netip.Addr:
		if *into, err = netip.ParseAddr(text); err != nil {
			wrong.add("%s is %s: use an IP address", f.name, told)
		}
	case encoding.TextUnmarshaler:
		if err := into.UnmarshalText([]byte(text)); err != nil {
			wrong.add("%v", err)
		}
	}
}

// readDuration parses the text of a field that is a duration.
func (f *field) readDuration(wrong *faults, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		like := "1m30s or 250ms"
		if meant, ok := strictyaml.TimeMeant(text); err != nil && ok {
			like = enum.Duration(meant)
		}
		wrong.add("%s is %q: use a duration above 0, like %s", f.name, shorten(text), like)
	} else if f.most > 0 && (d < time.Duration(f.least) || d > time.Duration(f.most)) {
		wrong.add("%s is %s: use %s to %s", f.name, enum.Duration(d), enum.Duration(time.Duration(f.least)), enum.Duration(time.Duration(f.most)))
	}
	return d
}

// checkText adds a fault for a text that is not valid.
func (f *field) checkText(wrong *faults, text string) {
	switch {
	case text == "" && f.required && f.name != "key":
		wrong.add("%s is empty", f.name)
	case f.most > 0 && int64(len(text)) > f.most && f.name == "key":
		wrong.add("the key has %d bytes: use at most %d", len(text), f.most)
	case f.most > 0 && int64(len(text)) > f.most:
		wrong.add("%s has %d bytes: use at most %d", f.name, len(text), f.most)
	case f.known != nil && text != "" && !slices.Contains(f.known(), text):
		wrong.add("there is no %s %q: %s", f.name, text, enum.Suggest(text, f.known()))
	}
}

// shorten cuts a text that is longer than 40 bytes, for messages.
func shorten(text string) string {
	const most = 40
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
