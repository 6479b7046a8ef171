package wire

import "encoding/binary"

const (
	// MaxNameBytes bounds a limit's name: it is hashed with every key.
	MaxNameBytes = 255
	// MaxKeyBytes bounds a key.
	MaxKeyBytes = 1 << 10
)

// AppendText appends a text that Cursor.Text reads: how many bytes it has, and these.
func AppendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// Cursor reads a message of unsigned varints and texts. Once anything was wrong, it has
// nothing more, each number is 0 and Err returns ErrMalformed: so a parser checks Err once,
// and a loop that reads until the message's end comes to one.
type Cursor struct {
	rest   []byte
	failed bool
}

// NewCursor returns a Cursor at the beginning of a message.
func NewCursor(message []byte) Cursor { return Cursor{rest: message} }

// Fail notes that the message makes no sense.
func (c *Cursor) Fail() { c.rest, c.failed = nil, true }

// Err returns ErrMalformed if anything was wrong until here.
func (c *Cursor) Err() error {
	if c.failed {
		return ErrMalformed
	}
	return nil
}

// Left is how many bytes are still to be read.
func (c *Cursor) Left() int { return len(c.rest) }

// Number reads a number. One above most is wrong.
func (c *Cursor) Number(most uint64) uint64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 || v > most {
		c.Fail()
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

// Bytes reads the next n bytes, which stay the message's.
func (c *Cursor) Bytes(n int) (b []byte) {
	if n > len(c.rest) {
		c.Fail()
		return nil
	}
	b, c.rest = c.rest[:n], c.rest[n:]
	return b
}

// Text reads a copy of a text that has most bytes or fewer.
func (c *Cursor) Text(most int) string { return string(c.Bytes(int(c.Number(uint64(most))))) }
