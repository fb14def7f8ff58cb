package mysql

import (
	"runtime"
	"testing"
)

// The text of an INSERT is made once, and not once for each of its rows.
func TestTheTextOfManyRowsIsMadeOnce(t *testing.T) {
	var values [][]any
	for range rowsMax {
		values = append(values, []any{[]byte("key"), int64(1), []byte("value")})
	}
	w := &writer{most: textMax}
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := allocated()
	if err := w.insert("weir_state", "(?, ?, ?, "+now+")", "", values); err != nil {
		t.Fatal(err)
	}
	text := uint64(w.text.sql.Len())
	if took := allocated() - before; took > 8*text {
		t.Errorf("a text of %d bytes took %d bytes of memory to make", text, took)
	}
}
