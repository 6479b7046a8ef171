package httpread

// Events finds numbers in a stream of server-sent events, each of which has a JSON text as
// its data. What is no JSON, like OpenAI's [DONE], is passed over.
type Events struct {
	Scanner *Scanner
	state   line
	name    [5]byte // the first bytes of a field's name
	n       int     // of name
	cr      bool    // a carriage return was the last byte
	begun   bool    // past a byte order mark
}

// line is where a line of the stream is read.
type line uint8

const (
	inName    line = iota // nothing of it if n is 0
	afterName             // a space may follow the colon
	inData
	inOther // a field that does not matter, or a comment
)

// Scan reads what comes next of the stream.
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

// inName reads on in the name of a field.
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
