package enum

import (
	"strconv"
	"strings"
)

const (
	maxCompared = 64 // bytes of a name that is compared with known names
	maxListed   = 20 // maximum number of names that a message lists
)

// Suggest returns the end of an error message about an unknown name. It names the most similar of
// the known names, or else lists at most maxListed of them.
func Suggest(name string, known []string) string {
	best, least := "", (len(name)+1)/3+1
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	switch {
	case best != "":
		return "did you mean " + strconv.Quote(best) + "?"
	case len(known) == 0:
		return "there are none"
	case len(known) > maxListed:
		return "known are " + strings.Join(known[:maxListed], ", ") + " and " + strconv.Itoa(len(known)-maxListed) + " more"
	}
	return "known are " + strings.Join(known, ", ")
}

// distance returns the number of letters to insert, delete, change, or swap with the next letter, in
// order to change a to b (optimal string alignment; Damerau, 1964).
func distance(a, b string) int {
	if len(a) > maxCompared || len(b) > maxCompared {
		return maxCompared
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
