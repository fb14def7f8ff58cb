package batch_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/weir-log/weir/eventlog/batch"
)

// filled is a batch of about 1 MiB of records with values of the given size, half of it noise.
func filled(tb testing.TB, size int, codec batch.Codec) []byte {
	records := make([]batch.Record, 1<<20/size)
	for i := range records {
		value := make([]byte, size)
		if _, err := rand.Read(value[:size/2]); err != nil {
			tb.Fatal(err)
		}
		records[i] = batch.Record{Timestamp: 1_700_000_000_000 + int64(i), Value: value}
	}
	return seal(tb, records, codec)
}

func BenchmarkCheck(b *testing.B) {
	raw := filled(b, 1024, batch.None)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := batch.Check(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, codec := range codecs {
		for _, size := range []int{100, 1024} {
			b.Run(fmt.Sprintf("%v/%d", codec, size), func(b *testing.B) {
				raw := filled(b, size, codec)
				h, err := batch.Check(raw)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(1 << 20)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := batch.Validate(raw, h, batch.DefaultMaxDecompressed); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(h.Records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			records := make([]batch.Record, 1000)
			for i := range records {
				records[i] = batch.Record{Timestamp: int64(i), Value: fmt.Appendf(nil, "value %d, as services log them: level=info msg=%q", i, "hello")}
			}
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, err = batch.Append(dst[:0], records, codec); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(records))*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
