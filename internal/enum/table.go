// Package enum names the values of enumerations. A type has a Table, which its String, MarshalText
// and UnmarshalText use. So rules files, scenario files, the admin API, metrics and logs spell a
// value alike, and an error about a wrong spelling suggests the right spelling.
package enum

import (
	"fmt"
	"slices"
	"strings"
)

// Table has the names of a T's values.
type Table[T ~uint8] struct {
	What  string   // they are the names of, like "algorithm"
	Names []string // in the order of the values, from zero
}

// String returns the name of value, or its number where it has none.
func (t *Table[T]) String(value T) string {
	if int(value) < len(t.Names) {
		return t.Names[value]
	}
	return fmt.Sprintf("%s(%d)", strings.ReplaceAll(t.What, " ", "_"), uint8(value))
}

// MarshalText returns the name of value, and an error where it has none.
func (t *Table[T]) MarshalText(value T) ([]byte, error) {
	if int(value) < len(t.Names) {
		return []byte(t.Names[value]), nil
	}
	return nil, fmt.Errorf("%s %d has no name", t.What, uint8(value))
}

// UnmarshalText sets value by its name. The error says what to write, and leaves
// value as it is.
func (t *Table[T]) UnmarshalText(value *T, name []byte) error {
	i := slices.Index(t.Names, string(name))
	if i < 0 {
		return fmt.Errorf("unknown %s %q: %s", t.What, name, Suggest(string(name), t.Names))
	}
	*value = T(i)
	return nil
}
