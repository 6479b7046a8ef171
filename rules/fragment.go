package rules

import (
	"bytes"
	"errors"

	"github.com/weir-go/weir/internal/strictyaml"
)

// fragment is a file of a directory. Together, the fragments of a directory are a rules file: its text has
// each of them after a line with its name.
type fragment struct {
	name string // without a line break
	text []byte
}

const fragmentMark = "--- # fragment "

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

// splitFragments returns the fragments of a text, or nil for another text.
func splitFragments(text []byte) (all []fragment) {
	rest, is := bytes.CutPrefix(text, []byte(fragmentMark))
	for is {
		name, of, _ := bytes.Cut(rest, []byte("\n"))
		of, rest, is = bytes.Cut(of, []byte("\n"+fragmentMark))
		if is {
			of = of[:len(of)+1] // with its last line break
		}
		all = append(all, fragment{string(name), of})
	}
	return all
}

// readFields reads the fields of a text, which may have fragments. The fields of all fragments are in the
// File. Each fragment must have only fields of a rules file, because it may be a link to any file.
func readFields(name string, text []byte) (*strictyaml.File, error) {
	fragments := splitFragments(text)
	if fragments == nil || len(text) > strictyaml.MaxBytes {
		file, err := strictyaml.Parse(name, text)
		return file, withoutContent(err, text)
	}
	var files []*strictyaml.File
	var errs []error
	for _, f := range fragments {
		file, err := strictyaml.Parse(name+"/"+f.name, f.text)
		if err != nil {
			errs = append(errs, withoutContent(err, f.text))
			continue
		}
		file.Root().Entries() // reports an error if it is not a map
		isForeign(file.Root(), false)
		errs = append(errs, file.Err())
		files = append(files, file)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return strictyaml.Merge(name, files, joined...), nil
}
