package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/publish"
	"github.com/weir-go/weir/internal/strictyaml"
)

// largeText returns a text of almost size bytes, with random numbers that compress badly.
func largeText(version, size int) []byte {
	b := fmt.Appendf(nil, "version: %d\nrules:\n", version)
	rng := rand.New(rand.NewPCG(1, uint64(version)))
	for i := 0; ; i++ {
		rule := fmt.Sprintf("- {name: r%d, match: {path: /v%d/i%d}, key: user, limit: {rate: %d, per: 1h}}\n", i, rng.IntN(1000), i, 1+rng.IntN(1e6))
		if len(b)+len(rule) > size {
			return b
		}
		b = append(b, rule...)
	}
}

// publishedChunks returns the chunks as published values.
func publishedChunks(h *textHead, chunks [][]byte) (all []weir.Published) {
	for i, chunk := range chunks {
		all = append(all, weir.Published{Name: h.chunkName(i), Version: 1, Value: chunk})
	}
	return all
}

func TestJoinedChunksEqualText(t *testing.T) {
	for _, size := range []int{40, 10_000, strictyaml.MaxBytes} {
		text := largeText(7, size)
		h, chunks, err := newTextHead(text)
		require.NoError(t, err)
		require.LessOrEqual(t, len(chunks), maxChunks)
		for _, chunk := range chunks {
			require.LessOrEqual(t, len(chunk), publish.MaxValue)
		}
		value, err := json.Marshal(h)
		require.NoError(t, err)
		require.Less(t, len(value)+maxByBytes+maxReasonBytes, publish.MaxValue)
		read, err := readTextHead(weir.Published{Name: headName(7), Version: 3, Value: value})
		require.NoError(t, err)
		require.Equal(t, []uint64{7, 3}, []uint64{read.version, read.published})
		joined, err := read.join(publishedChunks(&read, chunks))
		require.NoError(t, err)
		require.Equal(t, text, joined)
	}
}

func TestRandomTextIsTooLargeToPublish(t *testing.T) {
	text := make([]byte, strictyaml.MaxBytes)
	for i := range text {
		text[i] = byte(rand.Uint32())
	}
	_, _, err := newTextHead(text)
	require.ErrorIs(t, err, weir.ErrInvalid)
	require.ErrorContains(t, err, "publish at most 524288")
}

func TestDamagedChunksAreRefused(t *testing.T) {
	text := largeText(1, 100_000)
	h, chunks, err := newTextHead(text)
	require.NoError(t, err)
	require.Greater(t, len(chunks), 2)
	all := publishedChunks(&h, chunks)
	for about, damaged := range map[string][]weir.Published{
		"none":   nil,
		"first":  all[1:],
		"middle": slices.Delete(slices.Clone(all), 1, 2),
		"last":   all[:len(all)-1],
	} {
		text, err := h.join(damaged)
		require.Equal(t, errIncomplete, err, about)
		require.Nil(t, text, about)
	}
	for about, change := range map[string]func(c [][]byte){
		"flipped":  func(c [][]byte) { c[1] = slices.Clone(c[1]); c[1][9] ^= 1 },
		"swapped":  func(c [][]byte) { c[0], c[1] = c[1], c[0] },
		"garbage":  func(c [][]byte) { c[0] = []byte("garbage") },
		"a bomb":   func(c [][]byte) { _, bomb, _ := newTextHead(make([]byte, 10<<20)); copy(c, bomb) },
		"no bytes": func(c [][]byte) { clear(c) },
	} {
		changed := slices.Clone(chunks)
		change(changed)
		text, err := h.join(publishedChunks(&h, changed))
		require.ErrorContains(t, err, "do not have the hash", about)
		require.Nil(t, text, about)
	}
}

func TestMalformedHeadIsRefused(t *testing.T) {
	good, _, err := newTextHead([]byte("rules: []"))
	require.NoError(t, err)
	encode := func(change func(h *textHead)) []byte {
		h := good
		change(&h)
		value, err := json.Marshal(h)
		require.NoError(t, err)
		return value
	}
	for about, v := range map[string]weir.Published{
		"name":        {Name: headPrefix + "7", Value: encode(func(*textHead) {})},
		"no version":  {Name: headPrefix + "x", Value: encode(func(*textHead) {})},
		"no JSON":     {Name: headName(7), Value: []byte("{")},
		"empty":       {Name: headName(7), Value: []byte("{}")},
		"short hash":  {Name: headName(7), Value: encode(func(h *textHead) { h.Hash = h.Hash[2:] })},
		"no hash":     {Name: headName(7), Value: encode(func(h *textHead) { h.Hash = strings.Repeat("x", 64) })},
		"ID":          {Name: headName(7), Value: encode(func(h *textHead) { h.ID = "../../../../text" })},
		"no size":     {Name: headName(7), Value: encode(func(h *textHead) { h.Size = 0 })},
		"large":       {Name: headName(7), Value: encode(func(h *textHead) { h.Size = strictyaml.MaxBytes + 1 })},
		"no chunks":   {Name: headName(7), Value: encode(func(h *textHead) { h.Chunks = 0 })},
		"many chunks": {Name: headName(7), Value: encode(func(h *textHead) { h.Chunks = maxChunks + 1 })},
		"text":        {Name: headName(7), Value: bytes.Repeat([]byte("x"), publish.MaxValue)},
	} {
		_, err := readTextHead(v)
		require.Error(t, err, about)
	}
	_, err = readTextHead(weir.Published{Name: headName(7), Value: encode(func(*textHead) {})})
	require.NoError(t, err)
}
