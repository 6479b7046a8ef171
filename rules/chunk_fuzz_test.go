package rules

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
)

// A head and a chunk of any bytes either result in a text with the hash in the head, or are refused.
func FuzzPublishedText(f *testing.F) {
	h, chunks, err := newTextHead([]byte(ratedFile(7, 10)))
	require.NoError(f, err)
	value, err := json.Marshal(h)
	require.NoError(f, err)
	f.Add(headName(7), value, chunks[0])
	f.Add(headName(8), value, chunks[0])
	f.Add(headPrefix+"7", []byte(`{"chunks":-1}`), []byte{})
	f.Fuzz(func(t *testing.T, name string, head, chunk []byte) {
		h, err := readTextHead(weir.Published{Name: name, Value: head})
		if err != nil {
			return
		}
		require.Equal(t, name, headName(h.version))
		all := []weir.Published{{Name: h.chunkName(0), Value: chunk}}
		if text, err := h.join(all); err == nil {
			require.Equal(t, h.Hash, fullHashOf(text))
			require.LessOrEqual(t, len(text), strictyaml.MaxBytes)
		}
		if set, err := h.parse(all); err == nil {
			require.Equal(t, h.version, set.version)
		}
	})
}
