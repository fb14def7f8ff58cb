package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Whoever reads the log finds every error below one key.
func TestLogsCallAnErrorErr(t *testing.T) {
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, wrong := range errorKeys(t, file, read(t, file)) {
			t.Errorf("%s: the key of an error in a line of the log is err", wrong)
		}
	}
}

func TestErrorKeysOfLinesOfTheLog(t *testing.T) {
	const head = "package p\nfunc f() {\n"
	for _, c := range []struct {
		call  string
		wrong bool
	}{
		{`l.Warn("it failed", "err", err)`, false},
		{`l.Warn("it failed", "error", err)`, true},
		{`l.Warn("it failed", "topic", name, "because", err)`, true},
		{`l.Info("it failed", "reason", storeErr)`, true},
		{`l.Error("it failed", "error", err.Error(), "topic", name)`, true},
		{`l.Error("it failed", "error", text)`, true},
		{`l.ErrorContext(ctx, "it failed", "why", ctx.Err())`, true},
		{`l.Info("it stopped", "cause", context.Cause(ctx))`, false}, // a signal, most often
		{`l.Log(ctx, slog.LevelWarn, "it failed", "cause", err)`, true},
		{`l.With("error", err).Debug("it failed")`, true},
		{`slog.Error("it failed", slog.Any("error", err))`, true},
		{`l.Info("it began", "error_rate", rate)`, false},
		{`o.StoreFailed("commit", err)`, false},
	} {
		if got := errorKeys(t, "p.go", head+c.call+"\n}"); (len(got) > 0) != c.wrong {
			t.Errorf("%s: found %v, want wrong to be %t", c.call, got, c.wrong)
		}
	}
}

// logs has the methods of a logger, and the number of arguments before the first key.
var logs = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2,
	"Log": 3, "With": 0, "Any": 0, "String": 0,
}

// errorKeys returns the lines of a file that log an error with another key than err, or anything
// with the key error. It knows an error by its name, since it reads the file without its types.
func errorKeys(t *testing.T, file, text string) (wrong []string) {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		method, is := call.Fun.(*ast.SelectorExpr)
		if !is {
			return true
		}
		before, is := logs[method.Sel.Name]
		if !is || len(call.Args) < before {
			return true
		}
		for pair := range slices.Chunk(call.Args[before:], 2) {
			literal, is := pair[0].(*ast.BasicLit)
			if !is || literal.Kind != token.STRING || len(pair) < 2 {
				continue
			}
			key, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			if key == "error" || key != "err" && isError(pair[1]) {
				wrong = append(wrong, set.Position(literal.Pos()).String()+": "+key)
			}
		}
		return true
	})
	return wrong
}

func isError(value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.Ident:
		return v.Name == "err" || strings.HasSuffix(v.Name, "Err")
	case *ast.SelectorExpr:
		return v.Sel.Name == "err" || v.Sel.Name == "Err"
	case *ast.CallExpr:
		called, is := v.Fun.(*ast.SelectorExpr)
		return is && (called.Sel.Name == "Error" && len(v.Args) == 0 || called.Sel.Name == "Err")
	}
	return false
}
