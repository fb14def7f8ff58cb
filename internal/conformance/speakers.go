package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// seams are the names in the suite through which every test that speaks to the broker finds it.
var seams = []string{"getSeedBrokers", "scramSeeds"}

// speakers lists the tests of a package, true for those that reach a seam: the others test the client alone,
// and say nothing of a broker. A function reaches what it names, and what that reaches.
func speakers(dir string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	names := map[string]map[string]bool{} // by function or method, all that its body names
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
			if names[f.Name.Name] == nil {
				names[f.Name.Name] = map[string]bool{}
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					names[f.Name.Name][id.Name] = true
				}
				return true
			})
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
