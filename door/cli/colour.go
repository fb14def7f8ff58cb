package cli

import (
	"bytes"
	"io"
	"slices"
)

// coloured is a terminal that shows colours.
type coloured struct{ io.Writer }

// inColour returns the writer of a terminal, in colour unless its user does not want that
// (https://no-color.org) or it cannot do that.
func inColour(w io.Writer, isTTY bool, environ []string) io.Writer {
	unwanted := slices.ContainsFunc(environ, func(v string) bool {
		return v == "TERM=dumb" || len(v) > len("NO_COLOR=") && v[:len("NO_COLOR=")] == "NO_COLOR="
	})
	if !isTTY || unwanted {
		return w
	}
	return coloured{w}
}

// A style is a parameter of the control sequence SGR (ECMA-48, 8.3.117).
const (
	bold   = "1"
	red    = "31"
	yellow = "33"
)

// styled returns text in a style, if the writer shows colours.
func styled(w io.Writer, style, text string) string {
	if _, shows := w.(coloured); !shows || style == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// writeStyled writes lines, each in its style. Columns stay where they are.
func writeStyled(w io.Writer, text []byte, style func(line int) string) error {
	line := 0
	for part := range bytes.Lines(text) {
		end := "\n"
		if _, err := io.WriteString(w, styled(w, style(line), string(bytes.TrimSuffix(part, []byte(end))))+end); err != nil {
			return err
		}
		line++
	}
	return nil
}
