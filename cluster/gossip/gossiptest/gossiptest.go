// Package gossiptest builds the packets and streams that members and attackers send to the gossip
// of a node.
package gossiptest

import (
	"bytes"
	"compress/lzw"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"runtime"
	"strings"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// The types of messages.
const (
	TypePing         = 0
	TypeIndirectPing = 1
	TypeAck          = 2
	TypeSuspect      = 3
	TypeAlive        = 4
	TypeDead         = 5
	TypePushPull     = 6
	TypeCompound     = 7
	TypeUser         = 8
	TypeCompressed   = 9
	TypeEncrypted    = 10
	TypeChecksum     = 12
	TypeError        = 13
	TypeLabel        = 244
)

// Sender sends gossip of a cluster.
type Sender struct {
	Label string
	Key   []byte // no encryption if nil
}

// LabelOf returns the label of a cluster.
func LabelOf(seed [16]byte, region string) string {
	sum := sha256.Sum256(append(seed[:], region...))
	return "weir" + base64.RawURLEncoding.EncodeToString(sum[:9])
}

// Header returns the label as it precedes a message.
func (s Sender) Header() []byte {
	return append([]byte{TypeLabel, byte(len(s.Label))}, s.Label...)
}

// Packet returns the packet that carries a message.
func (s Sender) Packet(message []byte) []byte {
	if s.Key != nil {
		message = s.Encrypt(message, []byte(s.Label))
	}
	return append(s.Header(), message...)
}

// Stream returns a message as the content of a stream.
func (s Sender) Stream(message []byte) []byte { return append(s.Header(), s.Sealed(message)...) }

// Sealed returns a message as the content of a stream, without the label.
func (s Sender) Sealed(message []byte) []byte {
	if s.Key == nil {
		return message
	}
	head := binary.BigEndian.AppendUint32([]byte{TypeEncrypted}, uint32(1+12+len(message)+16))
	return append(head, s.Encrypt(message, append(bytes.Clone(head), s.Label...))...)
}

// Encrypt encrypts plain with additional data, as memberlist does.
func (s Sender) Encrypt(plain, additional []byte) []byte {
	block, err := aes.NewCipher(s.Key)
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	nonce := make([]byte, aead.NonceSize())
	return aead.Seal(append([]byte{1}, nonce...), nonce, plain, additional)
}

// Message returns a message of memberlist: the byte of its type, and the encoding of v.
func Message(kind byte, v any) []byte { return append([]byte{kind}, encode(v)...) }

func encode(v any) (b []byte) {
	codec.NewEncoderBytes(&b, new(codec.MsgpackHandle)).MustEncode(v)
	return b
}

// Fields are the fields of a message.
type Fields = map[string]any

// Ping returns a ping to a node.
func Ping(node string) []byte {
	return Message(TypePing, Fields{"SeqNo": 7, "Node": node, "SourceAddr": []byte{127, 0, 0, 1}, "SourcePort": 9})
}

// Alive returns a message that reports a serving member as alive.
func Alive(name string, seed [16]byte) []byte {
	meta := Message(0, Fields{"v": 1, "a": name + ".example:9", "r": "", "s": seed[:], "b": 1, "e": 0, "n": 0, "t": 1})[1:]
	return Message(TypeAlive, Fields{
		"Node": name, "Addr": []byte{127, 1, 2, 3}, "Port": 9, "Incarnation": 1, "Vsn": []uint8{1, 5, 2, 1, 1, 1}, "Meta": meta,
	})
}

// Header is the header of a push/pull.
type Header struct {
	Nodes, UserStateLen int
	Join                bool
}

// Node is a node in a push/pull.
type Node struct {
	Name        string
	Addr        []byte
	Port        uint16
	Meta        []byte
	Incarnation uint32
	State       int
	Vsn         []uint8
}

// PushPull returns a push/pull that claims the given numbers of nodes and of bytes of state. It
// contains at most 10 nodes and 1,000 bytes.
func PushPull(nodes, state int) []byte {
	b := Message(TypePushPull, Header{nodes, state, true})
	for range min(nodes, 10) {
		b = append(b, Message(0, Node{
			Name: strings.Repeat("n", 128), Addr: make([]byte, 16), Port: math.MaxUint16,
			Meta: make([]byte, 512), Incarnation: math.MaxUint32, Vsn: []uint8{1, 5, 2, 1, 1, 1},
		})[1:]...)
	}
	return append(b, make([]byte, min(state, 1000))...)
}

// Bomb returns a compressed message that decompresses to 10 MiB.
func Bomb() []byte { return Compressed(10 << 20) }

// Compressed returns a compressed message that decompresses to size zero bytes.
func Compressed(size int) []byte {
	var b bytes.Buffer
	w := lzw.NewWriter(&b, lzw.LSB, 8)
	w.Write(make([]byte, size))
	w.Close()
	return Message(TypeCompressed, struct {
		Algo int
		Buf  []byte
	}{0, b.Bytes()})
}

// AllocatedBytes returns the number of bytes that f allocates.
func AllocatedBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// EncodeWith returns the encoding of v with more fields, as a later version may send it. It panics if v
// is not encoded as a map.
func EncodeWith(v any, more map[string]any) []byte {
	fields := make(map[string]any)
	if err := codec.NewDecoderBytes(encode(v), new(codec.MsgpackHandle)).Decode(&fields); err != nil {
		panic(err)
	}
	for name, value := range more {
		fields[name] = value
	}
	return encode(fields)
}
