package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable makes text from outside safe to print: names and values may hold escape sequences that
// move the cursor, recolor the screen or write to the clipboard. Control characters, marks that
// turn the direction of text, and bytes that are not UTF-8 become escapes such as \n, \x1b and
// \u202e. Tabs stay.
func printable(text string) string {
	if !strings.ContainsFunc(text, dangerous) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case dangerous(r) && r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case dangerous(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// printableJSON does the same for JSON that is already encoded. There such characters occur inside
// strings only, where \u escapes say the same.
func printableJSON(text []byte) []byte {
	if !strings.ContainsFunc(string(text), dangerous) {
		return text
	}
	var b strings.Builder
	for _, r := range string(text) {
		if dangerous(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return []byte(b.String())
}

func dangerous(r rune) bool {
	return r != '\t' && (unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r))
}
