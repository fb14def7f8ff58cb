package kafka_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// hoarders send one request each and take no answer. It returns what they hold.
func hoarders(t *testing.T, l *pipes, raw []byte, clients int) int64 {
	t.Helper()
	var ws []*wire
	before := liveBytes()
	for range clients {
		w := l.patient(t)
		ws = append(ws, w)
		go func() { _, _ = w.nc.Write(raw) }()
	}
	synctest.Wait()
	held := liveBytes() - before
	for _, w := range ws {
		w.nc.Close()
	}
	synctest.Wait()
	return held
}

// The answer to a Fetch of what there is not has no records, and yet a row for each mention.
func TestFetchesWithoutRecordsThatNobodyTakesAreClaimed(t *testing.T) {
	const clients, mentions, limit = 50, 20_000, 48 << 20 // 16 MiB for fetches, one answer, one request, and connections
	measuresMemory(t)
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		b := startAt(t, memory.New(), l, kafka.Config{NoAutoCreate: true}.With(kafka.Limits{InFlightBytes: 1, FetchBytes: 1, FrameBytes: 3 << 20}))
		synctest.Wait()
		for depth := range 2 {
			for _, version := range []int16{4, 11, 12, b.maxVersion(kmsg.Fetch)} {
				raw := requestOf(int16(kmsg.Fetch), version, kafka.Mentions{Name: "no such", ID: [16]byte{1}}, depth, mentions)
				if held := hoarders(t, l, raw, clients); held > limit {
					t.Errorf("version %d, %d mentions at depth %d: %d clients that take no answer hold %d bytes, the limit is %d", version, mentions, depth, clients, held, limit)
				}
			}
		}
		b.stop()
	})
}

// Few bytes decompress to a batch of a megabyte, for a topic that keeps it so. The log counts
// batches that wait for the store, the server those that wait for the log.
func TestRecompressedBatchesThatNobodyTakesAreCounted(t *testing.T) {
	const (
		clients = 150
		size    = 1 << 20  // of a batch as it is kept
		queue   = 32 << 20 // eventlog.Config.QueueBytes
		limit   = queue + 2*pool + 2*size + clients*(96<<10)
	)
	measuresMemory(t)
	for _, version := range []int16{3, 8, 9, 12} {
		crowd(t, func(t *testing.T, l *pipes, b *broker, s *troubled) {
			b.createTopic("plain", 1, map[string]string{"compression.type": "uncompressed", "max.message.bytes": "1200000"})
			req := produceRequest("plain", 0, sealed(t, batch.Gzip, batch.Record{Value: make([]byte, size), Timestamp: 1}))
			req.Version = version
			raw := frame(req, 1)
			hold := make(chan struct{})
			s.set(func(s *troubled) { s.hold = hold })
			before := liveBytes()
			var running sync.WaitGroup
			for range clients {
				w := l.patient(t)
				running.Go(func() {
					w.send(raw)
					p := w.receive(req, 1).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
					wantCode(t, "produce", p.ErrorCode, nil)
					w.nc.Close()
				})
			}
			synctest.Wait()
			held := liveBytes() - before
			if held > limit || held < queue/2 {
				t.Errorf("version %d: %d requests of %d bytes hold %d bytes, the limit is %d", version, clients, len(raw), held, limit)
			}
			close(hold)
			running.Wait()
		})
	}
}

// measuresMemory leaves a test out under the race detector, which needs memory of its own. `make
// test` runs those tests once more without it: by their names.
func measuresMemory(t *testing.T) {
	t.Helper()
	if !strings.Contains(t.Name(), "NobodyTakes") {
		t.Fatal("the name of a test that measures memory contains NobodyTakes, by which `make test` runs it without the race detector")
	}
	if kafka.ArrayCopies > 1 {
		t.Skip("the race detector needs memory of its own")
	}
}
