package snapshots

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-go/weir/internal/epoch"
	"github.com/weir-go/weir/internal/wire"
)

// Header is the header of a file, which is authenticated, but not encrypted.
type Header struct {
	Cluster [16]byte  // the cluster of the node
	Node    string    // the node that wrote the file, at most 255 bytes
	Saved   time.Time // when the file was begun, to the millisecond
	Build   string    // the version of Weir that wrote the file, at most 255 bytes
	// Run is the run of the cluster when the file was begun. Files are ordered by Run, because
	// Saved is a time of the clock of a single machine.
	Run epoch.State

	// A Writer sets the following fields.

	Version byte // version of the format
	Sealed  bool // encrypted under a secret
}

const (
	magic = "weirsnap"
	// version is the format that this build reads and writes.
	version = 1

	saltBytes = 16
	idBytes   = 8
	tagBytes  = 16
	maxText   = 255 // maximum length of Node and of Build
	// maxHeader bounds the size of a header.
	maxHeader = fixedBytes + 2*(1+maxText) + 2 + epoch.StateBytes
	// fixedBytes is the size of the header before its texts.
	fixedBytes = len(magic) + 2 + saltBytes + idBytes + 16 + 8
	flagSealed = 1
)

// The errors of a file that is refused at its beginning.
var (
	ErrNotSnapshot  = errors.New("weir: the file is not a snapshot, or its first bytes are damaged: remove it")
	ErrLaterVersion = errors.New("weir: the snapshot has a later format than this build reads: use a build that is at least as new as the build that wrote it")
	ErrOtherSecret  = errors.New("weir: the snapshot is sealed under a secret that is not among Secrets: add that secret after the others, until each node has saved again")
	ErrNoSecret     = errors.New("weir: the snapshot is sealed under a secret, and there are no Secrets: set the Secrets with which it was written")
	ErrOpen         = errors.New("weir: the snapshot is not sealed, and there are Secrets: remove it, because anyone may have written it")
)

// ErrDamaged is the error of a file that was changed or cut after it was written.
var ErrDamaged = errors.New("weir: the snapshot is damaged or cut short: use the previous snapshot")

// damaged returns ErrDamaged with the position.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w ("+format+")", append([]any{ErrDamaged}, args...)...)
}

// rawHeader is a header as stored in a file, with the fields that only this package uses.
type rawHeader struct {
	Header
	bytes    []byte // the whole header without the tag
	salt, id []byte // parts of bytes
}

// append encodes the header without its tag, in the order in which readRaw reads it.
func (h *Header) append(salt, id []byte) ([]byte, error) {
	if len(h.Node) > maxText || len(h.Build) > maxText {
		return nil, fmt.Errorf("weir: a snapshot's node name has %d bytes, and its build has %d bytes: use at most %d bytes for each", len(h.Node), len(h.Build), maxText)
	}
	b := append([]byte(magic), version, 0)
	if h.Sealed {
		b[len(magic)+1] = flagSealed
	}
	b = append(append(b, salt...), id...)
	b = append(b, h.Cluster[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Saved.UnixMilli()))
	b = append(append(b, byte(len(h.Node))), h.Node...)
	b = append(append(b, byte(len(h.Build))), h.Build...)
	run := h.Run.Append(nil)
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(run))), run...), nil
}

// ReadHeader reads the header of a file without verification, because verification needs a key:
// anyone may have changed the header. The error is ErrNotSnapshot, ErrLaterVersion, ErrDamaged,
// or that of r.
func ReadHeader(r io.Reader) (Header, error) {
	raw, err := readRaw(r)
	if err != nil {
		return Header{}, err
	}
	return raw.Header, nil
}

func readRaw(r io.Reader) (*rawHeader, error) {
	h := &rawHeader{bytes: make([]byte, fixedBytes, maxHeader)}
	n, err := io.ReadFull(r, h.bytes)
	if err != nil && !isCutShort(err) {
		return nil, err
	}
	b, is := bytes.CutPrefix(h.bytes[:n], []byte(magic))
	switch {
	case !is || len(b) == 0 || b[0] == 0:
		return nil, ErrNotSnapshot
	case b[0] > version:
		return nil, fmt.Errorf("%w (version %d; this build reads up to %d)", ErrLaterVersion, b[0], version)
	case isCutShort(err):
		return nil, damaged("the header is cut at byte %d", n)
	case b[1]&^flagSealed != 0:
		return nil, damaged("the header has the flags %#x", b[1])
	}
	h.Version, h.Sealed = b[0], b[1] == flagSealed
	b = b[2:]
	h.salt, b = b[:saltBytes], b[saltBytes:]
	h.id, b = b[:idBytes], b[idBytes:]
	copy(h.Cluster[:], b)
	h.Saved = time.UnixMilli(int64(binary.LittleEndian.Uint64(b[16:]))).UTC()
	for _, text := range []*string{&h.Node, &h.Build} {
		size, err := h.read(r, 1)
		if err != nil {
			return nil, err
		}
		b, err := h.read(r, int(size[0]))
		if err != nil {
			return nil, err
		}
		*text = string(b)
	}
	return h, h.readRun(r)
}

// readRun reads Run, which is the end of a header.
func (h *rawHeader) readRun(r io.Reader) error {
	size, err := h.read(r, 2)
	if err != nil {
		return err
	}
	n := int(binary.LittleEndian.Uint16(size))
	if n > epoch.StateBytes {
		return damaged("the run of the cluster has %d bytes", n)
	}
	b, err := h.read(r, n)
	if err != nil {
		return err
	}
	c := wire.NewCursor(b)
	h.Run = epoch.Read(&c)
	if c.Err() != nil || c.Remaining() > 0 {
		return damaged("the run of the cluster, at byte %d", len(h.bytes)-n)
	}
	return nil
}

// read appends the next n bytes of r to the header, and returns them.
func (h *rawHeader) read(r io.Reader, n int) ([]byte, error) {
	start := len(h.bytes)
	h.bytes = h.bytes[:start+n]
	_, err := io.ReadFull(r, h.bytes[start:])
	if isCutShort(err) {
		err = damaged("the header is cut after byte %d", start)
	}
	return h.bytes[start:], err
}

// isCutShort reports whether the file ended unexpectedly.
func isCutShort(err error) bool { return err == io.EOF || err == io.ErrUnexpectedEOF }
