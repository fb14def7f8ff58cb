package publish_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/publish"
)

// Every database's inbox has its headers read alike.
func TestHeadersFromSQLAreReadInTheirOrder(t *testing.T) {
	for object, want := range map[string]string{
		``:                              `[]`,
		`{}`:                            `[]`,
		`{"b": "1", "a": null}`:         `[b="1" a=null]`,
		`{"a": "", "a": "x"}`:           `[a="" a="x"]`,
		`{"n": 1.50, "l": [1], "t":{}}`: `[n="1.50" l="[1]" t="{}"]`, // of what is no text its JSON
	} {
		var from []byte // nil: the column is NULL
		if object != "" {
			from = []byte(object)
		}
		headers, err := publish.ParseHeaders(from)
		got := []string{}
		for _, h := range headers {
			value := "null"
			if h.Value != nil {
				value = fmt.Sprintf("%q", h.Value)
			}
			got = append(got, h.Key+"="+value)
		}
		if fmt.Sprint(got) != want || err != nil {
			t.Errorf("%s: %v, %v, want %s", object, got, err, want)
		}
	}
	for _, object := range []string{`[1]`, `"a"`, `null`, `{"a": "b"`, `{} {}`} {
		var invalid *eventlog.InvalidError
		if _, err := publish.ParseHeaders([]byte(object)); !errors.As(err, &invalid) {
			t.Errorf("%s: %v, want an InvalidError", object, err)
		}
	}
}
