// Command figures prints the size of the code and its most branched functions. Run it in the
// root of the repository: go run ./internal/figures
package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// branched is the cyclomatic complexity above which a function is listed.
const branched = 25

func main() {
	tree, err := read(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
	tree.print(os.Stdout)
}

func (t tree) print(out io.Writer) {
	var sum lines
	for _, p := range t {
		sum.add(p.lines)
	}
	root := t["."]
	fmt.Fprintf(out, "root package: %d files, %d lines\n", root.files, root.all)
	fields, methods := t.members(root, "Node")
	fmt.Fprintf(out, "Node: %d methods, %d fields\n", methods, fields)
	fmt.Fprintf(out, "repository: %d lines of code, %d of comment\n", sum.code, sum.comment)

	fmt.Fprintf(out, "\nfunctions of the product with a cyclomatic complexity above %d:\n", branched)
	for _, f := range t.branched(branched) {
		fmt.Fprintf(out, "%d\t%s\t%s\n", f.complexity, f.name, f.at)
	}

	fmt.Fprintln(out, "\nfiles, and lines of code and of comment, outside tests:")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, dir := range slices.Sorted(maps.Keys(t)) {
		p := t[dir]
		fmt.Fprintf(table, "%d\t%d\t%d\t  %s\n", p.files, p.code, p.comment, dir)
	}
	table.Flush()
}

// notProduct are the directories of what tries, measures and shows the product. Their
// functions are not listed.
var notProduct = []string{"bench", "cmd/demo", "simulations", "soak"}

// branched returns the functions of the product above a complexity, the most branched first.
func (t tree) branched(above int) (found []function) {
	for dir, p := range t {
		if slices.ContainsFunc(notProduct, func(not string) bool { return dir == not || strings.HasPrefix(dir, not+"/") }) {
			continue
		}
		for _, f := range p.functions {
			if f.complexity > above {
				found = append(found, f)
			}
		}
	}
	slices.SortFunc(found, func(a, b function) int {
		return cmp.Or(cmp.Compare(b.complexity, a.complexity), cmp.Compare(a.at, b.at))
	})
	return found
}
