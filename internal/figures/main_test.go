package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The bounds of what a reader of the product meets. They come down as functions are split.
const (
	mostBranched = 30 // of one function
	mostAbove    = 5  // functions above branched
)

func TestFunctionsOfTheProductBranchLittle(t *testing.T) {
	tree, err := read("../..")
	require.NoError(t, err)
	require.Greater(t, len(tree), 20)
	found := tree.branched(branched)
	require.LessOrEqual(t, len(found), mostAbove, "split one of %v", found)
	if len(found) > 0 {
		require.LessOrEqual(t, found[0].complexity, mostBranched, "split %v where it holds two ideas", found[0])
	}
}

const sample = `package sample

import "sync"

/* Of two
lines. */
type Node struct {
	a, b int // two
	sync.Mutex
	*inner
}

type inner struct{ c, d, e int }

func (n *Node) Do(x []int) {
	for _, v := range x {
		switch {
		case v > 1 && v < 3 || v == 7:
		default:
		}
	}
}

func (inner) do() {
	select {
	case <-make(chan int):
	default:
		_ = ` + "`raw\n\nstring`" + `
	}
}
`

func TestCountsLinesFieldsMethodsAndBranches(t *testing.T) {
	s := &source{structs: make(map[string][]embedding), methods: make(map[string]int)}
	require.NoError(t, s.read("sample.go", []byte(sample)))
	require.Equal(t, lines{all: 32, code: 24, comment: 2}, s.lines)
	require.Equal(t, []function{{"Node.Do", "sample.go:15", 5}, {"inner.do", "sample.go:24", 2}}, s.functions)
	fields, methods := tree{".": s}.members(s, "Node")
	require.Equal(t, 6, fields)
	require.Equal(t, 2, methods)
}
