package kafka_test

import (
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
)

// One request names many partitions, and each batch is small until it is decompressed. What is
// beyond the request's limit is refused with a code on which clients send it again, and each try
// gets on.
func TestWhatTheBatchesOfARequestDecompressToIsBounded(t *testing.T) {
	const partitions, each = 40, 16 << 20
	b := start(t, kafka.Config{})
	b.createTopic("t", partitions, nil)
	raw := sealed(t, batch.Zstd, batch.Record{Value: make([]byte, each)})
	bad := brokenAtItsEnd(t, raw)
	left := make(map[int32]bool)
	for p := range int32(partitions) {
		left[p] = true
	}
	for try := 0; len(left) > 0; try++ {
		req := produceRequest("t", 0, raw)
		one := req.Topics[0].Partitions[0]
		req.Topics[0].Partitions = nil
		for p := range left {
			one.Partition, one.Records = p, raw
			if try == 0 && len(req.Topics[0].Partitions) > 0 {
				one.Records = bad // what was decompressed in vain counts as well
			}
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, one)
		}
		limit := 100<<20 + 32*len(frame(req, 1))
		done, invalid := 0, 0
		for _, p := range ask[*kmsg.ProduceResponse](b, req).Topics[0].Partitions {
			switch p.ErrorCode {
			case 0:
				done++
				delete(left, p.Partition)
			case kerr.InvalidRecord.Code:
				invalid++
			default:
				wantCode(t, text(p.ErrorMessage), p.ErrorCode, kerr.NotEnoughReplicas)
			}
		}
		if n := (done + invalid) * each; n > limit || done == 0 || n <= limit-2*each && len(left) > 0 {
			t.Fatalf("try %d: %d batches of %d bytes were appended and %d invalid ones decompressed; the limit is %d bytes", try, done, each, invalid, limit)
		}
	}
}

// brokenAtItsEnd is the batch with a byte more behind its last record: it is decompressed before it
// is found invalid.
func brokenAtItsEnd(t *testing.T, raw []byte) []byte {
	t.Helper()
	plain, err := batch.Recompress(raw, batch.None, 1<<30, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	plain = append(plain, 0)
	binary.BigEndian.PutUint32(plain[8:], uint32(len(plain)-12))
	broken, err := batch.Recompress(plain, batch.Zstd, 1<<30, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return broken
}

// Two bytes of a batch can stand for a header, of 40 bytes in memory. Whoever decodes the batch
// later would need the memory each time.
func TestABatchWhoseRecordsWouldNotFitIntoMemoryIsRefusedForGood(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 2, nil)
	bomb := sealed(t, batch.Zstd, batch.Record{Headers: make([]batch.RecordHeader, batch.DecodedMax/40+1)})
	p := b.produce("t", 0, bomb)
	wantCode(t, text(p.ErrorMessage), p.ErrorCode, kerr.MessageTooLarge)

	// Where the batches before it have used up most of what a request may decompress to, nothing
	// else is answered.
	req := produceRequest("t", 0, sealed(t, batch.Zstd, batch.Record{Value: make([]byte, 90<<20)}))
	second := req.Topics[0].Partitions[0]
	second.Partition, second.Records = 1, bomb
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, second)
	parts := ask[*kmsg.ProduceResponse](b, req).Topics[0].Partitions
	wantCode(t, text(parts[0].ErrorMessage), parts[0].ErrorCode, nil)
	wantCode(t, text(parts[1].ErrorMessage), parts[1].ErrorCode, kerr.MessageTooLarge)
}
