package cluster

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/weir-go/weir/internal/sealed"
)

// With Secrets and without TLS, all that follows the listener's proof travels in
// records:
//
//	length of what is sealed 4 | sealed: what is written, and a tag of 16
//
// sealed by AES-256-GCM under a key of that direction, derived from the secret and
// from all that both have said until then, two nonces among it. A record's nonce is
// its number, counted from 0 in each direction, and its length is authenticated
// with it. So a record opens only on the connection, in the direction and at the
// place that it was sealed for: what was changed, left out, sent twice, moved or
// sent back does not open, and the connection ends there. An attacker on the path
// can end connections, and sees how much is said and when, as under TLS.
//
// One write is one record as far as maxRecord allows: frames that go out together
// share a tag.
const (
	recordHeader = 4
	recordTag    = 16
	// maxRecord bounds what one record carries. It is known before memory is taken
	// for it; helloRecord is the bound until the handshake is over.
	maxRecord   = steadyIntake - recordHeader - recordTag
	helloRecord = 1 + 2 + maxHello + macSize
	// recordsPerKey bounds the records under one key: GCM is safe for as many with a
	// counter for a nonce (NIST SP 800-38D has the same bound for random ones). The
	// connection ends then, and the next one has other keys. At 10,000 records a
	// second that is after five days.
	recordsPerKey = 1 << 32
)

var (
	errRecord = errors.New("cluster: a record that does not decrypt: it was altered, or sealed with another key")
	errSpent  = errors.New("cluster: the connection has used up its keys: it is opened again")
)

// direction seals, or opens, the records of one direction. Each number is used once, as GCM
// is safe only while no nonce repeats under a key: two records of one nonce would show the
// difference of their texts, and let anybody forge others.
type direction struct {
	aead   cipher.AEAD
	number uint64 // of the next record
	nonce  [12]byte
}

// next is the nonce of the next record.
func (d *direction) next() ([]byte, error) {
	if d.number >= recordsPerKey {
		return nil, errSpent
	}
	binary.BigEndian.PutUint64(d.nonce[4:], d.number)
	d.number++
	return d.nonce[:], nil
}

// seal appends the record that carries b to dst.
func (d *direction) seal(dst, b []byte) ([]byte, error) {
	nonce, err := d.next()
	if err != nil {
		return nil, err
	}
	dst = slices.Grow(dst, recordHeader+len(b)+recordTag)
	at := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)+recordTag))
	return d.aead.Seal(dst, nonce, b, dst[at:at+recordHeader]), nil
}

// open appends what a whole record carries to dst.
func (d *direction) open(dst, record []byte) ([]byte, error) {
	nonce, err := d.next()
	if err != nil {
		return nil, err
	}
	b, err := d.aead.Open(dst, nonce, record[recordHeader:], record[:recordHeader])
	if err != nil {
		return nil, errRecord
	}
	return b, nil
}

// sealedConn is a connection whose bytes travel in records. One goroutine writes to it
// at a time, and one reads.
type sealedConn struct {
	net.Conn

	out   direction
	wrote []byte // the record that was written last

	in     direction
	most   int // bytes that a record may carry
	raw    intake
	rest   []byte // of a record that the reader had no room for, in raw's buffer
	failed error  // what all further reads end with
}

// seal has what follows on conn travel in records. said is all that both have said
// until now.
func seal(conn net.Conn, secret, said []byte, dialled bool) *sealedConn {
	out, in := dialledLabel, accepterLabel
	if !dialled {
		out, in = in, out
	}
	return &sealedConn{
		Conn: conn,
		out:  direction{aead: sealed.Cipher(sealed.Derive(secret, said, out))},
		in:   direction{aead: sealed.Cipher(sealed.Derive(secret, said, in))},
		most: helloRecord,
	}
}

// shaken is called when the handshake is over: each side has proved itself.
func (s *sealedConn) shaken() { s.most = maxRecord }

func (s *sealedConn) Write(b []byte) (n int, err error) {
	for n < len(b) {
		part := b[n:min(n+maxRecord, len(b))]
		if s.wrote, err = s.out.seal(s.wrote[:0], part); err != nil {
			return n, err
		}
		if _, err := s.Conn.Write(s.wrote); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// Read takes in all whole records that have come and that b has room for.
func (s *sealedConn) Read(b []byte) (n int, err error) {
	for len(b) > 0 && s.failed == nil {
		n = copy(b, s.rest)
		s.rest = s.rest[n:]
		for len(s.rest) == 0 && n < len(b) && s.failed == nil {
			record, err := s.raw.record(s.most)
			if record == nil {
				s.failed = err
				break
			}
			n += s.take(b[n:], record)
		}
		if n > 0 {
			return n, nil
		}
		if s.failed == nil {
			s.raw.drained()
			if err := s.raw.fill(s.Conn); errors.Is(err, os.ErrDeadlineExceeded) {
				return 0, err // with another deadline the next read goes on
			} else if err != nil {
				s.failed = err
			}
		}
	}
	return 0, s.failed
}

// take opens a record into b. What b has no room for is the rest.
func (s *sealedConn) take(b, record []byte) (n int) {
	into := b[:0:min(len(b), len(record)-recordHeader-recordTag)]
	if cap(into) < len(record)-recordHeader-recordTag {
		into = record[recordHeader:recordHeader] // in its own place
	}
	carried, err := s.in.open(into, record)
	if err != nil {
		s.failed = err
		return 0
	}
	if &carried[0] == &b[0] {
		return len(carried)
	}
	n = copy(b, carried)
	s.rest = carried[n:]
	return n
}

// record takes the next whole record, nil if there is none yet. One that may not
// be is an error as soon as its length is here.
func (in *intake) record(most int) ([]byte, error) {
	b := in.buf[in.start:in.end]
	if len(b) < recordHeader {
		return nil, nil
	}
	length := int(binary.BigEndian.Uint32(b))
	switch {
	case length > most+recordTag:
		return nil, fmt.Errorf("%w: a record of %d bytes, not more than %d", errOversized, length, most+recordTag)
	case length <= recordTag:
		return nil, fmt.Errorf("%w: a record of %d bytes carries nothing", errRecord, length)
	case len(b) < recordHeader+length:
		return nil, nil
	}
	in.start += recordHeader + length
	return b[: recordHeader+length : recordHeader+length], nil
}
