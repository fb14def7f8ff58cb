package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The root is what callers of the library see. What runs is below it.
func TestTheLibraryIsAFacade(t *testing.T) {
	const most = 14
	var files []string
	for _, file := range goFiles(t) {
		if path.Dir(file) == "." && !strings.HasSuffix(file, "_test.go") {
			files = append(files, file)
		}
	}
	if len(files) > most {
		t.Errorf("the root has %d files, limit %d: %v", len(files), most, files)
	}
}

// What callers see is in the root itself: no type is only another name of a type elsewhere, whose
// fields and methods go doc would not show; and everything that is exported says what it is.
func TestTheLibraryDocumentsWhatItExports(t *testing.T) {
	for _, file := range goFiles(t) {
		if path.Dir(file) != "." || strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root(t), file), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			for name, said := range exported(decl) {
				if said != "" {
					t.Errorf("%s: %s %s", file, name, said)
				}
			}
		}
	}
}

// exported yields the exported names that a declaration makes, each with what is wrong with it.
func exported(decl ast.Decl) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && receiverIsExported(d) && d.Doc == nil && !slices.Contains(known, d.Name.Name) {
				yield(d.Name.Name, "has no doc comment")
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && s.Assign.IsValid() {
						yield(s.Name.Name, "is only another name of a type")
					}
					if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
						yield(s.Name.Name, "has no doc comment")
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
						yield(s.Names[0].Name, "has no doc comment")
					}
				}
			}
		}
	}
}

// known are methods that everybody knows.
var known = []string{"Error", "Unwrap", "String"}

func receiverIsExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	of := d.Recv.List[0].Type
	if star, is := of.(*ast.StarExpr); is {
		of = star.X
	}
	if generic, is := of.(*ast.IndexExpr); is {
		of = generic.X
	}
	name, is := of.(*ast.Ident)
	return is && name.IsExported()
}

// due are the methods whose use is shown: each has an example.
var due = []string{
	"Log_Publish", "Log_PublishOnce", "Log_PublishTx", "Log_PublishSQLTx", "Log_Consume_sharing", "Log_Read", "Log_ResetGroup", "Log_EnsureTopic",
	"Log_Enqueue", "Log_EnqueueTx", "Log_Work", "Log_Redrive", "Log_SetSchedule", "Category_Append", "Category_AppendWithin", "Aggregate", "Log_Project",
	"Log_Manage", "Event_CommitTx", "Event_CommitSQLTx", "Job_AckTx", "Consumer_Close", "Consumer_Seek", "DeadLetter", "Permanent", "RetryAfter", "FailedAt",
}

func TestTheLibraryShowsHowItIsUsed(t *testing.T) {
	var all strings.Builder
	for _, file := range goFiles(t) {
		if path.Dir(file) == "." && strings.HasSuffix(file, "_test.go") {
			text, err := os.ReadFile(filepath.Join(root(t), file))
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	for _, name := range due {
		if !strings.Contains(all.String(), "func Example"+name+"()") {
			t.Errorf("%s has no example", name)
		}
	}
}
