package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/gossip/gossiptest"
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
	return append([]byte{typeLabel, byte(len(testLabel))}, append([]byte(testLabel), message...)...)
}

// encrypted encrypts as memberlist does.
func encrypted(key, plain []byte) []byte {
	return gossiptest.Sender{Key: key}.Encrypt(plain, []byte(testLabel))
}

// sealedStream returns the content of a stream from a holder of the key.
func sealedStream(plain []byte) []byte {
	return gossiptest.Sender{Label: testLabel, Key: testKey}.Sealed(plain)
}

func TestStreamWithinBoundsIsPassedOn(t *testing.T) {
	claim := func(b ...byte) []byte { return append([]byte{typePushPull}, b...) }
	for name, c := range map[string]struct {
		message []byte
		want    error // nil if the message is passed on
	}{
		"a push/pull":                   {gossiptest.PushPull(10, 1000), nil},
		"a push/pull of no nodes":       {gossiptest.PushPull(0, 0), nil},
		"a ping":                        {append([]byte{typePing}, Encode(map[string]any{"SeqNo": 1, "Node": "a"})...), nil},
		"an answer to a ping":           {append([]byte{typeAck}, Encode(map[string]any{"SeqNo": 1, "Payload": nil})...), nil},
		"an error":                      {append([]byte{typeError}, Encode(map[string]any{"Error": strings.Repeat("e", 200)})...), nil},
		"a million nodes":               {gossiptest.PushPull(1<<20, 0), ErrOversized},
		"one node above the bound":      {gossiptest.PushPull(maxPushed+1, 0), ErrOversized},
		"a state of 20 MB":              {gossiptest.PushPull(0, 20<<20), ErrOversized},
		"a state that does not come":    {gossiptest.PushPull(0, maxRecordBytes), io.ErrUnexpectedEOF},
		"nodes that do not come":        {gossiptest.PushPull(maxPushed, 0), io.ErrUnexpectedEOF},
		"compressed":                    {gossiptest.Bomb(), ErrMalformed},
		"a user's message of 20 MB":     {append([]byte{typeUser}, Encode(map[string]int{"UserMsgLen": 20 << 20})...), ErrMalformed},
		"a header of other fields":      {claim(Encode(map[string]int{"Nodes": 1, "Nobody": 1, "Join": 0})...), ErrMalformed},
		"a header that repeats a field": {claim(append([]byte{0x83}, bytes.Repeat(append([]byte{0xa5}, "Nodes\x01"...), 3)...)...), ErrMalformed},
		"a number below zero":           {claim(append(append([]byte{0x83, 0xa5}, "Nodes"...), 0xd3, 255, 255, 255, 255, 255, 255, 255, 255)...), ErrMalformed},
		"no header":                     {claim(0xc0), ErrMalformed},
		"a name of 4 GiB":               {append(gossiptest.PushPull(1, 0)[:1+len(Encode(gossiptest.Header{Nodes: 1, Join: true}))], 0x81, 0xdb, 255, 255, 255, 255), ErrMalformed},
		"nodes that nest":               {append(gossiptest.PushPull(1, 0)[:1+len(Encode(gossiptest.Header{Nodes: 1, Join: true}))], bytes.Repeat([]byte{0x91}, 1000)...), ErrMalformed},
		"an unknown type":               {[]byte{77, 0x80}, ErrMalformed},
		"another label":                 {nil, ErrLabel},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sealed := range []bool{false, true} {
				i, sent := testInspector(t), c.message
				if sealed {
					i, sent = testInspector(t, []byte("another key....."), testKey), sealedStream(c.message)
				}
				sent = labelled(sent...)
				if c.want == ErrLabel {
					sent[5] ^= 1
				}
				for _, listens := range []bool{true, false} {
					if !listens {
						sent = sent[2+len(testLabel):]
					}
					if c.want == ErrLabel && !listens {
						continue
					}
					// The bytes after the message do not belong to it, and are not passed on.
					var got []byte
					var err error
					in := io.Reader(bytes.NewReader(append(bytes.Clone(sent), "what follows"...)))
					if c.want == io.ErrUnexpectedEOF {
						in = bytes.NewReader(sent)
					}
					memory := gossiptest.AllocatedBytes(func() { got, err = i.stream(in, listens) })
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

func TestForeignStreamIsRefused(t *testing.T) {
	i := testInspector(t, testKey)
	good := labelled(sealedStream(gossiptest.PushPull(1, 0))...)
	_, err := i.stream(bytes.NewReader(good), true)
	require.NoError(t, err)
	for name, sent := range map[string][]byte{
		"not sealed":           labelled(gossiptest.PushPull(1, 0)...),
		"changed":              append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1),
		"of a length of 4 GiB": labelled(typeEncrypted, 255, 255, 255, 255),
		"of no length":         labelled(typeEncrypted, 0, 0, 0, 0),
		"padded":               labelled(append([]byte{typeEncrypted, 0, 0, 0, 60, 0}, make([]byte, 60)...)...),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := i.stream(bytes.NewReader(sent), true)
			require.True(t, errors.Is(err, ErrSealed) || errors.Is(err, ErrOversized) || errors.Is(err, ErrMalformed), "%v", err)
		})
	}
}

func TestMemberPacketIsPassedOn(t *testing.T) {
	ping := append([]byte{typePing}, Encode(map[string]any{"SeqNo": 7, "Node": "a", "SourceAddr": []byte{127, 0, 0, 1}})...)
	alive := append([]byte{typeAlive}, Encode(gossiptest.Node{Name: "a", Addr: make([]byte, 4), Meta: make([]byte, 512), Vsn: make([]uint8, 6)})...)
	compound := func(parts ...[]byte) []byte {
		b := []byte{typeCompound, byte(len(parts))}
		for _, p := range parts {
			b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
		}
		return append(b, bytes.Join(parts, nil)...)
	}
	checked := append([]byte{typeChecksum, 1, 2, 3, 4}, ping...)
	for name, c := range map[string]struct {
		message []byte
		want    error
		load    packetLoad
	}{
		"a ping":                    {ping, nil, packetLoad{1, 1}},
		"a ping with a checksum":    {checked, nil, packetLoad{1, 1}},
		"several messages":          {compound(ping, alive, ping), nil, packetLoad{3, 2}},
		"a record":                  {append([]byte{typeUser}, 1, 2, 3), nil, packetLoad{1, 0}},
		"a bomb":                    {gossiptest.Bomb(), ErrMalformed, packetLoad{}},
		"a ping and a bomb":         {compound(ping, gossiptest.Bomb()), ErrMalformed, packetLoad{}},
		"a compound in another":     {compound(compound(ping)), ErrMalformed, packetLoad{}},
		"a checksum in a compound":  {compound(checked), ErrMalformed, packetLoad{}},
		"a name of 4 GiB":           {[]byte{typeAlive, 0x81, 0xdb, 255, 255, 255, 255}, ErrMalformed, packetLoad{}},
		"a name of a kilobyte":      {[]byte{typeAlive, 0x81, 0xda, 4, 0}, ErrMalformed, packetLoad{}},
		"a list of 4 G":             {[]byte{typeAlive, 0xdd, 255, 255, 255, 255}, ErrMalformed, packetLoad{}},
		"half a compound":           {compound(ping, alive)[:30], ErrMalformed, packetLoad{}},
		"a compound without a size": {[]byte{typeCompound}, ErrMalformed, packetLoad{}},
		"nothing":                   {nil, ErrMalformed, packetLoad{}},
		"a push/pull":               {gossiptest.PushPull(1, 0), ErrMalformed, packetLoad{}},
		"an empty message":          {compound(nil), ErrMalformed, packetLoad{}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sealed := range []bool{false, true} {
				i, sent := testInspector(t), c.message
				if sealed {
					i, sent = testInspector(t, testKey), encrypted(testKey, c.message)
				}
				sent = labelled(sent...)
				before := bytes.Clone(sent)
				l, err := i.packet(sent)
				require.Equal(t, before, sent, "packet must not modify the bytes")
				require.ErrorIs(t, err, c.want)
				if c.want == nil {
					require.Equal(t, c.load, l)
				}
			}
		})
	}
	for name, sent := range map[string][]byte{"nothing": nil, "a byte": {1}, "no label": ping, "another label": append([]byte{typeLabel, 1, 'x'}, ping...)} {
		_, err := testInspector(t).packet(sent)
		require.ErrorIs(t, err, ErrLabel, name)
	}
	_, err := testInspector(t, testKey).packet(labelled(ping...))
	require.ErrorIs(t, err, ErrSealed)
}

func TestMessagesInPacketsAreBoundedInEachSecond(t *testing.T) {
	r, now := newPacketRates(), time.Unix(0, 0)
	count := func(l packetLoad) (n int) {
		for r.takeLoad(l, now) {
			n++
		}
		return n
	}
	require.Equal(t, maxMessages/8, count(packetLoad{messages: 8}))
	now = now.Add(time.Second / 2)
	require.Equal(t, maxProbes, count(packetLoad{1, 1}), "pings are fewer")
	require.Equal(t, maxMessages/2-maxProbes, count(packetLoad{messages: 1}), "and leave room for other messages")
	now = now.Add(time.Hour)
	require.Equal(t, maxMessages, count(packetLoad{messages: 1}), "unused room does not add up")
	now = now.Add(-time.Minute)
	require.Zero(t, count(packetLoad{messages: 1}), "a clock that steps back adds no room")
	now = now.Add(time.Minute)
	require.Zero(t, count(packetLoad{messages: 1}), "its return adds no room either")
}

func TestRosterClaimsAreCheckedBeforeAllocation(t *testing.T) {
	claim := append([]byte{0x82, 0xa1, 'v', version, 0xa1, 'r', 0xdd, 0, 0x3f, 0xff, 0xff}, bytes.Repeat([]byte{0x80}, 1<<22-100)...)
	var err error
	memory := gossiptest.AllocatedBytes(func() { _, err = DecodeRecords(claim, time.Now()) })
	require.Error(t, err)
	require.Less(t, memory, uint64(64<<10))
}
