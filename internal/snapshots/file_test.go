package snapshots

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/epoch"
)

var (
	first, second = []byte("a secret of sixteen bytes or more"), []byte("the one that replaces it")
	keys          = NewKeys([][]byte{first})
	header        = Header{Cluster: [16]byte{1, 2, 3}, Node: "node-1", Saved: time.UnixMilli(1_800_000_000_123).UTC(), Build: "v1.2.3", Run: epoch.State{
		Moment: epoch.Moment{Epoch: 1 << 63, Age: 5e12}, Relations: []epoch.Relation{{Epoch: 7, Offset: -3e12, Stopped: true}},
	}}
)

type block struct {
	kind  Kind
	bytes []byte
}

// random returns random blocks of the given sizes.
func random(sizes ...int) (blocks []block) {
	from := rand.NewChaCha8([32]byte{byte(len(sizes))})
	for i, size := range sizes {
		b := make([]byte, size)
		_, _ = from.Read(b)
		blocks = append(blocks, block{Kind(1 + i%3), b})
	}
	return blocks
}

func file(t testing.TB, keys Keys, blocks []block) []byte {
	var b bytes.Buffer
	w, err := NewWriter(&b, keys, header)
	require.NoError(t, err)
	for _, of := range blocks {
		require.NoError(t, w.Block(of.kind, of.bytes))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// read returns the blocks until the first error of Next. The error is nil at the end of
// the file.
func read(from io.Reader, keys Keys) (blocks []block, err error) {
	r, err := NewReader(from, keys)
	if err != nil {
		return nil, err
	}
	for {
		kind, b, err := r.Next()
		if err != nil {
			if kind, b, again := r.Next(); again != err || kind != 0 || b != nil {
				return nil, errors.New("another error at the second call")
			}
			if err == io.EOF {
				err = nil
			}
			return blocks, err
		}
		blocks = append(blocks, block{kind, bytes.Clone(b)})
	}
}

func TestReaderReturnsWrittenBlocks(t *testing.T) {
	for name, sizes := range map[string][]int{
		"nothing":                         {},
		"an empty block":                  {0},
		"small blocks":                    {1, 0, 2, 100, 0},
		"the largest blocks":              {MaxBlock, 0, MaxBlock, MaxBlock},
		"a full chunk":                    {chunkBytes - blockBytes},
		"a full chunk and a byte":         {chunkBytes - blockBytes + 1},
		"two full chunks":                 {chunkBytes - blockBytes, chunkBytes - blockBytes},
		"a kind at a chunk's end":         {chunkBytes - blockBytes - 1, 7, 9},
		"a length in two chunks":          {chunkBytes - blockBytes - 3, 7, 9},
		"bytes in the next chunk":         {chunkBytes - 2*blockBytes, 7, 9},
		"an empty block at a chunk's end": {chunkBytes - 2*blockBytes, 0, 9},
		"many small blocks":               slices.Repeat([]int{333}, 3000),
	} {
		for which, keys := range map[string]Keys{"sealed": keys, "open": {}} {
			t.Run(name+", "+which, func(t *testing.T) {
				blocks := random(sizes...)
				b := file(t, keys, blocks)
				for _, from := range []io.Reader{bytes.NewReader(b), iotest.DataErrReader(bytes.NewReader(b)), iotest.HalfReader(bytes.NewReader(b))} {
					got, err := read(from, keys)
					require.NoError(t, err)
					require.Len(t, got, len(blocks))
					for i := range blocks {
						require.Equal(t, blocks[i].kind, got[i].kind)
						require.True(t, bytes.Equal(blocks[i].bytes, got[i].bytes), i)
					}
				}
			})
		}
	}
}

func TestHeaderIsReadWithAndWithoutKeys(t *testing.T) {
	for sealed, keys := range map[bool]Keys{true: keys, false: NewKeys([][]byte{nil, {}})} {
		want := header
		want.Version, want.Sealed = version, sealed
		b := file(t, keys, random(10))
		got, err := ReadHeader(bytes.NewReader(b))
		require.NoError(t, err)
		require.Equal(t, want, got)
		r, err := NewReader(bytes.NewReader(b), keys)
		require.NoError(t, err)
		require.Equal(t, want, r.Header())
	}
	_, err := NewWriter(io.Discard, keys, Header{Node: strings.Repeat("x", 256)})
	require.ErrorContains(t, err, "node name has 256 bytes")
	_, err = NewWriter(io.Discard, keys, Header{Node: strings.Repeat("x", 255), Build: strings.Repeat("y", 255)})
	require.NoError(t, err)
}

func TestSealedFileHidesItsBlocks(t *testing.T) {
	text := bytes.Repeat([]byte("what is in it"), 100)
	one := file(t, keys, []block{{Counts, text}})
	require.NotContains(t, string(one), "what is in it")
	require.NotContains(t, string(one[:200]), string(first))
	require.NotEqual(t, one, file(t, keys, []block{{Counts, text}}), "no two files have one key")
}

func TestFileOpensOnlyWithItsKey(t *testing.T) {
	blocks := random(10, 20)
	sealed, open := file(t, keys, blocks), file(t, Keys{}, blocks)
	later := bytes.Clone(sealed)
	later[len(magic)] = version + 1
	for name, c := range map[string]struct {
		file []byte
		keys Keys
		want error
	}{
		"its secret":          {sealed, NewKeys([][]byte{first}), nil},
		"during rotation":     {sealed, NewKeys([][]byte{second, nil, first}), nil},
		"open, as it is":      {open, NewKeys(nil), nil},
		"another secret":      {sealed, NewKeys([][]byte{second}), ErrOtherSecret},
		"no secret":           {sealed, NewKeys(nil), ErrNoSecret},
		"open, and secrets":   {open, keys, ErrOpen},
		"an empty file":       {nil, keys, ErrNotSnapshot},
		"the magic alone":     {sealed[:len(magic)], keys, ErrNotSnapshot},
		"another file":        {[]byte(strings.Repeat("another file\n", 100)), keys, ErrNotSnapshot},
		"a later format":      {later, keys, ErrLaterVersion},
		"a later format, cut": {later[:len(magic)+1], keys, ErrLaterVersion},
		"cut in its header":   {sealed[:fixedBytes-1], keys, ErrDamaged},
		"cut in its name":     {sealed[:fixedBytes+2], keys, ErrDamaged},
	} {
		got, err := read(bytes.NewReader(c.file), c.keys)
		if c.want == nil {
			require.NoError(t, err, name)
			require.Equal(t, blocks, got, name)
			continue
		}
		require.ErrorIs(t, err, c.want, name)
		require.Nil(t, got, name)
	}
}

// requireRefused requires that a damaged file is refused, and that the blocks before the
// damage are unchanged.
func requireRefused(t *testing.T, b []byte, keys Keys, blocks []block, format string, args ...any) {
	got, err := read(bytes.NewReader(b), keys)
	if err == nil {
		t.Fatalf(format+" is read", args...)
	}
	if len(got) > len(blocks) {
		t.Fatalf(format+" gives more blocks", args...)
	}
	for i := range got {
		if got[i].kind != blocks[i].kind || !bytes.Equal(got[i].bytes, blocks[i].bytes) {
			t.Fatalf(format+" gives another block %d", append(args, i)...)
		}
	}
}

func TestFlippedOrCutFileIsRefused(t *testing.T) {
	for name, keys := range map[string]Keys{"sealed": keys, "open": {}} {
		blocks := random(10, 0, 200)
		b := file(t, keys, blocks)
		for i := range b {
			requireRefused(t, b[:i], keys, blocks, "%s, cut to %d,", name, i)
			for bit := range 8 {
				b[i] ^= 1 << bit
				requireRefused(t, b, keys, blocks, "%s, bit %d of byte %d flipped,", name, bit, i)
				b[i] ^= 1 << bit
			}
		}
		requireRefused(t, append(b, 0), keys, blocks, "%s, a byte longer,", name)
		requireRefused(t, append(b, b...), keys, blocks, "%s, twice,", name)
		_, err := read(bytes.NewReader(b), keys)
		require.NoError(t, err)
	}
}

func TestMovedChunkIsRefused(t *testing.T) {
	const full = chunkBytes + tagBytes
	// Each block fills a chunk, so chunks in any order contain valid blocks, and only the
	// nonce reveals the order.
	blocks := random(slices.Repeat([]int{chunkBytes - blockBytes}, 6)...)
	one, other := file(t, keys, blocks), file(t, keys, blocks)
	head := len(one) - 6*full
	chunk := func(b []byte, i int) []byte { return b[head+i*full : head+(i+1)*full] }
	for name, change := range map[string]func(b []byte) []byte{
		"two chunks are swapped":        func(b []byte) []byte { copy(chunk(b, 1), chunk(one, 2)); copy(chunk(b, 2), chunk(one, 1)); return b },
		"a chunk is repeated":           func(b []byte) []byte { return bytes.Join([][]byte{b[:head+full], b[head:]}, nil) },
		"a chunk is left out":           func(b []byte) []byte { return append(b[:head+full], one[head+2*full:]...) },
		"a chunk is of another file":    func(b []byte) []byte { copy(chunk(b, 1), chunk(other, 1)); return b },
		"the header is of another file": func(b []byte) []byte { copy(b[:head], other[:head]); return b },
		"the last chunk is missing":     func(b []byte) []byte { return b[:len(b)-full] },
		"no chunk is left":              func(b []byte) []byte { return b[:head] },
	} {
		requireRefused(t, change(bytes.Clone(one)), keys, blocks, "a file in which %s", name)
	}
}

func TestDamageErrorHasPosition(t *testing.T) {
	b := file(t, keys, random(slices.Repeat([]int{9_999}, 40)...))
	r, err := NewReader(bytes.NewReader(b), keys)
	require.NoError(t, err)
	head := len(r.raw.bytes)
	first, chunk := head+tagBytes, chunkBytes+tagBytes
	for at, want := range map[int]string{
		20:                    "not among Secrets", // the salt is damaged, so no key has the id
		50:                    fmt.Sprintf("the header of %d bytes", head),
		first + 12:            fmt.Sprintf("the chunk of %d bytes from byte %d on", chunk, first),
		first + 2*chunk + 123: fmt.Sprintf("the chunk of %d bytes from byte %d on", chunk, first+2*chunk),
		len(b) - 1:            fmt.Sprintf("bytes from byte %d on", first+6*chunk),
	} {
		b[at] ^= 1
		_, err := read(bytes.NewReader(b), keys)
		require.ErrorContains(t, err, want)
		b[at] ^= 1
	}
}

// An authentic block without a valid meaning was written by a faulty version of Weir, or
// by anyone in an open file.
func TestInvalidBlocksAreRefused(t *testing.T) {
	for name, text := range map[string][]byte{
		"kind 0":                  {0, 0, 0, 0, 0},
		"a size too large":        {1, 1, 0, 0x10, 0},
		"a byte too large":        append([]byte{1, 1, 0, 0x10, 0}, make([]byte, MaxBlock+1)...),
		"the largest size":        {1, 0xff, 0xff, 0xff, 0xff},
		"a size that is cut":      {1, 0},
		"a block that ends early": {1, 9, 0, 0, 0, 'x'},
	} {
		var b bytes.Buffer
		w, err := NewWriter(&b, Keys{}, header)
		require.NoError(t, err)
		w.add(text)
		require.NoError(t, w.Close())
		got, err := read(&b, Keys{})
		require.ErrorIs(t, err, ErrDamaged, name)
		require.Empty(t, got, name)
	}
}

func TestWriterRefusesUnreadableBlocks(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, keys, header)
	require.NoError(t, err)
	require.ErrorContains(t, w.Block(0, nil), "kind 0")
	require.ErrorContains(t, w.Block(Counts, make([]byte, MaxBlock+1)), "1048577 bytes: write at most 1048576")
	require.NoError(t, w.Block(Counts, []byte("x")), "the file is still valid")
	require.NoError(t, w.Close())
	require.Error(t, w.Close())
	require.Error(t, w.Block(Counts, nil))
	got, err := read(&b, keys)
	require.NoError(t, err)
	require.Equal(t, []block{{Counts, []byte("x")}}, got)
}

func TestDiskErrorsAreReturned(t *testing.T) {
	full := errors.New("disk full")
	for left := range 6 {
		w, err := NewWriter(failing{&left, full}, keys, header)
		for range 4 {
			if err == nil {
				err = w.Block(Counts, make([]byte, chunkBytes))
			}
		}
		if err == nil {
			err = w.Close()
		}
		require.ErrorIs(t, err, full)
		if w != nil {
			require.ErrorIs(t, w.Block(Counts, nil), full)
			require.ErrorIs(t, w.Close(), full)
		}
	}
	b := file(t, keys, random(slices.Repeat([]int{9_999}, 20)...))
	for _, n := range []int{0, 30, 60, 80, 100, 100_000, len(b)} {
		got, err := read(io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(full)), keys)
		require.ErrorIs(t, err, full, n)
		require.NotErrorIs(t, err, ErrDamaged, n)
		require.LessOrEqual(t, len(got), 20)
	}
}

// failing accepts a number of writes, and then returns an error.
type failing struct {
	left *int
	err  error
}

func (f failing) Write(p []byte) (int, error) {
	if *f.left == 0 {
		return 0, f.err
	}
	*f.left--
	return len(p), nil
}

// A snapshot of millions of counts needs no more memory than a snapshot of a few counts.
func TestBlocksAllocateNothing(t *testing.T) {
	var b bytes.Buffer
	b.Grow(32 << 20)
	w, err := NewWriter(&b, keys, header)
	require.NoError(t, err)
	text := make([]byte, 100_000)
	require.Zero(t, testing.AllocsPerRun(200, func() { err = errors.Join(err, w.Block(Counts, text)) }))
	require.NoError(t, errors.Join(err, w.Close()))
	r, err := NewReader(&b, keys)
	require.NoError(t, err)
	_, _, err = r.Next() // allocates a block of this size
	require.Zero(t, testing.AllocsPerRun(190, func() { _, _, next := r.Next(); err = errors.Join(err, next) }))
	require.NoError(t, err)
}

func TestKindsHaveNames(t *testing.T) {
	require.Equal(t, "counts values kind 9", fmt.Sprint(Counts, " ", Values, " ", Kind(9)))
}

func FuzzReader(f *testing.F) {
	blocks := random(10, 0, 200, chunkBytes)
	sealed, open := file(f, keys, blocks), file(f, Keys{}, blocks)
	for _, b := range [][]byte{sealed, open, sealed[:100], open[:len(open)-1], []byte(magic), nil} {
		f.Add(b, []byte(nil))
	}
	f.Add(open, []byte{1, 9, 0, 0, 0, 'x'})
	f.Fuzz(func(t *testing.T, b, text []byte) {
		if got, err := read(bytes.NewReader(b), keys); err == nil {
			require.Equal(t, blocks, got, "only the original files are valid")
		}
		_, _ = read(bytes.NewReader(b), Keys{})
		_, _ = ReadHeader(bytes.NewReader(b))

		// The blocks of an open file can be written by anyone.
		var made bytes.Buffer
		w, err := NewWriter(&made, Keys{}, header)
		require.NoError(t, err)
		w.add(text)
		require.NoError(t, w.Close())
		got, err := read(&made, Keys{})
		for _, of := range got {
			require.LessOrEqual(t, len(of.bytes), MaxBlock)
		}
		if err == nil {
			require.Len(t, text, sizeOf(got))
		} else {
			require.ErrorIs(t, err, ErrDamaged)
		}
	})
}

func sizeOf(blocks []block) (n int) {
	for _, of := range blocks {
		n += blockBytes + len(of.bytes)
	}
	return n
}
