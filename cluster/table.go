package cluster

import (
	"fmt"
	"maps"
	"slices"
)

// table is every row that a node knows, as pongs carry it.
type table struct {
	About   []string `codec:"a"`           // the members that the rows are about
	Others  []string `codec:"o"`           // members that are heard, and not in About
	Numbers []uint64 `codec:"n"`           // of the rows
	Bits    []byte   `codec:"b"`           // rows of len(About)+len(Others) bits, row by row
	Refused []byte   `codec:"r,omitempty"` // the same of the members whose hosts refuse connections; none if empty
}

func (h *hearing) table() table {
	t := table{About: slices.Sorted(maps.Keys(h.rows))}
	index := make(map[string]int, len(t.About))
	for i, name := range t.About {
		index[name] = i
	}
	refused := false
	for _, about := range t.About {
		r := h.rows[about]
		refused = refused || len(r.refused) > 0
		for _, names := range [][]string{r.heard, r.refused} {
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
		r := h.rows[about]
		t.Numbers[i] = r.number
		for _, name := range r.heard {
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
func (t *table) names(i int, bits []byte) []string {
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

// maxRowNumber bounds a row's number. A row changes some times a second at most:
// no honest one comes near.
const maxRowNumber = 1 << 48

func decodeTable(b []byte) (t table, err error) {
	if err := decode(b, &t); err != nil {
		return table{}, fmt.Errorf("%w: %v", errGarbage, err)
	}
	rows, width := len(t.About), len(t.About)+len(t.Others)
	if len(t.Numbers) != rows || len(t.Bits) != (rows*width+7)/8 || len(t.Refused) > 0 && len(t.Refused) != len(t.Bits) {
		return table{}, fmt.Errorf("%w: a table of %d rows with %d numbers, %d and %d bytes", errGarbage, rows, len(t.Numbers), len(t.Bits), len(t.Refused))
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
