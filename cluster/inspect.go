package cluster

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

// memberlist takes memory for what a message claims before it has come: 112 MB for
// the nodes of a push/pull, 20 MB for its state, 40 MB for what is compressed, for
// each message in a packet. So all that comes is looked at before memberlist has
// it, and what no member of this project sends is dropped.
const (
	// maxPacket bounds one packet. Members send 1,400 bytes, and what encryption adds.
	maxPacket = 2 << 10
	// maxMessages bounds the messages in packets that are taken in each second, and
	// at once. A member of a thousand is sent some hundreds while all start together.
	maxMessages = 8192
	// maxProbes bounds those of them that have this member send something: pings,
	// and pings on behalf of others. It is pinged once a second, on average.
	maxProbes = 512
	// maxPushed bounds the nodes that a push/pull claims: members, and those that
	// have gone within the half minute for which gossip remembers them.
	maxPushed = 2 * detect.MaxMembers
	// maxField bounds a string in a message of gossip's, and maxFields what a map or
	// list has: the longest is metadata, of 512 bytes, and an address has 16.
	maxField  = 1 << 10
	maxFields = 32
	// maxNesting is how deep these nest: a list of versions in a map.
	maxNesting = 3
)

// The types of gossip's messages.
const (
	gossipPing         = 0
	gossipIndirectPing = 1
	gossipAck          = 2
	gossipSuspect      = 3
	gossipAlive        = 4
	gossipDead         = 5
	gossipPushPull     = 6
	gossipCompound     = 7
	gossipUser         = 8
	gossipEncrypted    = 10
	gossipNack         = 11
	gossipChecksum     = 12
	gossipError        = 13
	gossipLabel        = 244
)

// Why something of gossip's is dropped. They are made once, as anybody can cause them.
var (
	errLabel      = errors.New("cluster: gossip of another cluster, or of a member with another Seed or Region")
	errSealed     = errors.New("cluster: gossip that none of Secrets decrypts")
	errMalformed  = errors.New("cluster: gossip that no member sends")
	errLongPacket = fmt.Errorf("cluster: a packet of more than %d bytes", maxPacket)
	errFlood      = fmt.Errorf("cluster: more than %d messages, or %d pings, in packets within a second", maxMessages, maxProbes)
)

// inspector judges what comes for gossip: whether it is this cluster's, and whether it
// claims no more than it may. It keeps nothing of it. memberlist allocates what a message
// claims, so nothing may reach it that the inspector has not passed, byte for byte.
type inspector struct {
	label string
	keys  []cipher.AEAD // none: gossip is not encrypted
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

// sealVersion is the first byte of what memberlist has encrypted, without padding.
const sealVersion = 1

// open decrypts what one of the keys has sealed.
func (i *inspector) open(sealed, with []byte) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != sealVersion {
		return nil, errSealed
	}
	for _, key := range i.keys {
		if len(sealed) < 1+key.NonceSize()+key.Overhead() {
			break
		}
		if plain, err := key.Open(nil, sealed[1:1+key.NonceSize()], sealed[1+key.NonceSize():], with); err == nil {
			return plain, nil
		}
	}
	return nil, errSealed
}

// packetLoad is how much work a packet makes.
type packetLoad struct {
	messages int
	probes   int // of these, what has this member send something
}

// packet looks at a packet.
func (i *inspector) packet(b []byte) (l packetLoad, err error) {
	if len(b) < 2 || b[0] != gossipLabel || int(b[1]) != len(i.label) || !bytes.HasPrefix(b[2:], []byte(i.label)) {
		return l, errLabel
	}
	b = b[2+len(i.label):]
	if len(i.keys) > 0 {
		if b, err = i.open(b, []byte(i.label)); err != nil {
			return l, err
		}
	}
	if len(b) >= 5 && b[0] == gossipChecksum {
		b = b[5:]
	}
	if len(b) == 0 || b[0] != gossipCompound {
		return l, l.add(b)
	}
	if b = b[1:]; len(b) == 0 || len(b) < 1+2*int(b[0]) {
		return l, errMalformed
	}
	n := int(b[0])
	lengths, parts := b[1:1+2*n], b[1+2*n:]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		size := int(binary.BigEndian.Uint16(lengths))
		if size > len(parts) {
			return l, errMalformed
		}
		if err := l.add(parts[:size]); err != nil {
			return l, err
		}
		parts = parts[size:]
	}
	return l, nil
}

// add looks at one message of a packet.
func (l *packetLoad) add(b []byte) error {
	if len(b) == 0 {
		return errMalformed
	}
	l.messages++
	switch b[0] {
	case gossipUser: // the roster's own: decodeRecords looks at it
		return nil
	case gossipPing, gossipIndirectPing:
		l.probes++
	case gossipAck, gossipSuspect, gossipAlive, gossipDead, gossipNack:
	default:
		return errMalformed
	}
	rest := remaining(b[1:])
	return walk(&rest, maxField, maxFields, maxNesting)
}

// stream reads the one message that comes on a stream of gossip's, and returns it as
// it came. It takes no more memory than what has come, twice. The side that
// listens is sent a label first.
func (i *inspector) stream(r io.Reader, labelled bool) ([]byte, error) {
	var came bytes.Buffer
	in := arriving{Reader: bufio.NewReader(io.TeeReader(r, &came))}
	if labelled {
		header := make([]byte, 2+len(i.label))
		if _, err := io.ReadFull(&in, header); err != nil {
			return nil, err
		}
		if header[0] != gossipLabel || int(header[1]) != len(i.label) || string(header[2:]) != i.label {
			return nil, errLabel
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
	case kind != gossipEncrypted:
		err = errSealed
	default:
		err = i.sealed(&in, &came)
	}
	if err != nil {
		return nil, err
	}
	return came.Bytes()[:in.read:in.read], nil
}

// sealed looks at an encrypted message, whose first byte has been read.
func (i *inspector) sealed(in *arriving, came *bytes.Buffer) error {
	begin := in.read - 1
	size, err := number(in, 4)
	if err != nil {
		return err
	}
	if size > maxStreamBytes {
		return errOversized
	}
	if err := in.skip(int(size)); err != nil {
		return err
	}
	b := came.Bytes()[begin:in.read]
	plain, err := i.open(b[5:], append(b[:5:5], i.label...))
	if err != nil {
		return err
	}
	if len(plain) == 0 {
		return errMalformed
	}
	rest := remaining(plain[1:])
	return message(plain[0], &rest)
}

// message looks at what comes on a stream after its type.
func message(kind byte, in source) error {
	switch kind {
	case gossipPing, gossipAck, gossipError:
		return walk(in, maxField, maxFields, maxNesting)
	case gossipPushPull:
	default:
		return errMalformed
	}
	nodes, state, err := pushed(in)
	if err != nil {
		return err
	}
	if nodes > maxPushed || state > maxRosterMessage {
		return fmt.Errorf("%w: a push/pull that claims %d nodes and %d bytes, not more than %d and %d", errOversized, nodes, state, maxPushed, maxRosterMessage)
	}
	for range nodes {
		if err := walk(in, maxField, maxFields, maxNesting); err != nil {
			return err
		}
	}
	return in.skip(int(state))
}

// pushed reads the header of a push/pull, written as members write it: a map of its
// three fields, each once.
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
				err = errMalformed
			}
		default:
			err = errMalformed
		}
		if err != nil || seen[field] {
			return 0, 0, malformed(err)
		}
		seen[field] = true
	}
	return nodes, state, nil
}

// malformed is err, or that something is malformed.
func malformed(err error) error {
	if err == nil {
		err = errMalformed
	}
	return err
}

// count reads a number that is not below zero.
func count(in source) (uint64, error) {
	b, err := in.ReadByte()
	if err != nil {
		return 0, err
	}
	switch {
	case b < 0x80:
		return uint64(b), nil
	case b >= 0xcc && b <= 0xcf: // of 1, 2, 4 or 8 bytes
		return number(in, 1<<(b-0xcc))
	case b >= 0xd0 && b <= 0xd3: // the same, with a sign
		size := 1 << (b - 0xd0)
		n, err := number(in, size)
		if err == nil && n>>(8*size-1) != 0 {
			err = errMalformed
		}
		return n, err
	}
	return 0, errMalformed
}

// number reads one of so many bytes.
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

// source is bytes that are here, or that arrive.
type source interface {
	io.ByteReader
	skip(n int) error
}

// remaining is bytes that are here: what they claim must be here, too.
type remaining []byte

func (r *remaining) ReadByte() (byte, error) {
	if len(*r) == 0 {
		return 0, errMalformed
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return b, nil
}

func (r *remaining) skip(n int) error {
	if n > len(*r) {
		return errMalformed
	}
	*r = (*r)[n:]
	return nil
}

// arriving is bytes that come from a stream.
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

// walk passes over one value of MessagePack, whose strings, maps and lists are
// bounded, and how deep these nest.
func walk(in source, field, fields, nesting int) error {
	skip, values, err := head(in, field, fields)
	if err != nil {
		return err
	}
	if skip > field || values > 2*fields || values > 0 && nesting == 0 {
		return errMalformed
	}
	for range values {
		if err := walk(in, field, fields, nesting-1); err != nil {
			return err
		}
	}
	return in.skip(skip)
}

// head reads how a value begins: so many bytes follow, or so many values.
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
		err = errMalformed
	}
	return skip, values, err
}

// length reads a length of size bytes, which most bounds.
func length(in source, size, most int) (int, error) {
	n, err := number(in, size)
	if err == nil && n > uint64(most) {
		err = errMalformed
	}
	return int(n), err
}

// packetRates bounds how much of packets is taken in. It is of one goroutine.
type packetRates struct {
	messages, probes *detect.Allowance
}

func newPacketRates() packetRates {
	return packetRates{detect.NewAllowance(maxMessages, maxMessages), detect.NewAllowance(maxProbes, maxProbes)}
}

func (r packetRates) take(l packetLoad, now time.Time) bool {
	return r.probes.Has(l.probes, now) && r.messages.Take(l.messages, now) && r.probes.Take(l.probes, now)
}
