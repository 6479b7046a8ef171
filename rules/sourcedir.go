package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/strictyaml"
)

const readings = 3 // maximum number of readings of a directory whose files change meanwhile

// newDirSource returns a source of the fragments in a directory.
func newDirSource(path string, every time.Duration, log *slog.Logger) *fileSource {
	s := newFileSource(path, every, log)
	s.dir, s.readText = path, readDir
	s.isRelevant = func(name string) bool { return isFragment(name) || strings.HasPrefix(name, "..") }
	return s
}

// isFragment reports whether a file of a directory is a fragment. Editors and file systems have hidden files.
func isFragment(name string) bool {
	return strings.HasSuffix(name, ".yaml") && !strings.HasPrefix(name, ".")
}

// readDir returns the text of the fragments in a directory, in the order of their names. It reads the directory
// again if a file disappears meanwhile.
func readDir(path string) (text []byte, err error) {
	for range readings {
		if text, err = readFragments(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return text, err
}

// readFragments reads the fragments of a directory. All files of one version of a ConfigMap are in the directory
// to which the symlink ..data leads. If there is such a symlink, readFragments reads the files in that directory.
func readFragments(path string) ([]byte, error) {
	dir := path
	if version, err := filepath.EvalSymlinks(filepath.Join(path, "..data")); err == nil {
		dir = version
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []fragment
	for size, e := 0, 0; e < len(entries) && size <= strictyaml.MaxBytes; e++ {
		name := entries[e].Name()
		switch {
		case !isFragment(name):
			continue
		case !isFragmentName(name):
			return nil, fmt.Errorf("rules: %s has the file %q: use names without control characters", path, name)
		case len(all) == maxFragments:
			return nil, fmt.Errorf("rules: %s has more than %d files *.yaml: join some of them", path, maxFragments)
		}
		text, err := readFile(filepath.Join(dir, name), 0)
		if err != nil {
			return nil, err
		}
		all, size = append(all, fragment{name, text}), size+len(text)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("rules: %s has no file *.yaml: add one (%w)", path, fs.ErrNotExist)
	}
	return joinFragments(all), nil
}
