package rules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// The cache of a Book is a file with the last text of its source that was in force. The first line of the file
// has cacheMark and a cacheHeader, and is a comment for Parse. Beside the cache, a file whose name ends with
// publishedSuffix has the last published text that was in force.
//
// At the start, the text of the source replaces the text of the cache only under the rules for any later text,
// so it must not have a lower version. Otherwise a stale replica of the source would lower the version on each
// node that restarts, and replace the cache. The cache has the name of the source, because the versions of
// another source are independent.
const (
	cacheMark       = "# weir rules cache "
	publishedSuffix = ".published"
)

// cacheHeader describes the text of a cache.
type cacheHeader struct {
	Source string `json:"source"`
	Hash   string `json:"sha256"`

	// These fields are zero for a text of the source.
	Control
	Version uint64 `json:"version,omitempty"` // version of the rules
	Values  uint64 `json:"values,omitempty"`  // version of the published values
}

const maxCacheHeader = 4096

// startFromCache puts the text of the cache in force.
func (b *Book) startFromCache() error {
	_, text, err := b.readCache(b.cache)
	if err != nil {
		return err
	}
	set, err := Parse(b.cache, text)
	if err == nil {
		err = b.enforce(set)
	}
	if err == nil {
		b.accepted = hashOf(text)
	}
	return err
}

// readCache returns the text of a cache. A cache that is damaged, or of another source, is refused.
func (b *Book) readCache(path string) (h cacheHeader, text []byte, err error) {
	file, err := readFile(path, maxCacheHeader)
	if err != nil {
		return h, nil, err
	}
	first, text, _ := bytes.Cut(file, []byte("\n"))
	rest, is := bytes.CutPrefix(first, []byte(cacheMark))
	if !is || json.Unmarshal(rest, &h) != nil || h.Hash != fullHashOf(text) {
		return h, nil, fmt.Errorf("rules: the cache %s is damaged: remove it", path)
	}
	if h.Source != b.stats.Source {
		return h, nil, fmt.Errorf("rules: the cache %s has rules of %s: give each source its own file", path, h.Source)
	}
	return h, text, nil
}

// writeCache replaces the text of a cache, and logs an error.
func (b *Book) writeCache(path string, h cacheHeader, text []byte) {
	if b.cache == "" {
		return
	}
	h.Source, h.Hash = b.stats.Source, fullHashOf(text)
	header, _ := json.Marshal(h)
	file := append(append([]byte(cacheMark), header...), '\n')
	if err := writeFile(path, append(file, text...)); err != nil {
		b.log.Error("cannot keep the rules in their cache: a start without the source fails", "path", path, "error", err)
	}
}

// writeFile replaces a file in one step. Only the owner can read the new file. Each Book has its own cache, so no
// other writer uses the file path.new, which an interrupted writer may have left.
func writeFile(path string, text []byte) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(next))
	}
	return err
}

func fullHashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
