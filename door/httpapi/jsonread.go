package httpapi

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonReader parses one JSON text, member by member, and reports the exact position of an error. It
// is stricter than the standard library, as RFC 7493 (I-JSON) asks: no repeated names in an object,
// no invalid UTF-8, no unpaired surrogate. Nothing is rounded: an integer is exact or an error, and
// the numbers in a value are kept as they were sent, however large they are.
//
// After the first error the reader must not be used, unless its position is set back (parseItem):
// each function returns the error to its caller.
type jsonReader struct {
	in    []byte
	pos   int
	depth int
	names int    // number of members in all open objects
	at    []byte // the JSON pointer of the value being read

	// The position of the last fail: the next one counts lines from there, so that many errors of
	// one text do not each count from its start.
	counted   int
	line      int // the line of counted in the body, from 0
	lineStart int // where the line of counted begins
}

const (
	depthMax = 64      // bounds the nesting of arrays and objects
	namesMax = 100_000 // bounds the members of an object and of the objects around it: their names are kept, to find repeated ones
)

// readJSON reads one value with read, and checks that nothing follows it.
func readJSON(in []byte, line int, read func(*jsonReader) error) error {
	r := &jsonReader{in: in, line: line}
	if bytes.HasPrefix(in, []byte("\ufeff")) {
		return r.fail("it begins with a byte order mark; send it without one")
	}
	r.space()
	if r.pos == len(in) {
		return r.fail("it is empty")
	}
	if err := read(r); err != nil {
		return err
	}
	r.space()
	if r.pos < len(in) {
		return r.fail("there are more bytes after the end of the JSON value")
	}
	return nil
}

// pointerMax bounds the JSON pointer of a problem; a longer one is left out.
const pointerMax = 1 << 10

// fail returns a problem with the reader's current position.
func (r *jsonReader) fail(format string, args ...any) error {
	p := kindInvalidJSON.because(format, args...)
	r.countLines()
	p.Line, p.Column = r.line+1, r.counted-r.lineStart+1
	if len(r.at) <= pointerMax {
		p.Pointer = string(r.at)
	}
	where := fmt.Sprintf("line %d, column %d", p.Line, p.Column)
	if p.Pointer != "" {
		where += ", " + shorten(p.Pointer)
	}
	p.Detail = where + ": " + p.Detail
	return p
}

// countLines moves counted to the reader's position. It reads only the bytes between the two; to an
// earlier line it also reads back to that line's beginning.
func (r *jsonReader) countLines() {
	to := min(r.pos, len(r.in))
	newline := []byte("\n")
	if to >= r.counted {
		between := r.in[r.counted:to]
		if last := bytes.LastIndexByte(between, '\n'); last >= 0 {
			r.lineStart = r.counted + last + 1
		}
		r.line += bytes.Count(between, newline)
	} else {
		r.line -= bytes.Count(r.in[to:r.counted], newline)
		if to < r.lineStart {
			r.lineStart = bytes.LastIndexByte(r.in[:to], '\n') + 1
		}
	}
	r.counted = to
}

func (r *jsonReader) space() {
	for r.pos < len(r.in) && (r.in[r.pos] == ' ' || r.in[r.pos] == '\n' || r.in[r.pos] == '\r' || r.in[r.pos] == '\t') {
		r.pos++
	}
}

// peek returns the first byte of the next token, or 0 at the end.
func (r *jsonReader) peek() byte {
	r.space()
	if r.pos == len(r.in) {
		return 0
	}
	return r.in[r.pos]
}

// kindOf names the value that begins with a byte.
func kindOf(b byte) string {
	switch {
	case b == 0:
		return "the end"
	case b == '{':
		return "an object"
	case b == '[':
		return "an array"
	case b == '"':
		return "a string"
	case b == 't', b == 'f':
		return "true or false"
	case b == 'n':
		return "null"
	case b == '-', b >= '0' && b <= '9':
		return "a number"
	default:
		return strconv.QuoteToASCII(string(rune(b)))
	}
}

// expect checks that the next value is of the kind that begins with b.
func (r *jsonReader) expect(b byte, what string) error {
	if got := r.peek(); got != b {
		return r.fail("%s is expected here, but there is %s", what, kindOf(got))
	}
	return nil
}

// object calls member with each name of an object; member reads the value. A repeated name is an
// error.
func (r *jsonReader) object(member func(name string) error) error {
	if err := r.expect('{', "an object"); err != nil {
		return err
	}
	names, open := unique{}, r.names
	defer func() { r.names = open }()
	return r.inside('}', func(int) error {
		if err := r.expect('"', "a name in quotes"); err != nil {
			return err
		}
		start := r.pos
		name, err := r.text()
		if err != nil {
			return err
		}
		if r.names++; r.names > namesMax {
			return r.fail("this object and those that contain it have more than %d members together, the limit", namesMax)
		}
		back := len(r.at)
		r.at = appendPointer(r.at, string(name))
		if !names.add(string(name)) {
			r.pos = start
			return r.fail("the object has this name twice")
		}
		if err := r.expect(':', "a colon"); err != nil {
			return err
		}
		r.pos++
		if err := member(string(name)); err != nil {
			return err
		}
		r.at = r.at[:back]
		return nil
	})
}

// array calls element for each element of an array; element reads it.
func (r *jsonReader) array(element func(i int) error) error {
	if err := r.expect('[', "an array"); err != nil {
		return err
	}
	return r.inside(']', func(i int) error {
		back := len(r.at)
		r.at = strconv.AppendInt(append(r.at, '/'), int64(i), 10)
		if err := element(i); err != nil {
			return err
		}
		r.at = r.at[:back]
		return nil
	})
}

// inside reads the comma-separated elements between brackets.
func (r *jsonReader) inside(end byte, each func(i int) error) error {
	if r.depth == depthMax {
		return r.fail("it is nested deeper than %d levels, the limit", depthMax)
	}
	r.depth++
	r.pos++
	if r.peek() == end {
		r.pos++
		r.depth--
		return nil
	}
	for i := 0; ; i++ {
		if err := each(i); err != nil {
			return err
		}
		switch b := r.peek(); b {
		case ',':
			r.pos++
			r.space()
		case end:
			r.pos++
			r.depth--
			return nil
		default:
			return r.fail("a comma or %q is expected here, but there is %s", end, kindOf(b))
		}
	}
}

// appendPointer adds a name to a JSON pointer.
func appendPointer(at []byte, name string) []byte {
	at = append(at, '/')
	for i := range len(name) {
		switch name[i] {
		case '~':
			at = append(at, "~0"...)
		case '/':
			at = append(at, "~1"...)
		default:
			at = append(at, name[i])
		}
	}
	return at
}

// unique finds repeated names: a few names in a list, many in a map.
type unique struct {
	few  []string
	many map[string]bool
}

func (u *unique) add(name string) bool {
	const few = 16
	switch {
	case u.many != nil:
	case slices.Contains(u.few, name):
		return false
	case len(u.few) < few:
		u.few = append(u.few, name)
		return true
	default:
		u.many = make(map[string]bool)
		for _, n := range u.few {
			u.many[n] = true
		}
	}
	if u.many[name] {
		return false
	}
	u.many[name] = true
	return true
}

// unknown refuses the member just named.
func (r *jsonReader) unknown(name string, known ...string) error {
	return r.fail("the name %q is not allowed here%s", shorten(name), suggest(name, known))
}

// text reads a string. The bytes alias the input if nothing in it is escaped.
func (r *jsonReader) text() ([]byte, error) {
	if err := r.expect('"', "a string"); err != nil {
		return nil, err
	}
	start := r.pos + 1
	for i := start; i < len(r.in); i++ {
		switch b := r.in[i]; {
		case b == '"':
			s := r.in[start:i]
			if !utf8.Valid(s) {
				return nil, r.failUTF8(start, s)
			}
			r.pos = i + 1
			return s, nil
		case b == '\\':
			return r.escaped(start, i)
		case b < ' ':
			r.pos = i
			return nil, r.fail("a control character in a string must be written as \\u%04x", b)
		}
	}
	r.pos = len(r.in)
	return nil, r.fail("the string does not end")
}

// string is text as a string.
func (r *jsonReader) string() (string, error) {
	b, err := r.text()
	return string(b), err
}

// escaped continues text from the first backslash on.
func (r *jsonReader) escaped(start, i int) ([]byte, error) {
	out := append([]byte(nil), r.in[start:i]...)
	for i < len(r.in) {
		switch b := r.in[i]; {
		case b == '"':
			if raw := r.in[start:i]; !utf8.Valid(raw) {
				return nil, r.failUTF8(start, raw)
			}
			r.pos = i + 1
			return out, nil
		case b == '\\':
			r.pos = i
			var err error
			if out, i, err = r.unescape(out, i+1); err != nil {
				return nil, err
			}
		case b < ' ':
			r.pos = i
			return nil, r.fail("a control character in a string must be written as \\u%04x", b)
		default:
			out = append(out, b)
			i++
		}
	}
	r.pos = len(r.in)
	return nil, r.fail("the string does not end")
}

// unescape reads what follows a backslash.
func (r *jsonReader) unescape(out []byte, i int) ([]byte, int, error) {
	if i == len(r.in) {
		return nil, 0, r.fail("the string does not end")
	}
	const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if k := strings.IndexByte(from, r.in[i]); k >= 0 {
		return append(out, to[k]), i + 1, nil
	}
	high, ok := r.hex4(i)
	if !ok {
		return nil, 0, r.fail("after a backslash there must be one of %s, or u and four hexadecimal digits", from)
	}
	if !utf16.IsSurrogate(high) {
		return utf8.AppendRune(out, high), i + 5, nil
	}
	if i+5 < len(r.in) && r.in[i+5] == '\\' {
		if low, ok := r.hex4(i + 6); ok {
			if both := utf16.DecodeRune(high, low); both != utf8.RuneError {
				return utf8.AppendRune(out, both), i + 11, nil
			}
		}
	}
	return nil, 0, r.fail("\\u%04x is one half of a surrogate pair, but the other half is missing", high)
}

// hex4 reads u and four hexadecimal digits at i.
func (r *jsonReader) hex4(i int) (rune, bool) {
	if i+5 > len(r.in) || r.in[i] != 'u' {
		return 0, false
	}
	var n rune
	for _, b := range r.in[i+1 : i+5] {
		digit := strings.IndexByte("0123456789abcdef", b|0x20)
		if digit < 0 || b < '0' {
			return 0, false
		}
		n = n<<4 | rune(digit)
	}
	return n, true
}

func (r *jsonReader) failUTF8(start int, s []byte) error {
	for len(s) > 0 {
		c, size := utf8.DecodeRune(s)
		if c == utf8.RuneError && size == 1 {
			break
		}
		start, s = start+size, s[size:]
	}
	r.pos = start
	return r.fail("the text is not valid UTF-8; send binary data in base64")
}

// base64 reads a string of standard base64, padded.
func (r *jsonReader) base64() ([]byte, error) {
	r.space()
	start := r.pos
	s, err := r.text()
	if err != nil {
		return nil, err
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(s)))
	n, err := base64.StdEncoding.Strict().Decode(out, s)
	if err != nil || bytes.ContainsAny(s, "\r\n") {
		r.pos = start
		return nil, r.fail("it is not valid base64 (RFC 4648, with padding, without line ends)")
	}
	return out[:n], nil
}

// integer reads a whole number.
func (r *jsonReader) integer(least, most int64) (int64, error) {
	r.space()
	start := r.pos
	raw, err := r.number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < least || n > most {
		r.pos = start
		return 0, r.fail("a whole number from %d to %d is expected here, but there is %s", least, most, shorten(string(raw)))
	}
	return n, nil
}

// number returns a number's text.
func (r *jsonReader) number() ([]byte, error) {
	if b := r.peek(); b != '-' && (b < '0' || b > '9') {
		return nil, r.fail("a number is expected here, but there is %s", kindOf(b))
	}
	start := r.pos
	r.skipByte('-')
	zero := r.skipByte('0')
	whole := r.digits()
	ok := (zero && whole == 0 || !zero && whole > 0) && (!r.skipByte('.') || r.digits() > 0)
	if r.skipByte('e') || r.skipByte('E') {
		_ = r.skipByte('+') || r.skipByte('-')
		ok = ok && r.digits() > 0
	}
	raw := r.in[start:r.pos]
	if !ok {
		r.pos = start
		return nil, r.fail("%s is not a valid JSON number", shorten(string(raw)))
	}
	return raw, nil
}

func (r *jsonReader) skipByte(b byte) bool {
	if r.pos < len(r.in) && r.in[r.pos] == b {
		r.pos++
		return true
	}
	return false
}

func (r *jsonReader) digits() (n int) {
	for r.pos < len(r.in) && r.in[r.pos] >= '0' && r.in[r.pos] <= '9' {
		r.pos++
		n++
	}
	return n
}

// null reads null, if it is there.
func (r *jsonReader) null() bool {
	if r.peek() != 'n' {
		return false
	}
	return r.word("null")
}

// word reads a literal.
func (r *jsonReader) word(w string) bool {
	if !bytes.HasPrefix(r.in[r.pos:], []byte(w)) {
		return false
	}
	r.pos += len(w)
	return true
}

// raw reads any value and returns its bytes unchanged.
func (r *jsonReader) raw() ([]byte, error) {
	first := r.peek()
	start := r.pos
	var err error
	switch {
	case first == '{':
		err = r.object(func(string) error { _, err := r.raw(); return err })
	case first == '[':
		err = r.array(func(int) error { _, err := r.raw(); return err })
	case first == '"':
		_, err = r.text()
	case first == '-' || first >= '0' && first <= '9':
		_, err = r.number()
	case r.word("true"), r.word("false"), r.word("null"):
	default:
		err = r.fail("a value is expected here, but there is %s", kindOf(first))
	}
	return r.in[start:r.pos], err
}
