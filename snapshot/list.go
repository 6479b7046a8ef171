package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Entry is a snapshot in a directory, or in another Store that lists snapshots.
type Entry struct {
	Node       string
	Generation uint64 // number of the snapshot of this node, from 1
	Path       string // path of the file, or the name in another Store
	Bytes      int64
	Modified   time.Time
	// Mode is the type of the file. It is 0 for a regular file, and in another Store. Only
	// a regular file is a snapshot: Load does not read other files, and Save does not replace
	// or remove them.
	Mode fs.FileMode
}

// List returns the entries of the directory of a [Dir] that have the name of a snapshot, sorted
// by node, the newest of a node first. Entries that are not regular files are included (see
// Entry.Mode). List needs no Dir, so that a process can list a directory that another
// process has opened.
func List(path string) (entries []Entry, err error) {
	files, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	for _, f := range files {
		node, generation, ours := parseFileName(f.Name())
		if !ours {
			continue
		}
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // replaced since ReadDir
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		entries = append(entries, Entry{Node: node, Generation: generation, Path: filepath.Join(path, f.Name()), Bytes: info.Size(), Modified: info.ModTime(), Mode: info.Mode().Type()})
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(b.Generation, a.Generation))
	})
	return entries, nil
}

// The name of a snapshot's file is NODE.GENERATION.snapshot, and NODE.writing while the file is
// written. NODE begins with "weir-", so that no file has a name that a file system reserves.
const (
	prefix          = "weir-"
	suffix          = ".snapshot"
	temporarySuffix = ".writing"
	// maxEscaped keeps the longest file name within 255 bytes.
	maxEscaped = 216
	// maxGenerationBits keeps the generation after the highest generation within 64 bits.
	maxGenerationBits = 62
)

// plain has the bytes of file names that are not escaped. It lacks A to Z, because some file systems do
// not distinguish them from a to z.
const plain = "abcdefghijklmnopqrstuvwxyz0123456789-_."

// escape returns the name of a node as the beginning of file names. Bytes that are not in plain
// are written as % and two hexadecimal digits.
func escape(node string) (string, error) {
	var b strings.Builder
	for i := range len(node) {
		if c := node[i]; strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	if b.Len() > maxEscaped {
		return "", fmt.Errorf("snapshot: the node's name has %d bytes, and %d as a file name: use at most 72 bytes", len(node), b.Len())
	}
	return prefix + b.String(), nil
}

// unescape reverses escape. ok is false for a text that escape does not return.
func unescape(name string) (node string, ok bool) {
	text, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return "", false
	}
	node, err := url.PathUnescape(text)
	if err != nil {
		return "", false
	}
	written, err := escape(node)
	return node, err == nil && written == name
}

func fileName(escaped string, generation uint64) string {
	return escaped + "." + strconv.FormatUint(generation, 10) + suffix
}

// parseFileName reverses fileName. ok is false for a text that fileName does not return.
func parseFileName(name string) (node string, generation uint64, ok bool) {
	dot := strings.LastIndexByte(strings.TrimSuffix(name, suffix), '.')
	if dot < 0 {
		return "", 0, false
	}
	node, ok = unescape(name[:dot])
	generation, err := strconv.ParseUint(strings.TrimSuffix(name[dot+1:], suffix), 10, maxGenerationBits)
	return node, generation, ok && err == nil && name == fileName(name[:dot], generation)
}
