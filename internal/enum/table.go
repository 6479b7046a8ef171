// Package enum names the values of enumerations. A type has a Table, which its String, MarshalText
// and UnmarshalText use. So rules files, scenario files, the admin API, metrics and logs spell a
// value alike, and an error about a wrong spelling suggests the right spelling.
package enum

import (
	"fmt"
	"slices"
	"strings"
)

// Table has the names of the values of T.
type Table[T ~uint8] struct {
	What  string   // the kind of the values, like "algorithm"
	Names []string // in the order of the values, from zero
}

// String returns the name of value, or a text with the number of a value without a name.
func (t *Table[T]) String(value T) string {
	if int(value) < len(t.Names) {
		return t.Names[value]
	}
	return fmt.Sprintf("%s(%d)", strings.ReplaceAll(t.What, " ", "_"), uint8(value))
}

// MarshalText returns the name of value, or an error for a value without a name.
func (t *Table[T]) MarshalText(value T) ([]byte, error) {
	if int(value) < len(t.Names) {
		return []byte(t.Names[value]), nil
	}
	return nil, fmt.Errorf("%s %d has no name", t.What, uint8(value))
}

// UnmarshalText sets value by its name. The error for an unknown name suggests the valid names, and
// value is then unchanged.
func (t *Table[T]) UnmarshalText(value *T, name []byte) error {
	i := slices.Index(t.Names, string(name))
	if i < 0 {
		return fmt.Errorf("unknown %s %q: %s", t.What, name, Suggest(string(name), t.Names))
	}
	*value = T(i)
	return nil
}
