package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// seams are the functions of the suite that return the broker's address. Every test that speaks to
// the broker calls one of them, directly or not.
var seams = []string{"getSeedBrokers", "scramSeeds"}

// speakers lists the tests of a package, true for those that reach a seam: the others test the
// client alone, and say nothing about a broker. A function reaches the names in its body, and what
// these reach. A method is called by a dot and its name, whatever its type is.
func speakers(dir string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	names := map[string]map[string]bool{} // by function or .method, all that its body names
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return nil, err
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				name = "." + name
			}
			if names[name] == nil {
				names[name] = map[string]bool{}
			}
			collect(f.Body, names[name])
		}
	}
	tests := map[string]bool{}
	for name := range names {
		if strings.HasPrefix(name, "Test") {
			tests[name] = reaches(names, name, map[string]bool{})
		}
	}
	return tests, nil
}

// collect adds to names all that is named in a piece of code.
func collect(code ast.Node, names map[string]bool) {
	ast.Inspect(code, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			names["."+n.Sel.Name] = true
			collect(n.X, names)
			return false
		case *ast.Ident:
			names[n.Name] = true
		}
		return true
	})
}

func reaches(names map[string]map[string]bool, from string, seen map[string]bool) bool {
	if slices.Contains(seams, from) {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	for name := range names[from] {
		if reaches(names, name, seen) {
			return true
		}
	}
	return false
}
