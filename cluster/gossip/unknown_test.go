package gossip

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/cluster/gossip/gossiptest"
)

func TestUnknownFieldsOfGossipAreIgnored(t *testing.T) {
	more := map[string]any{"x": uint64(1), "yy": bytes.Repeat([]byte("z"), 100), "zz": []uint64{1, 2}}
	t.Run("metadata", func(t *testing.T) {
		m := metadata{Version: version, Addr: "10.0.0.1:1", Region: "r", Seed: make([]byte, 16), Born: 7, State: detect.Serving}
		b := gossiptest.EncodeWith(m, more)
		require.Greater(t, len(b), len(Encode(m))+100)
		got, err := decodeMetadata("a", b)
		require.NoError(t, err)
		require.Equal(t, m, got)
	})
	t.Run("records", func(t *testing.T) {
		now := time.Now()
		want := detect.Record{Name: "a", Addr: "10.0.0.1:1", Region: "r", Born: 7, Announced: detect.Serving}
		var one map[string]any
		require.NoError(t, Decode(gossiptest.EncodeWith(wireRecord{Name: "a", Addr: "10.0.0.1:1", Region: "r", Born: 7, State: detect.Serving}, map[string]any{"x": 1, "yy": "flat"}), &one))
		got, err := DecodeRecords(gossiptest.EncodeWith(rosterMessage{Version: version}, map[string]any{"r": []any{one}, "zz": []uint64{1, 2}}), now)
		require.NoError(t, err)
		require.Equal(t, []detect.Record{want}, got)
	})
}
