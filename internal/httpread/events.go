package httpread

// Events finds numbers in a stream of server-sent events. The data of each event is a JSON text. Data
// that is not JSON, like OpenAI's [DONE], is ignored.
type Events struct {
	Scanner *Scanner
	state   line
	name    [5]byte // the first bytes of the name of a field
	n       int     // number of bytes in name
	cr      bool    // the last byte was a carriage return
	begun   bool    // a byte of the name of a field was read; until then, bytes of a byte order mark are ignored
}

// line is the position within a line of the stream.
type line uint8

const (
	inName    line = iota // at the start of the line if n is 0
	afterName             // a space may follow the colon
	inData
	inOther // in an ignored field, or in a comment
)

// Scan reads the next bytes of the stream.
func (e *Events) Scan(p []byte) {
	for i := 0; i < len(p); i++ {
		c := p[i]
		if c == '\n' && e.cr {
			e.cr = false
			continue
		}
		if e.cr = c == '\r'; c == '\r' || c == '\n' {
			e.end()
			continue
		}
		switch e.state {
		case inName:
			e.inName(c)
		case afterName:
			e.state = inData
			if c != ' ' {
				e.Scanner.Scan(p[i : i+1])
			}
		case inData:
			rest := p[i:]
			for i+1 < len(p) && p[i+1] != '\n' && p[i+1] != '\r' {
				i++
			}
			e.Scanner.Scan(rest[:len(rest)-(len(p)-i-1)])
		}
	}
}

// inName reads a byte of the name of a field.
func (e *Events) inName(c byte) {
	switch {
	case !e.begun && (c == 0xef || c == 0xbb || c == 0xbf):
	case c == ':' && string(e.name[:e.n]) == "data":
		e.state = afterName
	case c == ':':
		e.state = inOther
	case e.n < len(e.name):
		e.begun = true
		e.name[e.n] = c
		e.n++
	}
}

// end ends a line. An empty line ends the event.
func (e *Events) end() {
	switch {
	case e.state == inName && e.n == 0:
		e.Scanner.Next()
	case e.state == inData || e.state == afterName:
		e.Scanner.Scan(newline)
	}
	e.state, e.n = inName, 0
}

var newline = []byte{'\n'}
