package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

// A frame on a peer connection, after the handshake:
//
//	opening 1 | kind 1 | length of the body 4 | id 8 | body
//
// all big-endian. The id connects an answer with its ask, and a pong with its ping. Readers ignore
// frames of unknown kinds, and the bytes after the known fields of a ping or pong, so that a later
// version can add kinds and fields.
const headerSize = 14

// pingSize is the size of the body of a ping: the milliseconds since the sender had an answer over this
// connection (4 bytes), and flags (1 byte). pongSize is the size of the body of a pong: the scheduling
// delay of the sender in milliseconds. Between regions, both bodies are empty. Pings and pongs of a
// later version may be longer, up to maxPing.
const (
	pingSize = 5
	pongSize = 4
	maxPing  = 256
)

// The flags of a ping.
const (
	flagWatches = 1 << iota // the sender watches the receiver, and pings it several times a second
	flagChosen              // the sender has chosen to watch the receiver, which must watch the sender in return
	flagWakes               // the connection has rested, and the sender sends no request before the pong
)

// maxSaid bounds the durations that pings and pongs carry.
const maxSaid = time.Hour

// maxNews bounds the body of a frame of kindNews, which is a single record.
const maxNews = 1 << 10

type kind uint8

const (
	kindAsk    kind = 1 + iota
	kindAnswer      // the answer to an ask
	kindTell        // a request without an answer, of Peer.Send
	kindPing
	kindPong
	kindNews // the record of a member; the answer, if any, is the tombstone of the member that sent the record
	kindRows // rows of the connectivity table
)

// isKnown reports whether this release knows frames of this kind.
func (k kind) isKnown() bool { return k >= kindAsk && k <= kindRows }

// maxBody returns the maximum number of bytes in the body of a frame of this kind, and -1 if
// the kind is invalid.
func (k kind) maxBody() int {
	switch k {
	case kindAsk, kindAnswer, kindTell:
		return MaxMessage
	case kindPing, kindPong:
		return maxPing
	case kindRows:
		return detect.MaxRows
	case kindNews:
		return maxNews
	case 0:
		return -1
	}
	return MaxMessage
}

var (
	errGarbage   = errors.New("cluster: not a frame of the peer protocol")
	errOversized = errors.New("cluster: a message exceeds the size limit")
)

type frame struct {
	kind kind
	id   uint64
	body []byte // part of the parsed buffer
}

// isWakingPing reports whether f is a ping that wakes a connection that rested.
func (f frame) isWakingPing() bool {
	return f.kind == kindPing && len(f.body) >= pingSize && f.body[4]&flagWakes != 0
}

// appendFrame appends a whole frame to buf.
func appendFrame(buf []byte, k kind, id uint64, body []byte) []byte {
	buf = append(buf, opening, byte(k),
		byte(len(body)>>24), byte(len(body)>>16), byte(len(body)>>8), byte(len(body)),
		byte(id>>56), byte(id>>48), byte(id>>40), byte(id>>32), byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	return append(buf, body...)
}

// parseFrame returns the first frame of buf and its size in bytes, or size 0 if the frame is
// incomplete. If the bytes cannot become a frame, it returns an error without waiting for more.
func parseFrame(buf []byte) (f frame, size int, err error) {
	if len(buf) > 0 && buf[0] != opening {
		return frame{}, 0, fmt.Errorf("%w: a frame begins with %d, and not with %d", errVersion, buf[0], opening)
	}
	if len(buf) > 1 && kind(buf[1]).maxBody() < 0 {
		return frame{}, 0, fmt.Errorf("%w: a frame has the invalid kind %d", errGarbage, buf[1])
	}
	if len(buf) < headerSize {
		return frame{}, 0, nil
	}
	k := kind(buf[1])
	length := binary.BigEndian.Uint32(buf[2:])
	if length > uint32(k.maxBody()) {
		return frame{}, 0, fmt.Errorf("%w: it has %d bytes, and the maximum is %d", errOversized, length, k.maxBody())
	}
	size = headerSize + int(length)
	if len(buf) < size {
		return frame{}, 0, nil
	}
	return frame{kind: k, id: binary.BigEndian.Uint64(buf[6:]), body: buf[headerSize:size:size]}, size, nil
}

const (
	firstIntake  = 512      // bytes of the read buffer of a new or idle connection
	steadyIntake = 64 << 10 // maximum bytes of a read buffer, unless a single frame needs more
)

// intake is the read buffer of a connection. The buffer grows with the bytes that have arrived, never
// by the length that a frame announces. Otherwise a header of 14 bytes would take the memory of the
// largest frame.
type intake struct {
	buf   []byte
	start int // index of the first byte that is not parsed yet
	end   int // index after the last byte that was read
	read  int // number of bytes that were read since the last call of shrink
}

// fill waits for at least one more byte. It invalidates the frames that nextFrame has returned.
func (in *intake) fill(conn net.Conn) error {
	if len(in.buf) == 0 {
		in.buf = make([]byte, firstIntake)
	}
	if in.start > 0 {
		in.end = copy(in.buf, in.buf[in.start:in.end])
		in.start = 0
	}
	if in.end == len(in.buf) {
		in.grow()
	}
	n, err := conn.Read(in.buf[in.end:])
	in.end += n
	in.read += n
	if n > 0 {
		err = nil
	}
	return err
}

func (in *intake) grow() {
	bigger := make([]byte, 2*len(in.buf))
	copy(bigger, in.buf[:in.end])
	in.buf = bigger
}

// nextFrame removes the next whole frame and returns it. ok is false if there is no whole frame.
func (in *intake) nextFrame() (f frame, ok bool, err error) {
	f, size, err := parseFrame(in.buf[in.start:in.end])
	in.start += size
	return f, size > 0, err
}

// makeRoom must be called when all whole frames have been removed. If the last read filled the
// buffer, it makes room for a larger read. It replaces a large buffer that is empty by a smaller buffer.
func (in *intake) makeRoom() {
	full := in.end == len(in.buf)
	if in.start == in.end {
		in.start, in.end = 0, 0
	}
	switch {
	case full && len(in.buf) < steadyIntake:
		in.grow()
	case len(in.buf) > 2*steadyIntake && in.end == 0:
		in.buf = make([]byte, steadyIntake)
	}
}

// shrink frees a large buffer that is empty, if the connection is idle: it has read at most firstIntake
// bytes since the last call. The caller must have called makeRoom.
func (in *intake) shrink() (idle bool) {
	idle = in.end == 0 && in.read <= firstIntake
	if idle && len(in.buf) > firstIntake {
		in.buf = nil
	}
	in.read = 0
	return idle
}

// shrinkIdle shrinks in, the read buffer of conn, and the buffer of TLS below conn. It reports whether the
// connection is idle.
func shrinkIdle(conn net.Conn, in *intake) (idle bool) {
	idle = in.shrink()
	if t, ok := conn.(*tlsConn); ok {
		t.records.in.makeRoom()
		t.records.in.shrink()
	}
	return idle
}
