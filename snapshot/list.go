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

// Entry is one snapshot in a directory, or in another store that lists its snapshots.
type Entry struct {
	Node       string
	Generation uint64 // counts the snapshots of the node, from 1
	Path       string // of its file, or what the store calls it
	Bytes      int64
	Modified   time.Time
	// Mode has the type of what is there: 0 of a regular file, and in another store. Nothing but
	// a regular file is a snapshot, so the others can be neither read nor replaced.
	Mode fs.FileMode
}

// List returns the snapshots in the directory of a [Dir], by node and the newest first, and what
// has the name of one. It leaves out other files. It needs no Dir, so a process may list a
// directory that another process has open.
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
			continue // replaced since it was listed
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

// A snapshot's file is named NODE.GENERATION.snapshot, and while it is written NODE.writing.
// NODE begins with "weir-", so that no name of a node is one that a file system reserves.
const (
	prefix          = "weir-"
	suffix          = ".snapshot"
	temporarySuffix = ".writing"
	// maxEscaped keeps the longest file name within 255 bytes.
	maxEscaped = 216
	// maxGenerationBits keeps the generation after the highest one within 64 bits.
	maxGenerationBits = 62
)

// plain are the bytes of file names that are not escaped. Some file systems do not distinguish A to Z
// from a to z.
const plain = "abcdefghijklmnopqrstuvwxyz0123456789-_."

// escape returns a node's name as the beginning of file names. Bytes other than plain
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

// unescape reverses escape. It reports false for what escape does not write.
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

// parseFileName reverses fileName. It reports false for what fileName does not write.
func parseFileName(name string) (node string, generation uint64, ok bool) {
	dot := strings.LastIndexByte(strings.TrimSuffix(name, suffix), '.')
	if dot < 0 {
		return "", 0, false
	}
	node, ok = unescape(name[:dot])
	generation, err := strconv.ParseUint(strings.TrimSuffix(name[dot+1:], suffix), 10, maxGenerationBits)
	return node, generation, ok && err == nil && name == fileName(name[:dot], generation)
}
