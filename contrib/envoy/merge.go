package envoylimit

import (
	"errors"
	"fmt"

	"github.com/weir-go/weir/internal/strictyaml"
)

// part is a top-level descriptor of a domain, with its position for errors.
type part struct {
	descriptor *descriptor
	at         *strictyaml.Error // position of the descriptor in the file, without a message
}

// mergeDomains merges the domains of the same name, in the given order. The caller must not
// use the Config if there is an error.
func mergeDomains(domains []*domain) (*Config, error) {
	all := &Config{domains: make(map[string]*domain)}
	first := make(map[*domain]map[entry]part) // by key and value
	var errs []error
	for _, d := range domains {
		into := all.domains[d.name]
		if into == nil {
			into = &domain{name: d.name, top: newLevel(), file: d.file, line: d.line, column: d.column}
			all.domains[d.name], first[into] = into, make(map[entry]part)
		}
		into.limits, into.replaces = append(into.limits, d.limits...), append(into.replaces, d.replaces...)
		for _, p := range d.parts {
			of := entry{p.descriptor.key, p.descriptor.value}
			if held, twice := first[into][of]; twice {
				errs = append(errs, withMessage(p.at, fmt.Sprintf("a descriptor with this key and value is in %s, too: write it once", held.at.File)))
				continue
			}
			first[into][of] = p
			into.top.add(p.descriptor)
			into.parts = append(into.parts, p)
		}
	}
	return all, errors.Join(errs...)
}

func withMessage(at *strictyaml.Error, message string) error {
	return strictyaml.NewError(at.File, at.Line, at.Column, message)
}
