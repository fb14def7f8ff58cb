package httpapi

import (
	"bytes"
	"encoding/json"
	"testing"
)

// What is read as JSON is JSON for the standard library, too, and kept as it is; what is not ends
// with a place inside of it.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e3,"\ud83d\udcb6",null,true]}`, "\ufeff", `[[[[`, `"\u00`, `{"a":1,"a":2}`, `-`, `"` + "\xff", `1e400`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var raw []byte
		err := readJSON(in, 0, func(r *jsonReader) (err error) { raw, err = r.raw(); return err })
		if err == nil && (!json.Valid(in) || !bytes.Equal(raw, bytes.Trim(in, " \t\r\n"))) {
			t.Errorf("%q is read as %q", in, raw)
		}
		if p, ok := err.(*problem); ok && (p.Line < 1 || p.Column < 1 || p.Column > len(in)+1) {
			t.Errorf("%q: line %d, column %d", in, p.Line, p.Column)
		}
	})
}

// Any bytes written are read back the same.
func FuzzField(f *testing.F) {
	for _, seed := range []string{"", "text", "\x00\"\\\n\u2028é💶", "\xff\xfe", "\xed\xa0\x80"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if value == nil {
			value = []byte{}
		}
		var out bytes.Buffer
		e := newEncoder(&out)
		e.string("{")
		e.field("v", value)
		e.string("}")
		e.flush()
		var got struct {
			V   *string
			B64 []byte `json:"v_b64"`
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%q became %s: %v", value, out.Bytes(), err)
		}
		back := got.B64
		if got.V != nil {
			back = []byte(*got.V)
		}
		if !bytes.Equal(back, value) {
			t.Errorf("%q became %q", value, back)
		}
	})
}
