package rules

import (
	"bytes"
	"strings"
	"unicode"

	"github.com/weir-go/weir/internal/strictyaml"
)

// fragment is a file of a directory. Together, the fragments of a directory are a rules file, whose text has
// a line with the name of each fragment before the fragment. A merge as YAML would lose the line numbers. Only one
// fragment has a version: if several had one and the highest counted, a fragment could change without a higher
// version of the whole.
type fragment struct {
	name string // without a line break
	text []byte
}

const (
	fragmentMark    = "--- # fragment "
	maxFragments    = 1000
	maxFragmentName = 1024
)

// joined lists the fields that several fragments may have.
var joined = []string{"$schema", "rules", "deny"}

// joinFragments returns the text of fragments.
func joinFragments(all []fragment) (text []byte) {
	for _, f := range all {
		text = append(text, fragmentMark+f.name+"\n"...)
		text = append(text, f.text...)
		if !bytes.HasSuffix(text, []byte("\n")) {
			text = append(text, '\n')
		}
	}
	return text
}

// isFragmentName reports whether a name can be shown in each error.
func isFragmentName(name string) bool {
	return len(name) <= maxFragmentName && !strings.ContainsFunc(name, unicode.IsControl)
}

// splitFragments returns the fragments of a text, or nil for a text that joinFragments has not made.
func splitFragments(text []byte) (all []fragment) {
	rest, is := bytes.CutPrefix(text, []byte(fragmentMark))
	for is {
		name, of, _ := bytes.Cut(rest, []byte("\n"))
		if !isFragmentName(string(name)) || len(all) == maxFragments {
			return nil
		}
		of, rest, is = bytes.Cut(of, []byte("\n"+fragmentMark))
		if is {
			of = of[:len(of)+1] // with its last line break
		}
		all = append(all, fragment{string(name), of})
	}
	return all
}

// readFields reads the fields of a text, which may have fragments. The result has the fields of all fragments.
// A fragment with fields that no rules file has is refused, because it may be a link to any file.
func readFields(name string, text []byte) (*strictyaml.File, error) {
	fragments := splitFragments(text)
	if fragments == nil || len(text) > strictyaml.MaxBytes {
		file, err := strictyaml.Parse(name, text)
		return file, withoutContent(err, text)
	}
	var files []*strictyaml.File
	for _, f := range fragments {
		file, err := strictyaml.Parse(name+"/"+f.name, f.text)
		if err != nil {
			return nil, withoutContent(err, f.text)
		}
		file.Root().Entries() // reports an error if it is not a map
		isForeign(file.Root(), false)
		if err := file.Err(); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return strictyaml.Merge(name, files, joined...), nil
}
