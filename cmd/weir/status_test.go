package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatusShowsTheCountsHeldBesideTheirMaximum(t *testing.T) {
	for _, c := range []struct {
		held, most int
		want       string
	}{
		{0, 5_000_000, "counts: 0 held of 5000000 at most, 7 evicted"},
		{999, 1000, "counts: 999 held of 1000 at most, 7 evicted"},
		{1, 1, "counts: 1 held of 1 at most, 7 evicted"},
	} {
		var of cluster
		of.Stats.Keys, of.Stats.MaxKeys, of.Stats.Evicted = c.held, c.most, 7
		var text strings.Builder
		of.print(&text, time.Now())
		require.Contains(t, text.String(), c.want)
	}
}
