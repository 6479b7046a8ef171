package snapshots

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A file is
//
//	header | tag 16 | chunk, chunk, ... , last chunk
//
//	header: "weirsnap" | version 1 | flags 1 | salt 16 | key id 8 | cluster 16 |
//	        milliseconds 8 | length 1, node | length 1, build | length 2, run of the cluster
//	chunk:  AES-256-GCM of 64 KiB, or less in the last chunk, and its tag
//
// The text of all chunks consists of blocks: kind 1 | length 4 | bytes. Numbers are
// little-endian.
//
// Chunks follow the STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizár, 2015). The
// salt gives each file its own key. The nonce of a chunk consists of its number and a
// flag for the last chunk, and the header is the associated data of each chunk. The tag
// of the header is chunk 0, which is empty. So no chunk can be changed, left out, added,
// repeated, moved, or taken from another file without being detected.

// Kind is the kind of a block. A reader skips blocks of unknown kinds.
type Kind byte

const (
	Counts Kind = 1 // counts of limits
	Values Kind = 2 // published values
)

// String returns the name of a known kind, and otherwise "kind" and the number.
func (k Kind) String() string {
	switch k {
	case Counts:
		return "counts"
	case Values:
		return "values"
	}
	return fmt.Sprintf("kind %d", byte(k))
}

const (
	// MaxBlock bounds a block, in bytes.
	MaxBlock   = 1 << 20
	chunkBytes = 64 << 10 // without the tag
	blockBytes = 5        // kind and length before a block
)

// nonce is the nonce of a chunk. Writer and Reader have it as a field, because a local array that
// is passed to an interface method would be allocated for each chunk.
type nonce [12]byte

// set sets the number of the chunk and the flag for the last chunk, and returns the nonce.
func (n *nonce) set(number uint64, last bool) []byte {
	binary.BigEndian.PutUint64(n[:], number)
	n[11] = 0
	if last {
		n[11] = 1
	}
	return n[:]
}

// Writer writes one file. It must be used by one goroutine at a time, and holds a chunk in
// memory. After an error of the io.Writer, all later calls return the same error.
type Writer struct {
	w      io.Writer
	cipher cipher.AEAD
	header []byte
	nonce  nonce
	number uint64 // number of the chunk that is being filled
	text   []byte // text of that chunk, with capacity for the tag
	err    error
}

// NewWriter writes the header. h.Version and h.Sealed have no effect: the file is sealed if keys
// has a secret.
func NewWriter(w io.Writer, keys Keys, h Header) (*Writer, error) {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	master, secret := keys.sealingKey()
	h.Sealed = secret
	header, err := h.append(salt, keyID(master, salt))
	if err != nil {
		return nil, err
	}
	f := &Writer{w: w, cipher: cipherOf(master, salt), header: header, text: make([]byte, 0, chunkBytes+tagBytes)}
	if _, err := w.Write(header); err != nil {
		return nil, err
	}
	if err := f.seal(false); err != nil {
		return nil, err
	}
	return f, nil
}

// Block writes a block of at most MaxBlock bytes. The kind must not be 0.
func (w *Writer) Block(kind Kind, b []byte) error {
	switch {
	case w.err != nil:
		return w.err
	case kind == 0:
		return errors.New("weir: a block of a snapshot has kind 0: use a Kind from 1 on")
	case len(b) > MaxBlock:
		return fmt.Errorf("weir: a block of a snapshot has %d bytes: write at most %d", len(b), MaxBlock)
	}
	before := [blockBytes]byte{byte(kind)}
	binary.LittleEndian.PutUint32(before[1:], uint32(len(b)))
	w.add(before[:])
	w.add(b)
	return w.err
}

// add appends to the text. A full chunk is sealed only when more text follows, because
// the last chunk is sealed differently.
func (w *Writer) add(b []byte) {
	for len(b) > 0 && w.err == nil {
		if len(w.text) == chunkBytes {
			w.err = w.seal(false)
		}
		n := min(len(b), chunkBytes-len(w.text))
		w.text, b = append(w.text, b[:n]...), b[n:]
	}
}

// seal writes the chunk.
func (w *Writer) seal(last bool) error {
	_, err := w.w.Write(w.cipher.Seal(w.text[:0], w.nonce.set(w.number, last), w.text, w.header))
	w.number, w.text = w.number+1, w.text[:0]
	return err
}

// Close writes the last chunk, without which the file is damaged, and does not close the
// io.Writer.
func (w *Writer) Close() error {
	if w.err == nil {
		if w.err = w.seal(true); w.err == nil {
			w.err = errClosed
			return nil
		}
	}
	return w.err
}

var errClosed = errors.New("weir: the snapshot is complete: write further blocks with a new Writer")

// Reader reads one file. It must be used by one goroutine at a time, and holds a chunk and at
// most a block in memory. After an error, all later calls return the same error.
type Reader struct {
	r      io.Reader
	cipher cipher.AEAD
	raw    *rawHeader
	nonce  nonce
	number uint64 // number of the next chunk
	at     int64  // offset of that chunk in the file
	sealed []byte // buffer for a chunk and the byte after it
	ahead  int    // 1 if the last byte of sealed is the first byte of the next chunk
	text   []byte // unread text of this chunk
	last   bool   // this chunk is the last
	block  []byte // a block with parts from several chunks
	err    error
}

// NewReader reads and authenticates the header. The error is ErrNotSnapshot,
// ErrLaterVersion, ErrOtherSecret, ErrNoSecret, ErrOpen, ErrDamaged, or that of r.
func NewReader(r io.Reader, keys Keys) (*Reader, error) {
	raw, err := readRaw(r)
	if err != nil {
		return nil, err
	}
	master, secret := keys.sealingKey()
	switch {
	case raw.Sealed:
		if master, err = keys.find(raw.salt, raw.id); err != nil {
			return nil, err
		}
	case secret:
		return nil, ErrOpen
	}
	f := &Reader{r: r, cipher: cipherOf(master, raw.salt), raw: raw, number: 1, at: int64(len(raw.bytes)), sealed: make([]byte, chunkBytes+tagBytes+1)}
	tag := f.sealed[:tagBytes]
	if _, err := io.ReadFull(r, tag); err != nil && !isCutShort(err) {
		return nil, err
	}
	if _, err := f.cipher.Open(nil, f.nonce.set(0, false), tag, raw.bytes); err != nil {
		return nil, damaged("the header of %d bytes", len(raw.bytes))
	}
	f.at += tagBytes
	return f, nil
}

// Header returns the header of the file.
func (r *Reader) Header() Header { return r.raw.Header }

// Next returns the next block, which is valid until the next call. The error is io.EOF
// only after the end that Close has written. The text of ErrDamaged contains the position
// in bytes.
func (r *Reader) Next() (Kind, []byte, error) {
	if r.err == nil {
		kind, b, err := r.readBlock()
		if err == nil {
			return kind, b, nil
		}
		r.err = err
	}
	return 0, nil, r.err
}

func (r *Reader) readBlock() (Kind, []byte, error) {
	for len(r.text) == 0 {
		if r.last {
			return 0, nil, io.EOF
		}
		if err := r.open(); err != nil {
			return 0, nil, err
		}
	}
	before, err := r.readText(blockBytes)
	if err != nil {
		return 0, nil, err
	}
	kind, size := Kind(before[0]), binary.LittleEndian.Uint32(before[1:])
	if kind == 0 || size > MaxBlock {
		return 0, nil, damaged("a block of kind %d and %d bytes ends before byte %d", byte(kind), size, r.at)
	}
	b, err := r.readText(int(size))
	return kind, b, err
}

// readText returns the next n bytes of the text.
func (r *Reader) readText(n int) ([]byte, error) {
	if n <= len(r.text) { // most blocks
		b := r.text[:n:n]
		r.text = r.text[n:]
		return b, nil
	}
	r.block = r.block[:0]
	for {
		part := min(n-len(r.block), len(r.text))
		r.block, r.text = append(r.block, r.text[:part]...), r.text[part:]
		if len(r.block) == n {
			return r.block, nil
		}
		if r.last {
			return nil, damaged("a block is cut at byte %d", r.at)
		}
		if err := r.open(); err != nil {
			return nil, err
		}
	}
}

// open reads the next chunk, which is the last chunk if no byte follows.
func (r *Reader) open() error {
	const after = chunkBytes + tagBytes // the index of the byte after a full chunk
	r.sealed[0] = r.sealed[after]
	n, err := io.ReadFull(r.r, r.sealed[r.ahead:])
	if err != nil && !isCutShort(err) {
		return err
	}
	n += r.ahead
	r.last, r.ahead = n <= after, 1
	chunk := r.sealed[:min(n, after)]
	if r.text, err = r.cipher.Open(chunk[:0], r.nonce.set(r.number, r.last), chunk, r.raw.bytes); err != nil {
		return damaged("the chunk of %d bytes from byte %d on", len(chunk), r.at)
	}
	r.number, r.at = r.number+1, r.at+int64(len(chunk))
	return nil
}
