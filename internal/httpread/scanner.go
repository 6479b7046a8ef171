package httpread

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Path is the place of a number in a JSON text: the names of nested objects, such as usage and
// total_tokens. A path does not lead through lists.
type Path []string

// The bounds of a Path and of a scanned text.
const (
	maxNames  = 8
	maxName   = 64          // bytes
	maxRaw    = 6 * maxName // bytes of a name with escapes
	maxNumber = 32          // bytes
	maxDepth  = 512         // levels of a text; the rest of a text with more levels is ignored
)

// ParsePath reads names that are separated by dots.
func ParsePath(text string) (Path, error) {
	names := strings.Split(text, ".")
	if len(names) > maxNames {
		return nil, fmt.Errorf("%q has %d names: use at most %d", text, len(names), maxNames)
	}
	for _, name := range names {
		if name == "" || len(name) > maxName || strings.ContainsAny(name, "\"\\ []*?") {
			return nil, fmt.Errorf("%q is no path: use names of objects, like usage.total_tokens", text)
		}
	}
	return names, nil
}

func (p Path) String() string { return strings.Join(p, ".") }

// Term is a number of a Sum.
type Term struct {
	Path     Path
	Optional bool // the term is 0 if there is no number at the path
}

// orZero follows an optional path. A character such as a question mark would end a text within a
// list of YAML.
const orZero = " or 0"

// ParseTerm reads a path, or an optional path with "or 0".
func ParseTerm(text string) (Term, error) {
	path, optional := strings.CutSuffix(text, orZero)
	p, err := ParsePath(path)
	return Term{p, optional}, err
}

func (t Term) String() string {
	if t.Optional {
		return t.Path.String() + orZero
	}
	return t.Path.String()
}

// Sum is a list of numbers to add. The sum is found once each Term that is not Optional has a number.
// At least one Term is not Optional.
type Sum []Term

// Scanner finds the last number at each path of its Sums, in a JSON text or in several consecutive
// texts. The items of a text that is a list are scanned like separate texts. A value that is not a
// number, or is below zero, is ignored.
type Scanner struct {
	sums   []Sum
	paths  []Path  // paths of all sums
	found  []int64 // number at each path; -1 if there is none
	met    []int   // for each path, the number of its names that lead to the present position
	state  state
	isKey  bool // the present string is the name of a value
	depth  int
	listed int                   // 1 within a text that is a list, which is not a level of paths
	object [maxDepth / 64]uint64 // a bit for each open level: 1 for an object, 0 for a list
	text   []byte                // the first bytes of a name or a number
	long   bool                  // the name or number has more bytes than text
}

type state uint8

const (
	beforeValue state = iota
	beforeName
	beforeColon
	inText
	inEscape
	inNumber
	inWord // true, false, null
	afterValue
	broken // the rest of the text is ignored, until Next
)

// NewScanner returns a Scanner of alternative sums.
func NewScanner(sums ...Sum) *Scanner {
	s := &Scanner{sums: sums}
	for _, sum := range sums {
		for _, term := range sum {
			s.paths, s.found = append(s.paths, term.Path), append(s.found, -1)
		}
	}
	s.met = make([]int, len(s.paths))
	return s
}

// Next prepares s for the next text. The found numbers are kept.
func (s *Scanner) Next() {
	clear(s.met)
	s.state, s.depth, s.listed = beforeValue, 0, 0
}

// Sum returns the first sum that is found. Otherwise the result all is false, and sum is the largest sum of the
// numbers that were found.
func (s *Scanner) Sum() (sum int64, all bool) {
	found := s.found
	for _, terms := range s.sums {
		n, complete := terms.total(found[:len(terms)])
		if complete {
			return n, true
		}
		sum, found = max(sum, n), found[len(terms):]
	}
	return sum, false
}

// total returns the sum of the numbers that were found for the terms, where -1 stands for no number.
// complete is false if a Term that is not Optional has no number.
func (terms Sum) total(found []int64) (sum int64, complete bool) {
	complete = len(terms) > 0
	for i, n := range found {
		if n >= 0 {
			sum = add(sum, n)
		} else if !terms[i].Optional {
			complete = false
		}
	}
	return sum, complete
}

// add adds numbers that are not below zero. The result is at most math.MaxInt64.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Scan reads the next bytes of the text.
func (s *Scanner) Scan(p []byte) {
	for i := 0; i < len(p) && s.state != broken; i++ {
		switch s.state {
		case inText:
			i = s.inText(p, i)
		case inEscape:
			s.keep(p[i], maxRaw)
			s.state = inText
		case inNumber, inWord:
			s.inBare(p[i])
		default:
			s.between(p[i])
		}
	}
}

// inText reads bytes of a string from index i. It returns the index of the byte that ends the string or begins an
// escape, or len(p) if there is none.
func (s *Scanner) inText(p []byte, i int) int {
	for ; i < len(p); i++ {
		switch c := p[i]; c {
		case '"':
			if s.isKey {
				s.name()
				s.state = beforeColon
			} else {
				s.state = afterValue
			}
			return i
		case '\\':
			s.keep(c, maxRaw)
			s.state = inEscape
			return i
		default:
			s.keep(c, maxRaw)
		}
	}
	return i
}

// keep appends a byte of a name or a number to s.text.
func (s *Scanner) keep(c byte, most int) {
	if s.state != inNumber && !s.isKey {
		return
	}
	if len(s.text) >= most {
		s.long = true
		return
	}
	s.text = append(s.text, c)
}

// inBare reads a byte of a number or a word, which ends at the first byte of the next token.
func (s *Scanner) inBare(c byte) {
	switch {
	case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c == '.', c == '-', c == '+', c == 'E':
		s.keep(c, maxNumber)
		return
	case s.state == inNumber:
		s.number()
	}
	s.state = afterValue
	s.between(c)
}

// between reads a byte between names and values.
func (s *Scanner) between(c byte) {
	switch {
	case c == ' ' || c == '\n' || c == '\t' || c == '\r':
	case c == '"' && (s.state == beforeValue || s.state == beforeName):
		s.isKey, s.text, s.long = s.state == beforeName, s.text[:0], false
		s.state = inText
	case c == ':' && s.state == beforeColon:
		s.state = beforeValue
	case c == ',' && s.state == afterValue && s.depth > 0:
		s.state = beforeValue
		if s.inObject() {
			s.state = beforeName
		}
	case c == '}' || c == ']':
		s.close(c)
	case s.state != beforeValue && !(s.state == afterValue && s.depth == 0):
		s.state = broken
	default:
		s.begin(c)
	}
}

// begin begins a value. At depth 0 it is a new text.
func (s *Scanner) begin(c byte) {
	switch {
	case c == '{' || c == '[':
		if s.depth == maxDepth {
			s.state = broken
			return
		}
		bit := uint64(1) << (s.depth % 64)
		s.object[s.depth/64] &^= bit
		s.state = beforeValue
		if c == '{' {
			s.object[s.depth/64] |= bit
			s.state = beforeName
		}
		if s.depth == 0 {
			s.listed = 0
			if c == '[' {
				s.listed = 1
			}
		}
		s.depth++
	case c == '-' || c >= '0' && c <= '9':
		s.isKey, s.text, s.long = false, s.text[:0], false
		s.state = inNumber
		s.keep(c, maxNumber)
	case c == '"':
		s.isKey, s.state = false, inText
	case c == 't' || c == 'f' || c == 'n':
		s.isKey, s.state = false, inWord
	default:
		s.state = broken
	}
}

// close ends an object or a list, which may be empty.
func (s *Scanner) close(c byte) {
	if s.depth == 0 || s.inObject() != (c == '}') || s.state == beforeColon {
		s.state = broken
		return
	}
	s.depth--
	for i := range s.met {
		s.met[i] = min(s.met[i], max(0, s.depth-s.listed))
	}
	s.state = afterValue
}

func (s *Scanner) inObject() bool { return s.object[(s.depth-1)/64]>>((s.depth-1)%64)&1 == 1 }

// name records which paths continue with the name of a value.
func (s *Scanner) name() {
	name := s.text
	if slices.Contains(name, '\\') {
		var text string
		if json.Unmarshal(slices.Concat([]byte{'"'}, name, []byte{'"'}), &text) == nil {
			name = []byte(text)
		}
	}
	at := s.depth - s.listed - 1
	for i, path := range s.paths {
		if s.met[i] >= at && len(path) > at && !s.long && path[at] == string(name) {
			s.met[i] = at + 1
		} else {
			s.met[i] = min(s.met[i], at)
		}
	}
}

// number records a number if it is at the end of a path.
func (s *Scanner) number() {
	for i, path := range s.paths {
		if s.met[i] != len(path) || s.depth-s.listed != len(path) || s.long {
			continue
		}
		if n, ok := whole(string(s.text)); ok {
			s.found[i] = n
		}
	}
}

// whole returns a JSON number, rounded up to an integer. ok is false for a text that is not a number,
// and for a number below zero.
func whole(text string) (n int64, ok bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, n >= 0
	}
	x, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || x < 0:
		return 0, false
	case x >= math.MaxInt64:
		return math.MaxInt64, true
	}
	return int64(math.Ceil(x)), true
}
