package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

const modulePath = "github.com/weir-go/weir"

// tree has the packages of all modules of the repository, by directory. Tests, testdata and
// hidden directories are left out; files for every platform are in.
type tree map[string]*source

// source is the code of one package.
type source struct {
	files int
	lines
	functions []function
	structs   map[string][]embedding // the fields of each struct type
	methods   map[string]int         // how many methods each type declares
}

// embedding is a field of a struct, and what it embeds, if anything: a type of the package in
// dir, or of the same package if dir is "".
type embedding struct{ dir, name string }

type function struct {
	name, at   string
	complexity int
}

// lines counts lines. One with code and a comment is code; a line within a raw string is code
// unless it is blank.
type lines struct{ all, code, comment int }

func (l *lines) add(more lines) {
	l.all += more.all
	l.code += more.code
	l.comment += more.comment
}

func read(root string) (tree, error) {
	t := make(tree)
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if t[dir] == nil {
			t[dir] = &source{structs: make(map[string][]embedding), methods: make(map[string]int)}
		}
		return t[dir].read(name, text)
	})
	return t, err
}

func (s *source) read(name string, text []byte) error {
	s.files++
	s.lines.add(linesOf(text))
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	imports := make(map[string]string) // directories of this repository
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if dir, ours := strings.CutPrefix(imported, modulePath+"/"); ours {
			local := path.Base(dir)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			imports[local] = dir
		}
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			called := decl.Name.Name
			if decl.Recv != nil {
				receiver := typeName(decl.Recv.List[0].Type).name
				s.methods[receiver]++
				called = receiver + "." + called
			}
			at := set.Position(decl.Pos())
			s.functions = append(s.functions, function{called, fmt.Sprintf("%s:%d", name, at.Line), complexity(decl)})
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					if fields, ok := spec.Type.(*ast.StructType); ok {
						s.structs[spec.Name.Name] = fieldsOf(fields, imports)
					}
				}
			}
		}
	}
	return nil
}

func fieldsOf(of *ast.StructType, imports map[string]string) (fields []embedding) {
	for _, field := range of.Fields.List {
		for range field.Names {
			fields = append(fields, embedding{})
		}
		if len(field.Names) == 0 {
			embeds := typeName(field.Type)
			if embeds.dir != "" {
				embeds.dir = imports[embeds.dir]
				if embeds.dir == "" {
					embeds.name = "" // from outside: one field
				}
			}
			fields = append(fields, embeds)
		}
	}
	return fields
}

// typeName returns the name of a receiver's or an embedded type; dir is its qualifier.
func typeName(expr ast.Expr) embedding {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return typeName(expr.X)
	case *ast.IndexExpr:
		return typeName(expr.X)
	case *ast.IndexListExpr:
		return typeName(expr.X)
	case *ast.SelectorExpr:
		return embedding{typeName(expr.X).name, expr.Sel.Name}
	case *ast.Ident:
		return embedding{name: expr.Name}
	}
	return embedding{}
}

// members counts a type's fields and methods. A struct of the repository that it embeds
// counts by its own fields and methods.
func (t tree) members(in *source, name string) (fields, methods int) {
	methods = in.methods[name]
	for _, field := range in.structs[name] {
		from := in
		if field.dir != "" {
			from = t[field.dir]
		}
		if from == nil || from.structs[field.name] == nil {
			fields++
			continue
		}
		f, m := t.members(from, field.name)
		fields, methods = fields+f, methods+m
	}
	return fields, methods
}

// complexity is a function's cyclomatic complexity as github.com/fzipp/gocyclo counts it.
func complexity(of ast.Node) int {
	branches := 1
	ast.Inspect(of, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			branches++
		case *ast.CaseClause:
			if n.List != nil {
				branches++
			}
		case *ast.CommClause:
			if n.Comm != nil {
				branches++
			}
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				branches++
			}
		}
		return true
	})
	return branches
}

func linesOf(text []byte) lines {
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	code, comment := make(map[int]bool), make(map[int]bool)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // inserted by the scanner
		}
		on := code
		if tok == token.COMMENT {
			on = comment
		}
		first := file.Line(pos)
		for i, line := range strings.Split(literal, "\n") {
			if i == 0 || strings.TrimSpace(line) != "" {
				on[first+i] = true
			}
		}
	}
	counted := lines{all: bytes.Count(text, []byte("\n")), code: len(code)}
	for line := range comment {
		if !code[line] {
			counted.comment++
		}
	}
	return counted
}
