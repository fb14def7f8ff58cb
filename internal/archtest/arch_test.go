// Package archtest holds the repository to its own map: imports go down only, ARCHITECTURE.md names
// every package and nothing that is gone, files stay readable, dependencies are explained.
package archtest

import (
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	module   = "github.com/weir-log/weir"
	linesMax = 800
	widthMax = 100
)

// layer says what the packages under a directory may import of this module, besides what lies
// inside that directory's own package. The first layer whose directory holds the package counts.
type layer struct {
	dir string
	may []string
}

// layers reads top to bottom as a request travels: cmd, door, use, eventlog; stores hang below
// eventlog and know it alone.
var layers = []layer{
	{".", []string{"use", "eventlog", "store", "internal", "door/sqlfn", "door/inbox"}}, // the Go library; on databases it runs the mover
	{"weirotel", []string{".", "eventlog"}},                                             // an adapter for who wants it
	{"cmd", []string{"door/cli"}},
	{"door/cli", []string{"door", "use", "eventlog", "store", "internal", "weirotel"}}, // wires the program
	{"door/sqlfn", []string{"use", "eventlog", "store", "internal"}},                   // is about a database by nature
	{"door/inbox", []string{"use", "eventlog", "store", "internal"}},                   // as well
	{"door", []string{"use", "eventlog", "internal"}},
	{"use/claims", []string{"eventlog", "internal"}},                                                            // arithmetic, and the store's clock
	{"use/queue", []string{"use/claims", "use/ledger", "use/audit", "use/publish", "eventlog", "internal"}},     // enqueues by publishing
	{"use/apikey", []string{"use/acl", "use/table", "use/ledger", "use/audit", "eventlog", "internal"}},         // a key's scopes are rules
	{"use/keys", []string{"use/group", "use/stream", "eventlog"}},                                               // gathers their rules
	{"use/deliver", []string{"use/group", "use/publish", "eventlog", "internal"}},                               // a consumer is a member of a group; dead letters are published
	{"use/projection", []string{"use/audit", "use/deliver", "use/group", "use/stream", "eventlog", "internal"}}, // a run is a group that reads streams
	{"use/stream", []string{"use/audit", "use/ledger", "use/publish", "eventlog", "internal"}},                  // places streams as keys are placed
	{"use", []string{"use/audit", "use/ledger", "use/table", "eventlog", "internal"}},                           // a ledger changes the keys of all uses, a table is some of them
	{"eventlog", []string{"eventlog", "internal"}},
	{"store/storetest", []string{"eventlog", "internal", "store/memory"}},                         // memory is its model
	{"store", []string{"eventlog", "internal", "store/storerow"}},                                 // what stores with a row for each batch have in common
	{"bench", []string{".", "bench", "door", "use", "eventlog", "store", "internal"}},             // a program of its own
	{"examples", []string{".", "weirotel"}},                                                       // what anybody could write
	{"internal/chaos", []string{".", "eventlog", "store", "use/keys", "internal"}},                // what users have, and the log to see whether it is true
	{"internal/conformance", []string{".", "door", "use", "eventlog", "store", "internal"}},       // its members by the library are what users have
	{"internal/everystore", []string{"eventlog", "store", "use/keys", "internal"}},                // opens them for tests
	{"internal/sim", []string{".", "use", "eventlog", "store", "internal"}},                       // a process has all of it
	{"internal/judge", []string{".", "eventlog", "internal"}},                                     // speaks of what callers of the library see
	{"internal/node", []string{"door/sqlfn", "door/inbox", "use", "eventlog", "internal/verify"}}, // what stands below all doors
	{"internal/verify/load", []string{".", "use/queue", "eventlog", "internal"}},                  // does what users do
	{"internal", []string{"eventlog", "internal"}},
}

// opener is the one package that knows all stores: it turns a URL into one.
const opener = "store"

func TestImportsGoDownOnly(t *testing.T) {
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue // a test may put a real store below what it tests
		}
		pkg := path.Dir(file)
		for _, imported := range importsOf(t, file) {
			if imported == pkg || mayImport(pkg, imported) {
				continue
			}
			t.Errorf("%s imports %s: %s may not know it (cmd → door → use → eventlog ← store)", file, imported, pkg)
		}
	}
}

func mayImport(pkg, imported string) bool {
	if pkg == opener && within(imported, "store") {
		return true
	}
	for _, l := range layers {
		if within(pkg, l.dir) {
			return slices.ContainsFunc(l.may, func(dir string) bool { return within(imported, dir) }) || ownChild(pkg, imported)
		}
	}
	return false
}

// ownChild lets door/kafka import door/kafka/frame, and store/sqlite nothing of store/postgres.
func ownChild(pkg, imported string) bool { return strings.Count(pkg, "/") > 0 && within(imported, pkg) }

func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

func TestImportRulesTellUpFromDown(t *testing.T) {
	for _, c := range []struct {
		pkg, imported string
		want          bool
	}{
		{"cmd/weir", "door/cli", true},
		{"cmd/weir", "eventlog", false},
		{"door/cli", "store/sqlite", true},
		{"door/kafka", "use/group", true},
		{"door/kafka", "store/sqlite", false},
		{"door/kafka", "door/httpapi", false},
		{".", "store", true},
		{".", "door/kafka", false},
		{"door/kafka", ".", false},
		{"use/group", "eventlog", true},
		{"use/group", "use/queue", false},
		{"use/group", "door/kafka", false},
		{"eventlog", "use/group", false},
		{"eventlog", "store/memory", false},
		{"eventlog", "eventlog/batch", true},
		{"store", "store/sqlite", true},
		{"store/sqlite", "store/postgres", false},
		{"store/sqlite", "eventlog", true},
		{"store/sqlite", "store/storerow", true},
		{"internal/metric", "door/kafka", false},
		{".", "use/publish", true},
		{".", "store", true},
		{".", "door/sqlfn", true},
		{".", "door/kafka", false},
		{"weirotel", "eventlog/batch", true},
		{"weirotel", "use/publish", false},
		{"eventlog", ".", false},
		{"strange", "eventlog", false},
	} {
		if got := mayImport(c.pkg, c.imported); got != c.want {
			t.Errorf("mayImport(%s, %s) = %v, want %v", c.pkg, c.imported, got, c.want)
		}
	}
}

// A store keeps keys and bytes. What is under a key is the business of those above.
func TestNoStoreKnowsTopicsOrGroups(t *testing.T) {
	known := regexp.MustCompile(`'(topic|group)/`)
	for _, file := range files(t, ".go", ".sql") {
		if within(file, "store") && !strings.HasSuffix(file, "_test.go") {
			if found := known.FindString(read(t, file)); found != "" {
				t.Errorf("%s speaks of keys that begin with %s'", file, found)
			}
		}
	}
}

func TestArchitectureNamesEveryPackage(t *testing.T) {
	named := pathsIn(t, "ARCHITECTURE.md")
	packages := map[string]bool{}
	for _, file := range goFiles(t) {
		packages[path.Dir(file)] = true
	}
	for pkg := range packages {
		if pkg != "." && !slices.Contains(named, pkg) {
			t.Errorf("ARCHITECTURE.md does not name the package `%s`", pkg)
		}
	}
}

// The picture has a line for each layer, which names its packages; what begins with store is a tool
// for stores and no store.
func TestThePictureIsTheTree(t *testing.T) {
	_, picture, _ := strings.Cut(read(t, "ARCHITECTURE.md"), "```")
	picture, _, _ = strings.Cut(picture, "```")
	for layer, others := range map[string][]string{"door": {"(root)"}, "use": nil, "store": nil} {
		line := regexp.MustCompile(`(?m)^ ` + layer + `/ +(.*)$`).FindStringSubmatch(picture)
		if line == nil {
			t.Errorf("the picture in ARCHITECTURE.md has no line for %s/", layer)
			continue
		}
		entries, err := os.ReadDir(filepath.Join(root(t), layer))
		if err != nil {
			t.Fatal(err)
		}
		drawn := strings.FieldsFunc(line[1], func(r rune) bool { return strings.ContainsRune(" ·│◄►─", r) })
		drawn = slices.DeleteFunc(drawn, func(word string) bool { return slices.Contains(others, word) })
		there := map[string]bool{}
		for _, e := range entries {
			if e.IsDir() && !strings.HasPrefix(e.Name(), "store") {
				there[e.Name()] = true
				if !slices.Contains(drawn, e.Name()) {
					t.Errorf("the picture in ARCHITECTURE.md lacks %s/%s", layer, e.Name())
				}
			}
		}
		for _, word := range drawn {
			if info, err := os.Stat(filepath.Join(root(t), layer, word)); !there[word] && (err != nil || !info.IsDir()) && !slices.Contains(pictureWords, word) {
				t.Errorf("the picture in ARCHITECTURE.md has %s/%s, which is not there", layer, word)
			}
		}
	}
}

// pictureWords are what the lines of the layers say besides packages.
var pictureWords = strings.Fields("parse, call, encode kinds of Entry batches and keys")

func TestArchitectureNamesOnlyWhatIsThere(t *testing.T) {
	for _, name := range pathsIn(t, "ARCHITECTURE.md") {
		if _, err := os.Stat(filepath.Join(root(t), name)); err != nil {
			t.Errorf("ARCHITECTURE.md names `%s`, which is not there", name)
		}
	}
}

func TestFilesStayShort(t *testing.T) {
	for _, file := range goFiles(t) {
		if lines := strings.Count(read(t, file), "\n"); lines > linesMax {
			t.Errorf("%s has %d lines, limit %d: it holds more than one subject", file, lines, linesMax)
		}
	}
}

// A comment is read line by line; a line that is wider than a window is not read. Examples and
// tables, which begin with a tab, and a word that cannot be broken keep their width.
func TestCommentsAreNarrow(t *testing.T) {
	for _, file := range goFiles(t) {
		text := read(t, file)
		var s scanner.Scanner
		set := token.NewFileSet()
		f := set.AddFile(file, -1, len(text))
		s.Init(f, []byte(text), nil, scanner.ScanComments)
		lines := strings.Split(text, "\n")
		for {
			at, kind, comment := s.Scan()
			if kind == token.EOF {
				break
			}
			line := lines[f.Line(at)-1]
			words := strings.Fields(strings.TrimPrefix(comment, "//"))
			own := kind == token.COMMENT && strings.HasPrefix(strings.TrimSpace(line), "//")
			if !own || len(words) < 2 || strings.HasPrefix(comment, "//\t") {
				continue
			}
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); n > widthMax {
				t.Errorf("%s:%d: the comment is %d columns wide, limit %d", file, f.Line(at), n, widthMax)
			}
		}
	}
}

func TestNothingIsPutOff(t *testing.T) {
	banned := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	for _, file := range files(t, ".go", ".sql", ".md", ".yaml", "Makefile") {
		for n, line := range strings.Split(read(t, file), "\n") {
			if word := banned.FindString(line); word != "" {
				t.Errorf("%s:%d: %s: do it now, or leave it out", file, n+1, word)
			}
		}
	}
}

// A sleep in a test is either too short or too long. Inside a synctest bubble time is fake, and
// sleeping is free.
func TestNoTestSleeps(t *testing.T) {
	bubbles := map[string]bool{} // packages that test in bubbles
	for _, file := range files(t, "_test.go") {
		if strings.Contains(read(t, file), `"testing/synctest"`) {
			bubbles[path.Dir(file)] = true
		}
	}
	for _, file := range files(t, "_test.go") {
		if strings.Contains(read(t, file), "time.Sl"+"eep(") && !bubbles[path.Dir(file)] {
			t.Errorf("%s sleeps: wait for the event, or use testing/synctest", file)
		}
	}
}

func TestEveryDependencyIsExplained(t *testing.T) {
	explained := read(t, "docs/dependencies.md")
	for line := range strings.Lines(read(t, "go.mod")) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) != 2 || !strings.HasPrefix(fields[1], "v") {
			continue // not a requirement, or an indirect one
		}
		if !strings.Contains(explained, "`"+fields[0]+"`") {
			t.Errorf("docs/dependencies.md does not say what `%s` saves us", fields[0])
		}
	}
}

// pathsIn returns what a document puts in `backquotes` that looks like a path in this repository.
func pathsIn(t *testing.T, doc string) []string {
	t.Helper()
	looksLikePath := regexp.MustCompile(`^[a-z0-9_.-]+(/[A-Za-z0-9_.-]+)+$|^[A-Za-z0-9_.-]+\.(go|md|sql|yaml|mod)$`)
	var paths []string
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(read(t, doc), -1) {
		name := strings.TrimSuffix(m[1], "/")
		info, err := os.Stat(filepath.Join(root(t), name))
		if looksLikePath.MatchString(name) || err == nil && info.IsDir() {
			paths = append(paths, name)
		}
	}
	return paths
}

func importsOf(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root(t), file), nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for _, spec := range parsed.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if name == module {
			ours = append(ours, ".")
		} else if rest, ok := strings.CutPrefix(name, module+"/"); ok {
			ours = append(ours, rest)
		}
	}
	return ours
}

func goFiles(t *testing.T) []string { return files(t, ".go") }

// files returns the repository's files with one of the endings, as slash paths from its root.
func files(t *testing.T, endings ...string) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS(root(t)), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "weir-data") {
				return fs.SkipDir
			}
			return nil
		}
		if slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(name, e) }) {
			found = append(found, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("no file ends in %q under %s", endings, root(t))
	}
	return found
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// root is the repository: tests run in their package's directory.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
