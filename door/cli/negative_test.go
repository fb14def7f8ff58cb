package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// kong alone takes the number for a flag.
func TestEachFlagThatTakesAValueTakesANegativeNumberAfterASpace(t *testing.T) {
	parser := commandLine(t)
	tried := map[string]bool{}
	for _, leaf := range parser.Model.Leaves(true) {
		path := strings.Fields(leaf.FullPath())[1:]
		for _, flags := range leaf.AllFlags(true) {
			for _, flag := range flags {
				words := []string{"--" + flag.Name}
				if flag.Short != 0 {
					words = append(words, "-"+string(flag.Short))
				}
				for _, word := range words {
					if flag.IsBool() {
						continue
					}
					tried[leaf.FullPath()+" "+word] = true
					_, err := parser.Parse(joinNegative(parser.Model, append(slices.Clone(path), word, "-24")))
					if err != nil && (strings.Contains(err.Error(), "unknown flag") || strings.Contains(err.Error(), "flag)")) {
						t.Errorf("%s %s -24: %v", leaf.FullPath(), word, err)
					}
				}
			}
		}
	}
	for _, documented := range []string{"weir audit --since", "weir consume --from", "weir group reset --to", "weir queue alter --attempts"} {
		if !tried[documented] {
			t.Errorf("%s was not tried", documented)
		}
	}
}

func TestNegativeNumbersOfOtherProgramsStayAsTheyAre(t *testing.T) {
	model := commandLine(t).Model
	for _, args := range [][]string{
		{"queue", "work", "mails", "--", "report", "--from", "-1h"},
		{"audit", "--follow", "-1"},
		{"audit", "--since", "--follow"},
	} {
		if got := joinNegative(model, args); !slices.Equal(got, args) {
			t.Errorf("%q became %q", args, got)
		}
	}
	weir(t, "", "audit", "--since", "-24x").want(t, exitUsage, "is not a position")
}

// commandLine returns the parser of weir's command line.
func commandLine(t *testing.T) *kong.Kong {
	t.Helper()
	var out bytes.Buffer
	parser, err := newParser(&terminal{out: &out, err: &out}, "test", func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return parser
}
