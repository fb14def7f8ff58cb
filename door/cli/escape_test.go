package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPrintableTakesTheSting(t *testing.T) {
	for text, want := range map[string]string{
		"plain ünïcode 日本 \U0001F600\tand tab": "plain ünïcode 日本 \U0001F600\tand tab",
		"\x1b[31mred\x1b[0m":                   `\x1b[31mred\x1b[0m`,
		"two\nlines\r":                         `two\nlines\r`,
		"c1 \u009b31m":                         `c1 \u009b31m`,
		"\xff\xfe":                             `\xff\xfe`,
		"abc\u202edcba":                        `abc\u202edcba`,
		`{"a":"b\"c"}`:                         `{"a":"b\"c"}`,
		"\x00\x07\x7f":                         `\x00\x07\x7f`,
		"line\u2028separator \ufffd":           "line" + `\u2028` + "separator \ufffd",
	} {
		if got := printable(text); got != want {
			t.Errorf("printable(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestTablesTakeTheStingToo(t *testing.T) {
	var out strings.Builder
	if err := table(&out, "GROUP STATE", [][]string{{"\x1b[31mred\tapart\n", "Empty"}, {"b", "Stable"}}); err != nil {
		t.Fatal(err)
	}
	want := "GROUP" + strings.Repeat(" ", 17) + "STATE\n" + `\x1b[31mred\tapart\n` + "  Empty\nb" + strings.Repeat(" ", 21) + "Stable\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b]0;title\x07")
	f.Add("\u009b31m\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		safe := printable(text)
		if !utf8.ValidString(safe) {
			t.Fatalf("printable(%q) is not UTF-8", text)
		}
		for _, r := range safe {
			if dangerous(r) {
				t.Fatalf("printable(%q) holds %U", text, r)
			}
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if err := json.Unmarshal(encoded, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(printableJSON(encoded), &after); err != nil || before != after {
			t.Fatalf("printableJSON changed %q to %q: %v", before, after, err)
		}
	})
}
