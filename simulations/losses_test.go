package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A link that goes down takes copies with it as a split does, until that is noticed.
func TestWhatASideHasShrunkBy(t *testing.T) {
	const cut = 12 * time.Second
	whole := []int{0, 0, 0}
	link := map[[2]int]bool{{0, 1}: true}
	for _, c := range []struct {
		name   string
		after  sides
		host   int
		before time.Duration
		since  time.Duration
	}{
		{"a split", sides{cut, []int{0, 1, 1}, nil}, 0, cut + time.Second, cut},
		{"a split that is noticed", sides{cut, []int{0, 1, 1}, nil}, 0, cut + 3*time.Second, cut + 3*time.Second},
		{"a link of it", sides{cut, whole, link}, 0, cut + time.Second, cut},
		{"a link to it", sides{cut, whole, link}, 1, cut + time.Second, cut},
		{"a link of others", sides{cut, whole, link}, 2, cut + time.Second, cut + time.Second},
		{"a link, noticed", sides{cut, whole, link}, 0, cut + 3*time.Second, cut + 3*time.Second},
		{"nothing", sides{cut, whole, nil}, 0, cut + time.Second, cut + time.Second},
	} {
		s := &stage{past: []sides{{0, whole, nil}, c.after}}
		require.Equal(t, c.since, s.shrunk(c.host, c.before), c.name)
	}
}
