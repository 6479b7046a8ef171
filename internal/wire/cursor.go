package wire

import "encoding/binary"

const (
	// MaxNameBytes is the maximum length of the name of a limit, which is hashed with every key.
	MaxNameBytes = 255
	// MaxKeyBytes is the maximum length of a key.
	MaxKeyBytes = 1 << 10
)

// AppendText appends a text for Cursor.Text: the number of its bytes, and the bytes.
func AppendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// Cursor reads a message of unsigned varints and texts. After the first invalid value, no bytes are
// left, each number is 0 and Err returns ErrMalformed. So a parser checks Err once, and a loop that
// reads until the end of the message terminates.
type Cursor struct {
	rest   []byte
	failed bool
}

// NewCursor returns a Cursor at the beginning of a message.
func NewCursor(message []byte) Cursor { return Cursor{rest: message} }

// Fail records that the message is malformed.
func (c *Cursor) Fail() { c.rest, c.failed = nil, true }

// Err returns ErrMalformed if a value was invalid.
func (c *Cursor) Err() error {
	if c.failed {
		return ErrMalformed
	}
	return nil
}

// Remaining returns the number of unread bytes.
func (c *Cursor) Remaining() int { return len(c.rest) }

// Number reads a number. A number above the given maximum is invalid.
func (c *Cursor) Number(most uint64) uint64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 || v > most {
		c.Fail()
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

// Bytes reads the next n bytes. They share the memory of the message.
func (c *Cursor) Bytes(n int) (b []byte) {
	if n > len(c.rest) {
		c.Fail()
		return nil
	}
	b, c.rest = c.rest[:n], c.rest[n:]
	return b
}

// Text reads a copy of a text whose maximum length in bytes is the argument most.
func (c *Cursor) Text(most int) string { return string(c.Bytes(int(c.Number(uint64(most))))) }
