package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the docs tell people to type is a command line of weir: its commands, arguments and flags
// are there, and so are its variables. It is parsed, and not run.
func TestTheCommandLinesOfTheDocsAreTaken(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var help strings.Builder
	tried := map[string]bool{}
	variables := map[string]string{} // and a page that has it
	for _, page := range append(pages, "../../README.md", "../../deploy/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bWEIR_[A-Z0-9_]+`).FindAllString(string(text), -1) {
			variables[name] = page
		}
		for _, line := range typed(string(text)) {
			if tried[line] {
				continue
			}
			tried[line] = true
			args := words(forPlaceholders.Replace(line))
			if end := slices.Index(args, "--"); end >= 0 {
				args = args[:end] // what follows is another program's
			}
			r := weir(t, "", append(args, "--help")...)
			help.WriteString(r.out)
			if r.code != exitOK && !strings.Contains(r.err, `but got "--help"`) { // that only names a flag with a value
				t.Errorf("%s: weir %s\n%s", page, line, r.err)
			}
		}
	}
	if len(tried) < 150 {
		t.Errorf("the docs have %d command lines", len(tried))
	}
	for name, page := range variables {
		if !strings.Contains(help.String(), "$"+name) && !regexp.MustCompile(`^WEIR_(TEST_|BENCH_|MESSAGE_|ROUNDS$|SCREENSHOTS$)`).MatchString(name) {
			t.Errorf("%s has the variable %s, which no command has", page, name)
		}
	}
}

// forPlaceholders writes values for what the docs have in their place.
var forPlaceholders = strings.NewReplacer("POSITION", "latest", "TIME", "2026-01-31T08:00:00Z", `"$then"`, "2026-01-31T08:00:00Z", "$partition", "0", "$end", "0", "prices.json", "docs_test.go", "…", "")

// typed returns the command lines of weir of a page, without the name of the program.
func typed(page string) (lines []string) {
	command := regexp.MustCompile(`(?:^|[;|&(] *|exec )(?:[A-Z_]+=[^ ]* )*(?:\./)?weir ([a-z-].*)`)
	add := func(code string) {
		if m := command.FindStringSubmatch(code); m != nil && !strings.HasPrefix(m[1], "has ") { // a message begins so
			lines = append(lines, m[1])
		}
	}
	fence := "" // how the block began that this line is in
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		prompt := strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "> ")
		switch {
		case strings.HasPrefix(line, "```") && fence == "":
			fence = line
		case strings.HasPrefix(line, "```"):
			fence = ""
		case fence == "":
			for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
				add(code[1])
			}
		case prompt:
			add(strings.TrimSpace(line[2:]))
		case fence == "```" || fence == "```sh":
			add(line)
		}
	}
	return lines
}

// words splits a command line at blanks as a shell does, up to where the command ends.
func words(line string) (all []string) {
	word, quote, some := "", rune(0), false
	end := func() {
		if some {
			all = append(all, word)
		}
		word, some = "", false
	}
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, some = c, true
		case quote == 0 && (strings.ContainsRune("|<>&;)\\", c) || c == '#' && !some):
			if strings.ContainsRune("<>", c) && strings.Trim(word, "0123456789") == "" {
				some = false // the number of a file, as in 2>&1
			}
			end()
			return all
		case quote == 0 && c == ' ':
			end()
		default:
			word, some = word+string(c), true
		}
	}
	end()
	return all
}
