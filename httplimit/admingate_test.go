package httplimit

import (
	"crypto/sha256"
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

// No part of a hash suffices: a token of which that is the same is another one.
func TestATokensHashIsComparedWhole(t *testing.T) {
	hashes := [][sha256.Size]byte{sha256.Sum256([]byte("one")), sha256.Sum256([]byte("two"))}
	for i := range hashes {
		require.Equal(t, i, indexInConstantTime(hashes, hashes[i]))
		for at := range sha256.Size {
			other := hashes[i]
			other[at] ^= 1
			require.Equal(t, -1, indexInConstantTime(hashes, other), "byte %d", at)
		}
	}
}

// function is what a function's text says of it.
type function struct {
	calls    []string
	branches int // ifs, switches, breaks, and returns but for the last statement
}

func functionsOf(t *testing.T, path string) map[string]function {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	require.NoError(t, err)
	all := make(map[string]function)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		var is function
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				switch called := n.Fun.(type) {
				case *ast.Ident:
					is.calls = append(is.calls, called.Name)
				case *ast.SelectorExpr:
					if x, ok := called.X.(*ast.Ident); ok {
						is.calls = append(is.calls, x.Name+"."+called.Sel.Name)
					}
				}
			case *ast.IfStmt, *ast.SwitchStmt, *ast.BranchStmt:
				is.branches++
			case *ast.ReturnStmt:
				if n != f.Body.List[len(f.Body.List)-1] {
					is.branches++
				}
			}
			return true
		})
		all[f.Name.Name] = is
	}
	return all
}
