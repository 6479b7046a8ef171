package rules

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/publish"
	"github.com/weir-go/weir/internal/strictyaml"
)

// A published text is a head, the value rules/text/VERSION, and chunks of the compressed text, the
// values rules/chunk/ID/INDEX. VERSION is the version of the rules in 20 digits, so that each version has
// one head on all nodes. With one head for all versions, the text that is published later could have the lower
// version of the rules, which nodes with the higher version refuse. A publisher publishes the chunks first. All
// values of a text have one version as published values, at least the publisher's time in nanoseconds since 1970.
const (
	headPrefix  = "rules/text/"
	chunkPrefix = "rules/chunk/"

	maxCompressed = 512 << 10 // maximum size of a compressed text, in bytes
	maxChunks     = maxCompressed / publish.MaxValue
)

// textHead describes a published text.
type textHead struct {
	Hash   string `json:"hash"`   // SHA-256 of the text, in hexadecimal digits
	Size   int    `json:"size"`   // length of the text in bytes
	ID     string `json:"id"`     // first 16 hexadecimal digits of the SHA-256 of the compressed text
	Chunks int    `json:"chunks"` // number of chunks
	Control

	version   uint64 // version of the rules
	published uint64 // version of the published values
}

// newTextHead returns the head of a text without the fields that its publisher adds, and the chunks.
func newTextHead(text []byte) (h textHead, chunks [][]byte, err error) {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestCompression) // the level is valid
	_, _ = w.Write(text)                               // a Buffer returns no error
	_ = w.Close()
	if b.Len() > maxCompressed {
		return h, nil, fmt.Errorf("%w text: it has %d bytes after compression: publish at most %d, or load it from a source", weir.ErrInvalid, b.Len(), maxCompressed)
	}
	chunks = slices.Collect(slices.Chunk(b.Bytes(), publish.MaxValue))
	return textHead{Hash: fullHashOf(text), Size: len(text), ID: fullHashOf(b.Bytes())[:16], Chunks: len(chunks)}, chunks, nil
}

// headName returns the name of the head of a version of the rules.
func headName(version uint64) string { return fmt.Sprintf("%s%020d", headPrefix, version) }

// prefix begins the names of the chunks.
func (h *textHead) prefix() string { return chunkPrefix + h.ID + "/" }

func (h *textHead) chunkName(i int) string { return fmt.Sprintf("%s%03d", h.prefix(), i) }

// readTextHead reads a head, which may come from any node.
func readTextHead(v weir.Published) (h textHead, err error) {
	if h.version, err = strconv.ParseUint(strings.TrimPrefix(v.Name, headPrefix), 10, 64); err != nil || headName(h.version) != v.Name {
		return h, fmt.Errorf("%q names no version of rules", v.Name)
	}
	h.published = v.Version
	if err := json.Unmarshal(v.Value, &h); err != nil {
		return h, err
	}
	_, err = hex.DecodeString(h.Hash + h.ID)
	if err != nil || len(h.Hash) != 2*sha256.Size || len(h.ID) != 16 || h.Size < 1 || h.Size > strictyaml.MaxBytes || h.Chunks < 1 || h.Chunks > maxChunks {
		return h, fmt.Errorf("the head of version %d is malformed", h.version)
	}
	return h, nil
}

// errIncomplete is returned for a text without all of its chunks. A lost chunk arrives with the next
// comparison of the published values of two nodes.
var errIncomplete = errors.New("not all chunks of the text have arrived")

// join returns the text of the chunks, whose names begin with h.prefix().
func (h *textHead) join(chunks []weir.Published) (text []byte, err error) {
	var all []byte
	for i := range h.Chunks {
		if i >= len(chunks) || chunks[i].Name != h.chunkName(i) {
			return nil, errIncomplete
		}
		all = append(all, chunks[i].Value...)
	}
	text, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(all)), int64(h.Size)+1))
	if err != nil || len(text) != h.Size || fullHashOf(text) != h.Hash {
		return nil, fmt.Errorf("the chunks of version %d do not have the hash of its head: publish a text with a higher version", h.version)
	}
	return text, nil
}

// parse returns the Set of the chunks.
func (h *textHead) parse(chunks []weir.Published) (*Set, error) {
	text, err := h.join(chunks)
	if err != nil {
		return nil, err
	}
	set, err := Parse("published", text)
	if err == nil && set.version != h.version {
		err = fmt.Errorf("the head of the text has version %d, and the text has version %d", h.version, set.version)
	}
	return set, err
}
