package cluster

import (
	"fmt"
	"maps"
	"slices"
)

// table is every row that a node knows, as pongs carry it.
type table struct {
	About   []string `codec:"a"` // the members that the rows are about
	Others  []string `codec:"o"` // members that are heard, and not in About
	Numbers []uint64 `codec:"n"` // of the rows
	Bits    []byte   `codec:"b"` // rows of len(About)+len(Others) bits, row by row
}

func (h *hearing) table() table {
	t := table{About: slices.Sorted(maps.Keys(h.rows))}
	index := make(map[string]int, len(t.About))
	for i, name := range t.About {
		index[name] = i
	}
	for _, about := range t.About {
		for _, name := range h.rows[about].heard {
			if _, ok := index[name]; !ok {
				index[name] = len(index)
				t.Others = append(t.Others, name)
			}
		}
	}
	width := len(index)
	t.Numbers = make([]uint64, len(t.About))
	t.Bits = make([]byte, (len(t.About)*width+7)/8)
	for i, about := range t.About {
		t.Numbers[i] = h.rows[about].number
		for _, name := range h.rows[about].heard {
			bit := i*width + index[name]
			t.Bits[bit/8] |= 1 << (bit % 8)
		}
	}
	return t
}

// heard is row i, sorted.
func (t *table) heard(i int) []string {
	var names []string
	width := len(t.About) + len(t.Others)
	for j := range width {
		if bit := i*width + j; t.Bits[bit/8]&(1<<(bit%8)) == 0 || j == i {
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

// maxRowNumber bounds a row's number. A row changes some times a second at most:
// no honest one comes near.
const maxRowNumber = 1 << 48

func decodeTable(b []byte) (t table, err error) {
	if err := decode(b, &t); err != nil {
		return table{}, fmt.Errorf("%w: %v", errGarbage, err)
	}
	rows, width := len(t.About), len(t.About)+len(t.Others)
	if len(t.Numbers) != rows || len(t.Bits) != (rows*width+7)/8 {
		return table{}, fmt.Errorf("%w: a table of %d rows with %d numbers and %d bytes", errGarbage, rows, len(t.Numbers), len(t.Bits))
	}
	if width > maxRecords {
		return table{}, fmt.Errorf("%w: a table of %d members: the bound is %d", errGarbage, width, maxRecords)
	}
	seen := make(map[string]bool, width)
	for _, names := range [][]string{t.About, t.Others} {
		for _, name := range names {
			if seen[name] || len(name) > maxName {
				return table{}, fmt.Errorf("%w: a table that names a member twice, or one of %d bytes", errGarbage, len(name))
			}
			seen[name] = true
		}
	}
	for _, number := range t.Numbers {
		if number > maxRowNumber {
			return table{}, fmt.Errorf("%w: a row numbered %d", errGarbage, number)
		}
	}
	return t, nil
}
