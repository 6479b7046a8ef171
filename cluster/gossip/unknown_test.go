package gossip

import (
	"bytes"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

// with returns the encoding of v with more fields, as a later version may send it.
func with(t *testing.T, v any, more map[string]any) []byte {
	t.Helper()
	var fields map[string]any
	require.NoError(t, Decode(Encode(v), &fields))
	for name, value := range more {
		fields[name] = value
	}
	var b []byte
	require.NoError(t, codec.NewEncoderBytes(&b, new(codec.MsgpackHandle)).Encode(fields))
	return b
}

func TestUnknownFieldsOfGossipAreIgnored(t *testing.T) {
	more := map[string]any{"x": uint64(1), "yy": bytes.Repeat([]byte("z"), 100), "zz": []uint64{1, 2}}
	t.Run("metadata", func(t *testing.T) {
		m := metadata{Version: version, Addr: "10.0.0.1:1", Region: "r", Seed: make([]byte, 16), Born: 7, State: detect.Serving}
		b := with(t, m, more)
		require.Greater(t, len(b), len(Encode(m))+100)
		got, err := decodeMetadata("a", b)
		require.NoError(t, err)
		require.Equal(t, m, got)
	})
	t.Run("records", func(t *testing.T) {
		now := time.Now()
		want := detect.Record{Name: "a", Addr: "10.0.0.1:1", Region: "r", Born: 7, Announced: detect.Serving}
		var one map[string]any
		require.NoError(t, Decode(with(t, wireRecord{Name: "a", Addr: "10.0.0.1:1", Region: "r", Born: 7, State: detect.Serving}, map[string]any{"x": 1, "yy": "flat"}), &one))
		got, err := DecodeRecords(with(t, rosterMessage{Version: version}, map[string]any{"r": []any{one}, "zz": []uint64{1, 2}}), now)
		require.NoError(t, err)
		require.Equal(t, []detect.Record{want}, got)
	})
}
