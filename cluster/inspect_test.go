package cluster

import (
	"bytes"
	"compress/lzw"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

const testLabel = "weirtest"

var testKey = []byte("sixteen bytes...")

func testInspector(t testing.TB, keys ...[]byte) *inspector {
	t.Helper()
	i, err := newInspector(testLabel, keys)
	require.NoError(t, err)
	return i
}

func labelled(message ...byte) []byte {
	return append([]byte{gossipLabel, byte(len(testLabel))}, append([]byte(testLabel), message...)...)
}

// encrypted encrypts as memberlist does.
func encrypted(t testing.TB, key, plain, with []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	nonce := make([]byte, aead.NonceSize())
	return aead.Seal(append([]byte{sealVersion}, nonce...), nonce, plain, with)
}

// sealedStream is a message of a stream that holders of the key send.
func sealedStream(t testing.TB, plain []byte) []byte {
	head := binary.BigEndian.AppendUint32([]byte{gossipEncrypted}, uint32(1+12+len(plain)+16))
	return append(head, encrypted(t, testKey, plain, append(bytes.Clone(head), testLabel...))...)
}

type testHeader struct {
	Nodes, UserStateLen int
	Join                bool
}

type testNode struct {
	Name        string
	Addr        []byte
	Port        uint16
	Meta        []byte
	Incarnation uint32
	State       int
	Vsn         []uint8
}

func testPush(nodes, state int) []byte {
	b := append([]byte{gossipPushPull}, encode(testHeader{nodes, state, true})...)
	for range min(nodes, 10) {
		b = append(b, encode(testNode{
			Name: strings.Repeat("n", detect.MaxName), Addr: make([]byte, 16), Port: math.MaxUint16,
			Meta: make([]byte, 512), Incarnation: math.MaxUint32, Vsn: []uint8{1, 5, 2, 1, 1, 1},
		})...)
	}
	return append(b, make([]byte, min(state, 1000))...)
}

// bomb is what a compressed message of 10 MB takes in a packet.
func bomb() []byte {
	var b bytes.Buffer
	w := lzw.NewWriter(&b, lzw.LSB, 8)
	w.Write(make([]byte, 10<<20))
	w.Close()
	return append([]byte{9}, encode(struct {
		Algo int
		Buf  []byte
	}{0, b.Bytes()})...)
}

// took is how much memory f takes, garbage included.
func took(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestAStreamIsHandedOnIfItClaimsWhatItMay(t *testing.T) {
	claim := func(b ...byte) []byte { return append([]byte{gossipPushPull}, b...) }
	for name, c := range map[string]struct {
		message []byte
		want    error // nil: it is handed on
	}{
		"a push/pull":                      {testPush(10, 1000), nil},
		"a push/pull of nobody":            {testPush(0, 0), nil},
		"a ping":                           {append([]byte{gossipPing}, encode(map[string]any{"SeqNo": 1, "Node": "a"})...), nil},
		"an answer to one":                 {append([]byte{gossipAck}, encode(map[string]any{"SeqNo": 1, "Payload": nil})...), nil},
		"an error":                         {append([]byte{gossipError}, encode(map[string]any{"Error": strings.Repeat("e", 200)})...), nil},
		"more nodes than there may be":     {testPush(1<<20, 0), errOversized},
		"one node more than may be":        {testPush(maxPushed+1, 0), errOversized},
		"a state of 20 MB":                 {testPush(0, 20<<20), errOversized},
		"a state that does not come":       {testPush(0, maxRosterMessage), io.ErrUnexpectedEOF},
		"nodes that do not come":           {testPush(maxPushed, 0), io.ErrUnexpectedEOF},
		"compressed":                       {bomb(), errMalformed},
		"a user's message of 20 MB":        {append([]byte{gossipUser}, encode(map[string]int{"UserMsgLen": 20 << 20})...), errMalformed},
		"a header of other fields":         {claim(encode(map[string]int{"Nodes": 1, "Nobody": 1, "Join": 0})...), errMalformed},
		"a header that says a field twice": {claim(append([]byte{0x83}, bytes.Repeat(append([]byte{0xa5}, "Nodes\x01"...), 3)...)...), errMalformed},
		"a number below zero":              {claim(append(append([]byte{0x83, 0xa5}, "Nodes"...), 0xd3, 255, 255, 255, 255, 255, 255, 255, 255)...), errMalformed},
		"no header":                        {claim(0xc0), errMalformed},
		"a name of 4 GiB":                  {append(testPush(1, 0)[:1+len(encode(testHeader{1, 0, true}))], 0x81, 0xdb, 255, 255, 255, 255), errMalformed},
		"nodes that nest":                  {append(testPush(1, 0)[:1+len(encode(testHeader{1, 0, true}))], bytes.Repeat([]byte{0x91}, 1000)...), errMalformed},
		"an unknown type":                  {[]byte{77, 0x80}, errMalformed},
		"another label":                    {nil, errLabel},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sealed := range []bool{false, true} {
				i, sent := testInspector(t), c.message
				if sealed {
					i, sent = testInspector(t, []byte("another key....."), testKey), sealedStream(t, c.message)
				}
				sent = labelled(sent...)
				if c.want == errLabel {
					sent[5] ^= 1
				}
				for _, listens := range []bool{true, false} {
					if !listens {
						sent = sent[2+len(testLabel):]
					}
					if c.want == errLabel && !listens {
						continue
					}
					// What follows is not its own, and not handed on.
					var got []byte
					var err error
					in := io.Reader(bytes.NewReader(append(bytes.Clone(sent), "what follows"...)))
					if c.want == io.ErrUnexpectedEOF {
						in = bytes.NewReader(sent)
					}
					memory := took(func() { got, err = i.stream(in, listens) })
					switch {
					case c.want == nil:
						require.NoError(t, err)
						require.Equal(t, sent, got)
					case c.want == io.ErrUnexpectedEOF:
						require.Error(t, err)
					default:
						require.ErrorIs(t, err, c.want)
					}
					require.Less(t, memory, uint64(256<<10), "sealed: %v", sealed)
				}
			}
		})
	}
}

func TestAStreamThatNobodyWithASecretHasSealedIsNotHandedOn(t *testing.T) {
	i := testInspector(t, testKey)
	good := labelled(sealedStream(t, testPush(1, 0))...)
	_, err := i.stream(bytes.NewReader(good), true)
	require.NoError(t, err)
	for name, sent := range map[string][]byte{
		"not sealed":           labelled(testPush(1, 0)...),
		"changed":              append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1),
		"of a length of 4 GiB": labelled(gossipEncrypted, 255, 255, 255, 255),
		"of no length":         labelled(gossipEncrypted, 0, 0, 0, 0),
		"padded":               labelled(append([]byte{gossipEncrypted, 0, 0, 0, 60, 0}, make([]byte, 60)...)...),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := i.stream(bytes.NewReader(sent), true)
			require.True(t, err != nil && reasonOfStream(err) != "", "%v", err)
		})
	}
}

func TestAPacketIsHandedOnIfAMemberMaySendIt(t *testing.T) {
	ping := append([]byte{gossipPing}, encode(map[string]any{"SeqNo": 7, "Node": "a", "SourceAddr": []byte{127, 0, 0, 1}})...)
	alive := append([]byte{gossipAlive}, encode(testNode{Name: "a", Addr: make([]byte, 4), Meta: make([]byte, 512), Vsn: make([]uint8, 6)})...)
	compound := func(parts ...[]byte) []byte {
		b := []byte{gossipCompound, byte(len(parts))}
		for _, p := range parts {
			b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
		}
		return append(b, bytes.Join(parts, nil)...)
	}
	checked := append([]byte{gossipChecksum, 1, 2, 3, 4}, ping...)
	for name, c := range map[string]struct {
		message []byte
		want    error
		load    packetLoad
	}{
		"a ping":                    {ping, nil, packetLoad{1, 1}},
		"one with a checksum":       {checked, nil, packetLoad{1, 1}},
		"several":                   {compound(ping, alive, ping), nil, packetLoad{3, 2}},
		"a record":                  {append([]byte{gossipUser}, 1, 2, 3), nil, packetLoad{1, 0}},
		"a bomb":                    {bomb(), errMalformed, packetLoad{}},
		"a bomb among others":       {compound(ping, bomb()), errMalformed, packetLoad{}},
		"a compound in another":     {compound(compound(ping)), errMalformed, packetLoad{}},
		"a checksum in a compound":  {compound(checked), errMalformed, packetLoad{}},
		"a name of 4 GiB":           {[]byte{gossipAlive, 0x81, 0xdb, 255, 255, 255, 255}, errMalformed, packetLoad{}},
		"a name of a kilobyte":      {[]byte{gossipAlive, 0x81, 0xda, 4, 0}, errMalformed, packetLoad{}},
		"a list of 4 G":             {[]byte{gossipAlive, 0xdd, 255, 255, 255, 255}, errMalformed, packetLoad{}},
		"half a compound":           {compound(ping, alive)[:30], errMalformed, packetLoad{}},
		"a compound without a size": {[]byte{gossipCompound}, errMalformed, packetLoad{}},
		"nothing":                   {nil, errMalformed, packetLoad{}},
		"a push/pull":               {testPush(1, 0), errMalformed, packetLoad{}},
		"an empty message":          {compound(nil), errMalformed, packetLoad{}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sealed := range []bool{false, true} {
				i, sent := testInspector(t), c.message
				if sealed {
					i, sent = testInspector(t, testKey), encrypted(t, testKey, c.message, []byte(testLabel))
				}
				sent = labelled(sent...)
				before := bytes.Clone(sent)
				l, err := i.packet(sent)
				require.Equal(t, before, sent, "it is looked at, and not changed")
				require.ErrorIs(t, err, c.want)
				if c.want == nil {
					require.Equal(t, c.load, l)
				}
			}
		})
	}
	for name, sent := range map[string][]byte{"nothing": nil, "a byte": {1}, "no label": ping, "another label": append([]byte{gossipLabel, 1, 'x'}, ping...)} {
		_, err := testInspector(t).packet(sent)
		require.ErrorIs(t, err, errLabel, name)
	}
	_, err := testInspector(t, testKey).packet(labelled(ping...))
	require.ErrorIs(t, err, errSealed)
}

func TestMessagesInPacketsAreBoundedInEachSecond(t *testing.T) {
	r, now := newPacketRates(), time.Unix(0, 0)
	count := func(l packetLoad) (n int) {
		for r.take(l, now) {
			n++
		}
		return n
	}
	require.Equal(t, maxMessages/8, count(packetLoad{messages: 8}))
	now = now.Add(time.Second / 2)
	require.Equal(t, maxProbes, count(packetLoad{1, 1}), "pings are fewer")
	require.Equal(t, maxMessages/2-maxProbes, count(packetLoad{messages: 1}), "and leave the others theirs")
	now = now.Add(time.Hour)
	require.Equal(t, maxMessages, count(packetLoad{messages: 1}), "what was not taken does not add up")
	now = now.Add(-time.Minute)
	require.Zero(t, count(packetLoad{messages: 1}), "a clock that steps back gives nothing")
}

func TestARosterThatClaimsManyRecordsIsRefusedBeforeTheyHaveMemory(t *testing.T) {
	claim := append([]byte{0x82, 0xa1, 'v', membershipVersion, 0xa1, 'r', 0xdd, 0, 0x3f, 0xff, 0xff}, bytes.Repeat([]byte{0x80}, 1<<22-100)...)
	var err error
	memory := took(func() { _, err = decodeRecords(claim, time.Now()) })
	require.Error(t, err)
	require.Less(t, memory, uint64(64<<10))
}
