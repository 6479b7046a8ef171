package lab

import (
	"iter"
	"slices"
)

// Windows yields where the half-open windows of a length begin, ascending, that hold one of n
// admissions for certain, and how many they hold.
//
// An admission happened at one moment from begun to ended, which admission returns for its
// index. A window [b, b+length) holds it for certain if it holds both, and no other counts: so
// what Windows finds did happen. It falls short of the truth by what was under way at a
// window's ends.
//
// Looked at are the windows that begin with an admission, or at one of edges. Any other window
// can be moved until it begins with an admission without losing one; if it may not hold a
// moment of something, it can be moved until it lies against that, so the caller gives the
// moment as an edge: the length before it, and after its end.
func Windows(n int, admission func(i int) (begun, ended int64), edges []int64, length int64) iter.Seq2[int64, int] {
	begins := slices.Clone(edges)
	var begun, ended []int64
	for i := range n {
		from, to := admission(i)
		begins = append(begins, from)
		if to-from < length { // others are certainly in no window
			begun, ended = append(begun, from), append(ended, to)
		}
	}
	slices.Sort(begins)
	begins = slices.Compact(begins)
	slices.Sort(begun)
	slices.Sort(ended)
	return func(yield func(int64, int) bool) {
		for _, begin := range begins {
			over, _ := slices.BinarySearch(ended, begin+length)
			before, _ := slices.BinarySearch(begun, begin)
			if held := over - before; held > 0 && !yield(begin, held) { // what began before has ended before the window's end
				return
			}
		}
	}
}
