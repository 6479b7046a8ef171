package wire

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCursorReadsAppendedValues(t *testing.T) {
	b := AppendText(binary.AppendUvarint(nil, math.MaxUint64), "text")
	b = append(AppendText(b, ""), 1, 2, 3)
	c := NewCursor(b)
	require.EqualValues(t, uint64(math.MaxUint64), c.Number(math.MaxUint64))
	require.Equal(t, "text", c.Text(4))
	require.Empty(t, c.Text(0))
	require.Equal(t, 3, c.Remaining())
	require.Equal(t, []byte{1, 2, 3}, c.Bytes(3))
	require.NoError(t, c.Err())
	require.Zero(t, c.Remaining())
}

func TestFailedCursorHasNoBytesLeft(t *testing.T) {
	for about, c := range map[string]struct {
		message []byte
		read    func(c *Cursor)
	}{
		"no number is left":                   {nil, func(c *Cursor) { c.Number(math.MaxUint64) }},
		"a number of more than 64 bits":       {[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, func(c *Cursor) { c.Number(math.MaxUint64) }},
		"a number above its bound":            {[]byte{8, 1, 1}, func(c *Cursor) { c.Number(7) }},
		"fewer bytes than are read":           {[]byte{1, 2}, func(c *Cursor) { c.Bytes(3) }},
		"a text that ends before its length":  {[]byte{3, 'a', 'b'}, func(c *Cursor) { c.Text(9) }},
		"a text above its bound":              {[]byte{2, 'a', 'b', 1}, func(c *Cursor) { c.Text(1) }},
		"a value that the caller has refused": {[]byte{1, 1}, (*Cursor).Fail},
	} {
		t.Run(about, func(t *testing.T) {
			r := NewCursor(c.message)
			c.read(&r)
			require.ErrorIs(t, r.Err(), ErrMalformed)
			require.Zero(t, r.Remaining())
			require.Zero(t, r.Number(math.MaxUint64))
			require.Empty(t, r.Text(9))
			require.Empty(t, r.Bytes(0))
		})
	}
}
