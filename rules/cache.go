package rules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The cache of a Book is a file with the last text of its source that was in force, after a line of
// cacheMark and a cacheHeader. The line is a comment for Parse.
const cacheMark = "# weir rules cache "

// cacheHeader describes the text of a cache.
type cacheHeader struct {
	Source string `json:"source"`
	Hash   string `json:"sha256"`
}

const maxCacheHeader = 4096

// startFromCache puts the text of the cache in force.
func (b *Book) startFromCache(path string) error {
	text, err := b.readCache(path)
	if err != nil {
		return err
	}
	set, err := Parse(path, text)
	if err == nil {
		err = b.enforce(set)
	}
	if err == nil {
		b.accepted = hashOf(text)
	}
	return err
}

// readCache returns the text of the cache. A cache that is damaged, or of another source, is refused.
func (b *Book) readCache(path string) ([]byte, error) {
	file, err := readFile(path, maxCacheHeader)
	if err != nil {
		return nil, err
	}
	first, text, _ := bytes.Cut(file, []byte("\n"))
	rest, is := bytes.CutPrefix(first, []byte(cacheMark))
	var h cacheHeader
	if !is || json.Unmarshal(rest, &h) != nil || h.Hash != fullHashOf(text) {
		return nil, fmt.Errorf("rules: the cache %s is damaged: remove it", path)
	}
	if h.Source != b.stats.Source {
		return nil, fmt.Errorf("rules: the cache %s has rules of %s: give each source its own file", path, h.Source)
	}
	return text, nil
}

// writeCache replaces the text of the cache. It logs an error.
func (b *Book) writeCache(text []byte) {
	if b.cache == "" {
		return
	}
	header, _ := json.Marshal(cacheHeader{b.stats.Source, fullHashOf(text)})
	file := append(append([]byte(cacheMark), header...), '\n')
	if err := writeFile(b.cache, append(file, text...)); err != nil {
		b.log.Error("cannot keep the rules in their cache: a start without the source fails", "path", b.cache, "error", err)
	}
}

// writeFile replaces a file, which only its owner can then read, in one step.
func writeFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

func fullHashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
