package console

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// funcs are what templates call.
var funcs = template.FuncMap{
	"count": count, "rate": perSecond, "bytes": byteCount, "age": age, "when": when, "path": segment, "q": parameter,
	"body": body, "short": short, "percent": percent, "text": text, "limit": limit, "add": func(a, b int64) int64 { return a + b },
}

// parameter escapes a text for the query of a link. Its type says so: html/template would escape it
// again.
func parameter(text string) template.URL { return template.URL(url.QueryEscape(text)) }

// shownMax bounds how much of a value a page shows; a download has all of it.
const shownMax = 64 << 10

// indentedMax bounds a value once it is indented: each line begins with the spaces of its depth, so
// 58 KB of brackets and numbers would become 522 MB. A longer one is shown as it was sent.
const indentedMax = 4 * shownMax

// Text is a key, a value or a header: text, or bytes that are no text; nil in both: none.
type Text struct {
	Plain *string
	Bytes *string // in base64
	Left  int     // how many bytes more it had, which a page does not show
	As    string  // text or hex: how the reader wants to see it; empty: as it is best
}

// record has the parts that events, messages and dead letters have in common.
type record struct {
	Partition int64   `json:"partition"`
	Offset    int64   `json:"offset"`
	Timestamp *int64  `json:"timestamp"`
	Key       *string `json:"key"`
	KeyB64    *string `json:"key_b64"`
	Value     *string `json:"value"`
	ValueB64  *string `json:"value_b64"`
	Headers   []pair  `json:"headers"`
	left      int     // bytes that shorten removed from the value
	as        string  // Text.As of the value
}

// shorten removes what a page does not show of the value, so that a page which waits for more
// events holds no more than it will show.
func (r *record) shorten() {
	const encoded = (shownMax/3 + 1) * 4 // as many characters of base64 stand for more than shownMax bytes
	switch {
	case r.Value != nil && len(*r.Value) > shownMax:
		r.left = len(*r.Value) - shownMax
		kept := strings.Clone((*r.Value)[:shownMax])
		r.Value = &kept
	case r.ValueB64 != nil && len(*r.ValueB64) > encoded:
		rest := (*r.ValueB64)[encoded:]
		r.left = len(rest)/4*3 - strings.Count(rest[len(rest)-2:], "=")
		kept := strings.Clone((*r.ValueB64)[:encoded])
		r.ValueB64 = &kept
	}
}

// pair is a header, or a piece of metadata.
type pair struct {
	Name     string  `json:"name"`
	NameB64  string  `json:"name_b64"`
	Value    *string `json:"value"`
	ValueB64 *string `json:"value_b64"`
}

func (p pair) Title() string {
	if p.NameB64 != "" {
		return "base64:" + p.NameB64
	}
	return p.Name
}

// Raw is the value as text.
func (p pair) Raw() string {
	if p.Value == nil {
		return ""
	}
	return *p.Value
}

// Cause reports whether the value is the id of the event that caused this one.
func (p pair) Cause() bool { return strings.Contains(strings.ToLower(p.Name), "causation") }

func (p pair) Text() Text      { return Text{Plain: p.Value, Bytes: p.ValueB64} }
func (r record) KeyText() Text { return Text{Plain: r.Key, Bytes: r.KeyB64} }
func (r record) Body() Text    { return Text{r.Value, r.ValueB64, r.left, r.as} }

// raw returns the bytes.
func (t Text) raw() ([]byte, bool) {
	switch {
	case t.Plain != nil:
		return []byte(*t.Plain), true
	case t.Bytes != nil:
		b, err := base64.StdEncoding.DecodeString(*t.Bytes)
		return b, err == nil
	}
	return nil, false
}

// text shows a key or a header in one line.
func text(t Text) string {
	b, ok := t.raw()
	if !ok {
		return "–"
	}
	if t.Plain == nil {
		return "0x" + hex.EncodeToString(b[:min(len(b), 32)])
	}
	return short(120, string(b))
}

// shownBody is a value as a page shows it.
type shownBody struct {
	None      bool // a tombstone
	Form      string
	Text      string
	Size, Cut int // bytes; and how many of them are not shown
}

// body shows a value: JSON is indented, what is no text is a hex dump.
func body(t Text) shownBody {
	b, ok := t.raw()
	if !ok {
		return shownBody{None: true, Form: "none"}
	}
	s := shownBody{Size: len(b) + t.Left}
	if s.Size > shownMax {
		s.Cut, b = s.Size-shownMax, b[:min(len(b), shownMax)]
	}
	var indented bytes.Buffer
	switch {
	case t.As == "" && s.Cut == 0 && len(b) > 0 && indentedFits(b) && json.Indent(&indented, b, "", "  ") == nil:
		s.Form, s.Text = "JSON", indented.String()
	case t.As != "hex" && t.Plain != nil && printable(string(b)):
		s.Form, s.Text = "text", string(b)
	default:
		s.Form, s.Text = "hex", hex.Dump(b[:min(len(b), 4096)])
		s.Cut = s.Size - min(len(b), 4096)
	}
	return s
}

// indentedFits reports whether JSON has at most indentedMax bytes once it is indented.
func indentedFits(b []byte) bool {
	size, depth, inText, escaped := len(b), 0, false, false
	for _, c := range b {
		switch {
		case escaped:
			escaped = false
			continue
		case inText:
			escaped, inText = c == '\\', c != '"'
			continue
		case c == '"':
			inText = true
			continue
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth = max(depth-1, 0)
		case c == ':':
			size++ // a space
			continue
		case c != ',':
			continue
		}
		if size += 1 + 2*depth; size > indentedMax { // a line and its spaces
			return false
		}
	}
	return size <= indentedMax
}

func printable(s string) bool {
	for _, r := range strings.ToValidUTF8(s, "") {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return false
		}
	}
	return true
}

// short cuts a text that has more characters than most says.
func short(most int, s string) string {
	n := 0
	for i := range s {
		if n++; n > most {
			return s[:i] + "…"
		}
	}
	return s
}

// count writes a number with a space between thousands.
func count(v any) string {
	var n int64
	switch v := v.(type) {
	case int:
		n = int64(v)
	case int64:
		n = v
	case float64:
		n = int64(v)
	case *float64:
		return count(*v)
	case *int64:
		if v == nil {
			return "–"
		}
		n = *v
	case nil: // not known
		return "–"
	default:
		return fmt.Sprint(v)
	}
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// perSecond writes a rate, with one decimal if it is small.
func perSecond(v any) string {
	switch v := v.(type) {
	case *float64:
		return perSecond(*v)
	case float64:
		if v < 10 {
			return strconv.FormatFloat(v, 'f', 1, 64)
		}
	}
	return count(v)
}

func byteCount(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// age writes a duration with one unit. An int64 is in milliseconds, a float64 in seconds.
func age(ms any) string {
	var d time.Duration
	switch v := ms.(type) {
	case int64:
		d = time.Duration(min(v, int64(1)<<43)) * time.Millisecond
	case *float64:
		return age(*v)
	case float64: // seconds
		d = time.Duration(min(v, 1e9) * float64(time.Second))
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

// when writes a time in milliseconds since 1970 in UTC; a script shows it in the reader's zone, and
// both when the pointer rests on it.
func when(ms any) template.HTML {
	var n int64
	switch v := ms.(type) {
	case int64:
		n = v
	case *int64:
		if v == nil {
			return "–"
		}
		n = *v
	}
	at := time.UnixMilli(n).UTC()
	if y := at.Year(); y < 1 || y > 9999 {
		return template.HTML(strconv.FormatInt(n, 10) + " ms")
	}
	iso := at.Format("2006-01-02T15:04:05.000Z")
	return template.HTML(`<time datetime="` + iso + `" data-ms="` + strconv.FormatInt(n, 10) + `">` + at.Format("2006-01-02 15:04:05") + ` UTC</time>`)
}

// limit writes a limit of a quota, if there is one.
func limit(of map[string]float64, name string) string {
	if n, ok := of[name]; ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return "–"
}

// percent returns part as a percentage of all, from 0 to 100, for a bar.
func percent(part, all int64) int64 {
	if all <= 0 {
		return 0
	}
	return min(100, max(0, 100*part/all))
}
