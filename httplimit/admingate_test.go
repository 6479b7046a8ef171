package httplimit

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

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
