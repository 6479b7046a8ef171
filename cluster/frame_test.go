package cluster

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/testenv"
)

// trickle is a connection whose reads return data, at most step bytes at a time.
type trickle struct {
	net.Conn
	data []byte
	step int
}

func (c *trickle) Read(b []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), c.step)], c.data)
	c.data = c.data[n:]
	return n, nil
}

// readFrame reads the next frame from a connection.
func readFrame(t *testing.T, conn net.Conn) frame {
	t.Helper()
	var in intake
	require.NoError(t, in.fill(conn))
	f, ok, err := in.nextFrame()
	require.NoError(t, err)
	require.True(t, ok)
	return f
}

func TestFramesInPiecesArriveWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := []kind{kindAsk, kindAnswer, kindTell, 255}
		var sent []frame
		var wire []byte
		for range rapid.IntRange(0, 20).Draw(t, "frames") {
			f := frame{
				kind: rapid.SampledFrom(kinds).Draw(t, "kind"),
				id:   rapid.Uint64().Draw(t, "id"),
				body: bytes.Repeat([]byte{7}, rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, MaxMessage)).Draw(t, "size")),
			}
			sent = append(sent, f)
			wire = appendFrame(wire, f.kind, f.id, f.body)
		}
		conn := &trickle{data: wire, step: rapid.OneOf(rapid.IntRange(1, 50), rapid.IntRange(1, 1<<20)).Draw(t, "step")}
		var in intake
		var got int
		for in.fill(conn) == nil {
			for {
				f, ok, err := in.nextFrame()
				require.NoError(t, err)
				if !ok {
					break
				}
				want := sent[got]
				if f.kind != want.kind || f.id != want.id || !bytes.Equal(f.body, want.body) {
					t.Fatalf("frame %d: %d %d %d bytes, want %d %d %d bytes", got, f.kind, f.id, len(f.body), want.kind, want.id, len(want.body))
				}
				got++
			}
			in.makeRoom()
		}
		require.Equal(t, len(sent), got, "%d frames arrived, %d were sent", got, len(sent))
	})
}

func TestInvalidFrameIsRefusedAtFirstWrongByte(t *testing.T) {
	for name, c := range map[string]struct {
		wire []byte
		want error
	}{
		"another version":        {[]byte{opening + 1}, errVersion},
		"the version before":     {[]byte{opening - 1}, errVersion},
		"kind 0":                 {[]byte{opening, 0}, errGarbage},
		"one byte above the max": {[]byte{opening, byte(kindTell), 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}, errOversized},
		"a ping above the max":   {[]byte{opening, byte(kindPing), 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1}, errOversized},
		"an unknown, long frame": {[]byte{opening, 77, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}, errOversized},
		"long rows":              {[]byte{opening, byte(kindRows), 0, 0, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 1}, errOversized},
		"a long record":          {[]byte{opening, byte(kindNews), 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 1}, errOversized},
	} {
		t.Run(name, func(t *testing.T) {
			_, size, err := parseFrame(c.wire)
			require.ErrorIs(t, err, c.want)
			require.Zero(t, size)
		})
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(nil, kindAsk, 1, []byte("request")), 3)
	f.Add(appendFrame(appendFrame(nil, kindPing, 7, make([]byte, 8)), kindTell, 0, nil), 100)
	f.Add([]byte{opening, byte(kindAsk), 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 1}, 14)
	f.Add(append([]byte{opening, byte(kindAsk), 0, 0, 255, 255}, make([]byte, firstIntake)...), headerSize) // announces more bytes than follow
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 5)
	f.Fuzz(func(t *testing.T, wire []byte, step int) {
		conn := &trickle{data: wire, step: max(1, step)}
		var in intake
		var again []byte
		for {
			if err := in.fill(conn); err != nil {
				break
			}
			for {
				f, ok, err := in.nextFrame()
				if err != nil {
					if !errors.Is(err, errVersion) && !errors.Is(err, errGarbage) && !errors.Is(err, errOversized) {
						t.Fatal(err)
					}
					return
				}
				if !ok {
					break
				}
				again = appendFrame(again, f.kind, f.id, f.body)
			}
			in.makeRoom()
			require.LessOrEqual(t, len(in.buf), max(2*len(wire), firstIntake),
				"%d bytes of buffer for %d that arrived", len(in.buf), len(wire))
		}
		require.True(t, bytes.HasPrefix(wire, again), "the parsed frames differ from the received bytes")
	})
}

// script is a connection on which the other side has sent all its bytes already.
type script struct{ trickle }

func (*script) Write(b []byte) (int, error)      { return len(b), nil }
func (*script) Close() error                     { return nil }
func (*script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*script) SetDeadline(time.Time) error      { return nil }
func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }
