package envoylimit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-go/weir/internal/strictyaml"
)

// Load reads a file, or all files of a directory whose names end in .yaml or .yml and do
// not begin with a dot. Each file has a single domain. In a directory on which a
// ConfigMap is mounted, these files are links.
func Load(path string) (*Config, error) { return loadFiles(path, parseFiles) }

// LoadMerged is like Load, but several files may have descriptors of the same domain, as
// in envoyproxy/ratelimit with MERGE_DOMAIN_CONFIG. The files are read like a single
// file, in the order of their names. If two files have a top-level descriptor with the same
// key and value, this is an error.
func LoadMerged(path string) (*Config, error) { return loadFiles(path, parseMerged) }

func loadFiles(path string, parse func([]file) (*Config, error)) (*Config, error) {
	files, err := readFiles(path)
	if err != nil {
		return nil, err
	}
	return parse(files)
}

// file is a file of a configuration.
type file struct{ path, text string }

// readFiles reads the files of a path, as Load describes.
func readFiles(path string) (files []file, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	paths := []string{path}
	if info.IsDir() {
		if paths, err = pathsIn(path); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, path := range paths {
		text, err := readFile(path)
		files, errs = append(files, file{path, text}), append(errs, err)
	}
	return files, errors.Join(errs...)
}

// pathsIn returns the paths of the files in a directory, in the order of their names.
func pathsIn(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && (ext == ".yaml" || ext == ".yml") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no file in %s has a name that ends in .yaml or .yml: %w", dir, fs.ErrNotExist)
	}
	return paths, nil
}

// readFile reads a regular file. It returns an error for any other file, such as a pipe,
// because reading might never end.
func readFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s has the file type %s: use a regular file, or a link to one", path, info.Mode().Type())
	}
	if info.Size() > strictyaml.MaxBytes {
		return "", fmt.Errorf("%s has %d bytes: at most %d are read", path, info.Size(), strictyaml.MaxBytes)
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

// parseFiles parses files that have a domain each.
func parseFiles(files []file) (*Config, error) {
	domains, err := parseEach(files, false)
	if err != nil {
		return nil, err
	}
	var configs []*Config
	for _, d := range domains {
		configs = append(configs, &Config{domains: map[string]*domain{d.name: d}})
	}
	return Merge(configs...)
}

// parseMerged parses files, several of which may have descriptors of the same domain.
func parseMerged(files []file) (*Config, error) {
	domains, err := parseEach(files, true)
	if err != nil {
		return nil, err
	}
	all, err := mergeDomains(domains)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range all.Domains() {
		d := all.domains[name]
		d.unreplaced(func(i int, why string) { errs = append(errs, withMessage(d.replaces[i].at, why)) })
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

// parseEach parses the domain of each file. If the argument parts is set, a file may contain
// a part of a domain. The caller must not use the domains if there is an error.
func parseEach(files []file, parts bool) (domains []*domain, err error) {
	var errs []error
	for _, f := range files {
		d, err := parse(f.path, []byte(f.text), parts)
		domains, errs = append(domains, d), append(errs, err)
	}
	return domains, errors.Join(errs...)
}
