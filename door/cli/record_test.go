package cli

import (
	"bufio"
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What decodes is the same again after encoding and decoding, but for headers: JSON cannot tell
// that there are none.
func FuzzRecordLine(f *testing.F) {
	f.Add([]byte(`{"partition":1,"timestamp":"2026-01-31T08:00:00.123Z","key":"k","value":"a\u001b<é>","headers":[{"name":"h"}]}`))
	f.Add([]byte(`{"key_b64":"//8=","value_b64":"AAH/","timestamp":1769846400124}`))
	f.Add([]byte(`{"value":null} {}`))
	f.Add([]byte(`{"timestamp":99999999999999999}`))
	f.Add([]byte(`{"timestamp":"1969-12-31T23:59:59.999Z"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		record, err := decodeRecord(text)
		if err != nil {
			return
		}
		if record.Partition == anyPartition {
			record.Partition = 0
		}
		if record.Timestamp.IsZero() { // the producer would give it the present time
			record.Timestamp = time.UnixMilli(1)
		}
		record.Timestamp = record.Timestamp.UTC().Truncate(time.Millisecond)
		encoded, err := encodeRecord(record)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeRecord(bytes.TrimSuffix(encoded, []byte("\n")))
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		again.Timestamp = again.Timestamp.UTC()
		same := cmp.Comparer(func(a, b *kgo.Record) bool {
			return bytes.Equal(a.Key, b.Key) && (a.Key == nil) == (b.Key == nil) &&
				bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil) &&
				a.Partition == b.Partition && a.Timestamp.Equal(b.Timestamp) && cmp.Equal(a.Headers, b.Headers)
		})
		if !cmp.Equal(record, again, same) {
			t.Fatalf("%+v became %+v by way of %s", record, again, encoded)
		}
	})
}

// Lines are what is between the ends of lines, whatever the size of the reads, and none is longer
// than the limit.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nc"), 3)
	f.Add([]byte("\r\n\r\r\n"), 1)
	f.Add([]byte("abc\nabcd\r\n"), 3)
	f.Fuzz(func(t *testing.T, text []byte, limit int) {
		limit = min(max(limit, 0), 1000)
		in := bufio.NewReaderSize(bytes.NewReader(text), 16)
		var want [][]byte
		if len(text) > 0 {
			want = bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
		}
		for i, w := range want {
			w = bytes.TrimSuffix(w, []byte("\r"))
			got, err := readLine(in, limit)
			if len(w) > limit {
				if err == nil {
					t.Fatalf("line %d has %d bytes, and the limit is %d", i+1, len(w), limit)
				}
				return
			}
			if err != nil || !bytes.Equal(got, w) {
				t.Fatalf("line %d is %q, %v; want %q", i+1, got, err, w)
			}
		}
		if got, err := readLine(in, limit); err != io.EOF {
			t.Fatalf("after the end: %q, %v", got, err)
		}
	})
}
