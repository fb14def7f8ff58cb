package kafka

import (
	"bytes"
	"testing"
)

// FuzzOAuthMessage takes anything as a client's first message: what is accepted has a token that
// stands in it, and no byte that the form does not allow.
func FuzzOAuthMessage(f *testing.F) {
	for _, seed := range []string{"n,,\x01auth=Bearer a.b.c\x01\x01", "n,a=al=2Cice=3D,\x01host=x\x01auth=bearer  t\x01port=9\x01\x01", "\x01", "n,,\x01\x01", "y,,\x01auth=Bearer t\x01\x01"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		as, text, err := parseOAuth(message)
		if err != nil {
			if as != "" || text != "" {
				t.Errorf("%q is refused, and has the token %q of %q", message, text, as)
			}
			return
		}
		if text == "" || !bytes.Contains(message, []byte(text)) || bytes.ContainsAny([]byte(text), "\x00\x01") || bytes.IndexByte([]byte(as), 0) >= 0 || !bytes.HasPrefix(message, []byte("n,")) || !bytes.HasSuffix(message, []byte("\x01\x01")) {
			t.Errorf("%q has the token %q of %q", message, text, as)
		}
	})
}
