package gossip

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

// memberlist allocates the memory that a message claims before the message has arrived: 112 MB for the
// nodes of a push/pull, and 20 MB for the state of a push/pull. For each message of a packet, it
// decompresses up to 40 MB.
const (
	// maxPacket is the maximum size of a packet. Members send 1,400 bytes and the overhead of
	// encryption.
	maxPacket = 2 << 10
	// maxMessages is the maximum number of messages in packets that are accepted in each
	// second, and at once. In a cluster of a thousand members that start together, a member
	// receives some hundreds.
	maxMessages = 8192
	// maxProbes is the maximum number of these messages that make this member send a
	// message: pings, and pings on behalf of other members. On average, another member pings
	// this member once in probeEvery.
	maxProbes = 512
	// MaxStream is the maximum number of bytes that are read from a stream: the list of
	// members of memberlist, and the roster.
	MaxStream = 2 * maxRecordBytes
	// maxPushed is the maximum number of nodes that a push/pull may claim: members, and nodes
	// that have gone within the half minute for which memberlist remembers them.
	maxPushed = 2 * detect.MaxMembers
	// maxField is the maximum size of a string in a message, and maxFields the maximum size
	// of a map or list. The longest string is metadata, of 512 bytes; an address has 16.
	maxField  = 1 << 10
	maxFields = 32
	// maxNesting is the maximum depth of maps and lists: a list of versions in a map.
	maxNesting = 3
)

// The types of the messages of memberlist.
const (
	typePing         = 0
	typeIndirectPing = 1
	typeAck          = 2
	typeSuspect      = 3
	typeAlive        = 4
	typeDead         = 5
	typePushPull     = 6
	typeCompound     = 7
	typeUser         = 8
	typeEncrypted    = 10
	typeNack         = 11
	typeChecksum     = 12
	typeError        = 13
	typeLabel        = 244
)

// These errors report why a packet or a stream was dropped. They are allocated once, because any
// sender can cause them.
var (
	ErrOversized  = errors.New("cluster: the gossip exceeds the size limit")
	ErrLabel      = errors.New("cluster: the gossip is of another cluster, or of a member with another Seed or Region: correct Join, Seed or Region")
	ErrSealed     = errors.New("cluster: none of Secrets decrypts the gossip: give all nodes at least one common secret in Secrets")
	ErrMalformed  = errors.New("cluster: the gossip is malformed, so no member has sent it: open the peer port to members only")
	errLongPacket = fmt.Errorf("cluster: the packet has more than %d bytes", maxPacket)
	errFlood      = fmt.Errorf("cluster: more than %d messages, or %d pings, have arrived in packets within a second", maxMessages, maxProbes)
)

// inspector checks that packets and streams belong to this cluster and claim no more than they
// may. It does not keep packets or streams. memberlist allocates the memory that a message claims, so
// memberlist may receive only bytes that the inspector has checked.
type inspector struct {
	label string
	keys  []cipher.AEAD // if empty, gossip is not encrypted
}

func newInspector(label string, keys [][]byte) (*inspector, error) {
	i := &inspector{label: label}
	for _, key := range keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		i.keys = append(i.keys, aead)
	}
	return i, nil
}

// sealVersion is the first byte of data that memberlist has encrypted without padding.
const sealVersion = 1

// open decrypts data that was encrypted with any of the keys, and with the given additional data.
func (i *inspector) open(sealed, additional []byte) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != sealVersion {
		return nil, ErrSealed
	}
	for _, key := range i.keys {
		if len(sealed) < 1+key.NonceSize()+key.Overhead() {
			break
		}
		if plain, err := key.Open(nil, sealed[1:1+key.NonceSize()], sealed[1+key.NonceSize():], additional); err == nil {
			return plain, nil
		}
	}
	return nil, ErrSealed
}

// packetLoad is the work that a packet causes.
type packetLoad struct {
	messages int
	probes   int // messages to which this member sends a message
}

// packet checks a packet.
func (i *inspector) packet(b []byte) (l packetLoad, err error) {
	if len(b) < 2 || b[0] != typeLabel || int(b[1]) != len(i.label) || !bytes.HasPrefix(b[2:], []byte(i.label)) {
		return l, ErrLabel
	}
	b = b[2+len(i.label):]
	if len(i.keys) > 0 {
		if b, err = i.open(b, []byte(i.label)); err != nil {
			return l, err
		}
	}
	if len(b) >= 5 && b[0] == typeChecksum {
		b = b[5:]
	}
	if len(b) == 0 || b[0] != typeCompound {
		return l, l.add(b)
	}
	if b = b[1:]; len(b) == 0 || len(b) < 1+2*int(b[0]) {
		return l, ErrMalformed
	}
	n := int(b[0])
	lengths, parts := b[1:1+2*n], b[1+2*n:]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		size := int(binary.BigEndian.Uint16(lengths))
		if size > len(parts) {
			return l, ErrMalformed
		}
		if err := l.add(parts[:size]); err != nil {
			return l, err
		}
		parts = parts[size:]
	}
	return l, nil
}

// add checks a message of a packet, and adds it to l.
func (l *packetLoad) add(b []byte) error {
	if len(b) == 0 {
		return ErrMalformed
	}
	l.messages++
	switch b[0] {
	case typeUser: // records, which DecodeRecords checks
		return nil
	case typePing, typeIndirectPing:
		l.probes++
	case typeAck, typeSuspect, typeAlive, typeDead, typeNack:
	default:
		return ErrMalformed
	}
	rest := remaining(b[1:])
	return walk(&rest, maxField, maxFields, maxNesting)
}

// stream reads and checks the message of a stream, and returns it unchanged. The memory that it
// allocates is bounded by a small multiple of the bytes that have arrived. labelled reports whether the
// stream begins with a label, as a stream that another member has opened does.
func (i *inspector) stream(r io.Reader, labelled bool) ([]byte, error) {
	var received bytes.Buffer
	in := arriving{Reader: bufio.NewReader(io.TeeReader(r, &received))}
	if labelled {
		header := make([]byte, 2+len(i.label))
		if _, err := io.ReadFull(&in, header); err != nil {
			return nil, err
		}
		if header[0] != typeLabel || int(header[1]) != len(i.label) || string(header[2:]) != i.label {
			return nil, ErrLabel
		}
		in.read += len(header)
	}
	kind, err := in.ReadByte()
	if err != nil {
		return nil, err
	}
	switch {
	case len(i.keys) == 0:
		err = message(kind, &in)
	case kind != typeEncrypted:
		err = ErrSealed
	default:
		err = i.sealed(&in, &received)
	}
	if err != nil {
		return nil, err
	}
	return received.Bytes()[:in.read:in.read], nil
}

// sealed checks an encrypted message, whose first byte has been read.
func (i *inspector) sealed(in *arriving, received *bytes.Buffer) error {
	begin := in.read - 1
	size, err := number(in, 4)
	if err != nil {
		return err
	}
	if size > MaxStream {
		return ErrOversized
	}
	if err := in.skip(int(size)); err != nil {
		return err
	}
	b := received.Bytes()[begin:in.read]
	plain, err := i.open(b[5:], append(b[:5:5], i.label...))
	if err != nil {
		return err
	}
	if len(plain) == 0 {
		return ErrMalformed
	}
	rest := remaining(plain[1:])
	return message(plain[0], &rest)
}

// message checks a message of a stream, whose type has been read.
func message(kind byte, in source) error {
	switch kind {
	case typePing, typeAck, typeError:
		return walk(in, maxField, maxFields, maxNesting)
	case typePushPull:
	default:
		return ErrMalformed
	}
	nodes, state, err := pushed(in)
	if err != nil {
		return err
	}
	if nodes > maxPushed || state > maxRecordBytes {
		return fmt.Errorf("%w: a push/pull claims %d nodes and %d bytes, and the maximum is %d nodes and %d bytes", ErrOversized, nodes, state, maxPushed, maxRecordBytes)
	}
	for range nodes {
		if err := walk(in, maxField, maxFields, maxNesting); err != nil {
			return err
		}
	}
	return in.skip(int(state))
}

// pushed reads the header of a push/pull as members write it: a map of three fields, each of them
// once.
func pushed(in source) (nodes, state uint64, err error) {
	if b, err := in.ReadByte(); err != nil || b != 0x83 {
		return 0, 0, malformed(err)
	}
	var seen [3]bool
	for range seen {
		b, err := in.ReadByte()
		if err != nil || b < 0xa0 || b > 0xbf {
			return 0, 0, malformed(err)
		}
		name := make([]byte, b&0x1f)
		for i := range name {
			if name[i], err = in.ReadByte(); err != nil {
				return 0, 0, err
			}
		}
		field := 0
		switch string(name) {
		case "Nodes":
			nodes, err = count(in)
		case "UserStateLen":
			field = 1
			state, err = count(in)
		case "Join":
			field = 2
			if b, err = in.ReadByte(); err == nil && b != 0xc2 && b != 0xc3 {
				err = ErrMalformed
			}
		default:
			err = ErrMalformed
		}
		if err != nil || seen[field] {
			return 0, 0, malformed(err)
		}
		seen[field] = true
	}
	return nodes, state, nil
}

// malformed returns err, or ErrMalformed if err is nil.
func malformed(err error) error {
	if err == nil {
		err = ErrMalformed
	}
	return err
}

// count reads a number that is not negative.
func count(in source) (uint64, error) {
	b, err := in.ReadByte()
	if err != nil {
		return 0, err
	}
	switch {
	case b < 0x80:
		return uint64(b), nil
	case b >= 0xcc && b <= 0xcf: // a number of 1, 2, 4 or 8 bytes
		return number(in, 1<<(b-0xcc))
	case b >= 0xd0 && b <= 0xd3: // a number of 1, 2, 4 or 8 bytes with a sign
		size := 1 << (b - 0xd0)
		n, err := number(in, size)
		if err == nil && n>>(8*size-1) != 0 {
			err = ErrMalformed
		}
		return n, err
	}
	return 0, ErrMalformed
}

// number reads a number of size bytes.
func number(in source, size int) (n uint64, err error) {
	for range size {
		b, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		n = n<<8 | uint64(b)
	}
	return n, nil
}

// source is a sequence of bytes that are in memory, or that arrive.
type source interface {
	io.ByteReader
	skip(n int) error
}

// remaining is a source of bytes in memory. A read after the last byte returns ErrMalformed.
type remaining []byte

func (r *remaining) ReadByte() (byte, error) {
	if len(*r) == 0 {
		return 0, ErrMalformed
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return b, nil
}

func (r *remaining) skip(n int) error {
	if n > len(*r) {
		return ErrMalformed
	}
	*r = (*r)[n:]
	return nil
}

// arriving is a source of bytes from a stream.
type arriving struct {
	*bufio.Reader
	read int
}

func (a *arriving) ReadByte() (byte, error) {
	b, err := a.Reader.ReadByte()
	if err == nil {
		a.read++
	}
	return b, err
}

func (a *arriving) skip(n int) error {
	n, err := a.Discard(n)
	a.read += n
	return err
}

// walk skips a value of MessagePack. It bounds the strings, the maps and lists, and their depth.
func walk(in source, field, fields, nesting int) error {
	skip, values, err := head(in, field, fields)
	if err != nil {
		return err
	}
	if skip > field || values > 2*fields || values > 0 && nesting == 0 {
		return ErrMalformed
	}
	for range values {
		if err := walk(in, field, fields, nesting-1); err != nil {
			return err
		}
	}
	return in.skip(skip)
}

// head reads the beginning of a value, and returns the number of bytes or values that follow.
func head(in source, field, fields int) (skip, values int, err error) {
	b, err := in.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	switch {
	case b < 0x80, b >= 0xe0, b == 0xc0, b == 0xc2, b == 0xc3: // small numbers, nil, booleans
	case b < 0x90: // a short map
		values = 2 * int(b&0x0f)
	case b < 0xa0: // a short list
		values = int(b & 0x0f)
	case b < 0xc0: // a short string
		skip = int(b & 0x1f)
	case b >= 0xc4 && b <= 0xc6: // bytes
		skip, err = length(in, 1<<(b-0xc4), field)
	case b >= 0xd9 && b <= 0xdb: // strings
		skip, err = length(in, 1<<(b-0xd9), field)
	case b == 0xca, b == 0xcb: // floats
		skip = 4 << (b - 0xca)
	case b >= 0xcc && b <= 0xcf, b >= 0xd0 && b <= 0xd3: // numbers
		skip = 1 << ((b - 0xcc) & 3)
	case b == 0xdc, b == 0xdd: // lists
		values, err = length(in, 2<<(b&1), fields)
	case b == 0xde, b == 0xdf: // maps
		values, err = length(in, 2<<(b&1), fields)
		values *= 2
	default: // extensions
		err = ErrMalformed
	}
	return skip, values, err
}

// length reads a length, which is a number of size bytes. A length above the argument
// most is an error.
func length(in source, size, most int) (int, error) {
	n, err := number(in, size)
	if err == nil && n > uint64(most) {
		err = ErrMalformed
	}
	return int(n), err
}

// packetRates bounds the load of packets. It is not safe for concurrent use.
type packetRates struct {
	messages, probes *detect.Allowance
}

func newPacketRates() packetRates {
	return packetRates{detect.NewAllowance(maxMessages, maxMessages), detect.NewAllowance(maxProbes, maxProbes)}
}

// takeLoad reports whether a packet with the load l is within the rates, and if so, counts it.
func (r packetRates) takeLoad(l packetLoad, now time.Time) bool {
	return r.probes.Has(l.probes, now) && r.messages.Take(l.messages, now) && r.probes.Take(l.probes, now)
}
