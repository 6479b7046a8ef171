package detect

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Table is the encoding of all rows that a node knows. It is part of each pong.
type Table struct {
	About   []string `codec:"a"`           // the members that have a row
	Others  []string `codec:"o"`           // connected or refusing members that have no row
	Numbers []uint64 `codec:"n"`           // numbers of the rows
	Bits    []byte   `codec:"b"`           // connected members: rows of len(About)+len(Others) bits, row by row
	Refused []byte   `codec:"r,omitempty"` // likewise, the members whose hosts refuse connections; empty if there are none
}

// Table returns the rows that this node knows.
func (c *Connectivity) Table() Table {
	t := Table{About: slices.Sorted(maps.Keys(c.rows))}
	index := make(map[string]int, len(t.About))
	for i, name := range t.About {
		index[name] = i
	}
	refused := false
	for _, about := range t.About {
		r := c.rows[about]
		refused = refused || len(r.refused) > 0
		for _, names := range [][]string{r.connected, r.refused} {
			for _, name := range names {
				if _, ok := index[name]; !ok {
					index[name] = len(index)
					t.Others = append(t.Others, name)
				}
			}
		}
	}
	width := len(index)
	t.Numbers = make([]uint64, len(t.About))
	t.Bits = make([]byte, (len(t.About)*width+7)/8)
	if refused {
		t.Refused = make([]byte, len(t.Bits))
	}
	for i, about := range t.About {
		r := c.rows[about]
		t.Numbers[i] = r.number
		for _, name := range r.connected {
			bit := i*width + index[name]
			t.Bits[bit/8] |= 1 << (bit % 8)
		}
		for _, name := range r.refused {
			bit := i*width + index[name]
			t.Refused[bit/8] |= 1 << (bit % 8)
		}
	}
	return t
}

// names returns the sorted names of the members that are set in row i of bits.
func (t *Table) names(i int, bits []byte) []string {
	if len(bits) == 0 {
		return nil
	}
	var names []string
	width := len(t.About) + len(t.Others)
	for j := range width {
		if bit := i*width + j; bits[bit/8]&(1<<(bit%8)) == 0 || j == i {
			continue
		}
		if j < len(t.About) {
			names = append(names, t.About[j])
		} else {
			names = append(names, t.Others[j-len(t.About)])
		}
	}
	slices.Sort(names)
	return names
}

// maxRowNumber is the maximum number of a row. A row changes some times a second at most, so
// no correct member reaches it.
const maxRowNumber = 1 << 48

// Validate returns an error if t is not a table that a member sends.
func (t *Table) Validate() error {
	rows, width := len(t.About), len(t.About)+len(t.Others)
	switch {
	case len(t.Numbers) != rows || len(t.Bits) != (rows*width+7)/8 || len(t.Refused) > 0 && len(t.Refused) != len(t.Bits):
		return fmt.Errorf("a table of %d rows with %d numbers, %d and %d bytes", rows, len(t.Numbers), len(t.Bits), len(t.Refused))
	case width > MaxRecords:
		return fmt.Errorf("a table of %d members: the bound is %d", width, MaxRecords)
	case slices.ContainsFunc(t.Numbers, func(number uint64) bool { return number > maxRowNumber }):
		return errors.New("a table with a row number that no member reaches")
	}
	seen := make(map[string]bool, width)
	for _, names := range [][]string{t.About, t.Others} {
		for _, name := range names {
			if seen[name] || len(name) > MaxName {
				return fmt.Errorf("a table that names a member twice, or has a name of %d bytes", len(name))
			}
			seen[name] = true
		}
	}
	return nil
}
