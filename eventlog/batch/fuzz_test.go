package batch_test

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog/batch"
)

// fuzzLimit is low, so that the fuzzer finds what is above it.
const fuzzLimit = 64 << 10

// FuzzCheck gives any bytes to all that takes bytes from the network.
func FuzzCheck(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) {
		size := 0
		for piece, err := range batch.Split(raw) {
			if err != nil {
				break
			}
			size += len(piece)
			if h, err := batch.Parse(piece); err == nil && int(h.Length)+12 != len(piece) {
				t.Fatalf("%d bytes say they have %d", len(piece), h.Length+12)
			}
		}
		if size > len(raw) {
			t.Fatalf("split %d bytes into %d", len(raw), size)
		}
		h, err := batch.Check(raw)
		if err != nil {
			return
		}
		batch.Patch(raw, 77, 8)
		again, err := batch.Check(raw)
		if h.BaseOffset, h.LeaderEpoch = 77, 8; err != nil || again != h {
			t.Fatalf("patched: %+v, %v", again, err)
		}
	})
}

// FuzzValidate holds Validate and Records to each other and to franz-go, on batches that are whole
// but hold anything.
func FuzzValidate(f *testing.F) {
	f.Fuzz(func(t *testing.T, codec byte, count uint16, records []byte) {
		raw := craft(batch.Codec(codec%5), int32(count), records)
		h, err := batch.Check(raw)
		if err != nil {
			return
		}
		_, valid := batch.Validate(raw, h, fuzzLimit)
		var got []batch.Record
		var readable error
		for rec, err := range batch.Records(raw, fuzzLimit) {
			if err != nil {
				readable = err
				break
			}
			got = append(got, rec)
		}
		if valid != nil {
			return
		}
		if readable != nil || len(got) != int(count) {
			t.Fatalf("valid, but %d of %d records can be read: %v", len(got), count, readable)
		}
		response := kmsg.NewFetchResponseTopicPartition()
		response.RecordBatches = raw
		partition, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &response, kgo.DefaultDecompressor(), nil)
		if partition.Err != nil || len(partition.Records) != len(got) {
			t.Fatalf("valid, but franz-go reads %d of %d records: %v", len(partition.Records), count, partition.Err)
		}
		for i, r := range partition.Records {
			if !bytes.Equal(r.Key, got[i].Key) || !bytes.Equal(r.Value, got[i].Value) || len(r.Headers) != len(got[i].Headers) {
				t.Fatalf("franz-go reads %+v, we %+v", r, got[i])
			}
		}
	})
}

// FuzzRecords sees that whatever can be read can be sealed, and is the same then.
func FuzzRecords(f *testing.F) {
	f.Fuzz(func(t *testing.T, count uint16, records []byte) {
		var first []batch.Record
		for rec, err := range batch.Records(craft(batch.None, int32(count), records), fuzzLimit) {
			if err != nil || rec.Timestamp < batch.NoTimestamp {
				return
			}
			first = append(first, rec)
		}
		for _, codec := range codecs {
			raw := seal(t, first, codec)
			var again []batch.Record
			for rec, err := range batch.Records(raw, 2*fuzzLimit) {
				if err != nil {
					t.Fatal(err)
				}
				again = append(again, rec)
			}
			if !reflect.DeepEqual(first, again) {
				t.Fatalf("%v: %+v became %+v", codec, first, again)
			}
		}
	})
}

// FuzzDecompress gives any bytes to the decoders.
func FuzzDecompress(f *testing.F) {
	f.Fuzz(func(t *testing.T, codec byte, data []byte) {
		from := batch.Codec(codec%4 + 1)
		raw, err := batch.Recompress(craft(from, 1, data), batch.None, fuzzLimit, math.MaxInt)
		if err != nil {
			return
		}
		if len(raw) > 61+fuzzLimit {
			t.Fatalf("%d bytes, the limit is %d", len(raw)-61, fuzzLimit)
		}
		if len(raw) < 61+7 {
			return // too little for a record, and so for a batch
		}
		for _, to := range codecs {
			there, err := batch.Recompress(raw, to, fuzzLimit, math.MaxInt)
			if err != nil {
				t.Fatal(err)
			}
			back, err := batch.Recompress(there, batch.None, fuzzLimit, math.MaxInt)
			if err != nil || !bytes.Equal(raw, back) {
				t.Fatalf("through %v: %v", to, err)
			}
		}
	})
}
