package kafka_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// fetched is what a fetch answers: bytes of each partition that is in the answer, in order.
func (b *broker) fetched(req *kmsg.FetchRequest) (sizes []int, total int) {
	b.t.Helper()
	resp := ask[*kmsg.FetchResponse](b, req)
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if rp.ErrorCode != 0 {
				b.t.Errorf("partition %d: error %d", rp.Partition, rp.ErrorCode)
			}
			sizes = append(sizes, len(rp.RecordBatches))
			total += len(rp.RecordBatches)
		}
	}
	return sizes, total
}

// A partition mentioned many times is answered once, with no more bytes than the request allows,
// from the tail and from the store.
func TestAFetchThatMentionsAPartitionManyTimesIsAnsweredOnce(t *testing.T) {
	store := memory.New()
	b := startOn(t, store, kafka.Config{})
	b.createTopic("t", 1, nil)
	for range 20 {
		b.mustProduce("t", 0, sealed(t, batch.None, batch.Record{Value: make([]byte, 100<<10)}))
	}
	for _, b := range []*broker{b, startOn(t, store, kafka.Config{})} { // the second has nothing in memory
		req := fetchRequest("t", 0, 0)
		req.MaxBytes = 1 << 20
		one := req.Topics[0].Partitions[0]
		one.PartitionMaxBytes = 1 << 20
		req.Topics[0].Partitions = nil
		for i := range 200 {
			one.FetchOffset = int64(i % 20)
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, one)
		}
		req.Topics = append(req.Topics, req.Topics[0])
		if sizes, total := b.fetched(req); len(sizes) != 1 || total == 0 || total > 1<<20 {
			t.Errorf("400 mentions are answered with %d partitions and %d bytes", len(sizes), total)
		}
	}
}

// KIP-74: the first partition that has anything brings its first batch however large, and no other
// partition does. Clients ask for partitions in turn, so each gets on.
func TestOnlyOnePartitionBringsABatchLargerThanAllowed(t *testing.T) {
	store := memory.New()
	b := startOn(t, store, kafka.Config{})
	b.createTopic("t", 4, nil)
	for n := range int32(3) {
		b.mustProduce("t", n+1, sealed(t, batch.None, batch.Record{Value: make([]byte, 200<<10)}))
	}
	for _, b := range []*broker{b, startOn(t, store, kafka.Config{})} {
		for first := range int32(4) {
			req := fetchRequest("t", 0, 0)
			req.MaxBytes = 100_000
			one := req.Topics[0].Partitions[0]
			one.PartitionMaxBytes = 1000
			req.Topics[0].Partitions = nil
			for i := range int32(4) {
				one.Partition = (first + i) % 4
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, one)
			}
			sizes, total := b.fetched(req)
			with := 0
			if first == 0 { // which is empty
				with = 1
			}
			if len(sizes) != 4 || sizes[with] < 200<<10 || total != sizes[with] {
				t.Errorf("asked from partition %d on: %v bytes", first, sizes)
			}
		}
	}
}

// sluggish is a broker in fake time with a topic of so many batches of 1 MiB that are not in its
// memory, and 16 MiB for answers with records.
func sluggish(t *testing.T, batches int, test func(t *testing.T, l *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		store, l := memory.New(), newPipes()
		b := startAt(t, store, l, kafka.Config{}.With(kafka.Limits{FetchBytes: 1}))
		writer := startAt(t, store, newPipes(), kafka.Config{})
		p := writer.createTopic("t", 1, nil).Partitions[0]
		for range batches {
			if _, err := writer.log.Publish(t.Context(), p, batch.Record{Value: make([]byte, 1<<20)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // until the broker has heard of it
		test(t, l)
		b.stop()
		writer.stop()
	})
}

// askAll has clients send a request each. They take nothing of the answers.
func (p *pipes) askAll(t *testing.T, clients int, req kmsg.Request) (conns []*wire) {
	raw := frame(req, 1)
	for range clients {
		w := p.patient(t)
		conns = append(conns, w)
		go func() { _, _ = w.nc.Write(raw) }()
	}
	synctest.Wait()
	return conns
}

func TestRecordsThatNobodyTakesStayWithinTheirBudget(t *testing.T) {
	const (
		room  = 16 << 20
		batch = 1<<20 + 1000
		each  = 64 << 10 // goroutines and buffers of a connection, and of its client
	)
	measuresMemory(t)
	for name, c := range map[string]struct {
		clients  int
		most     int32 // of a partition
		repeated int
	}{
		"large answers":                       {30, 16 << 20, 1},
		"a first batch larger than asked for": {100, 1, 1},
		"behind each other":                   {10, 16 << 20, 10},
	} {
		t.Run(name, func(t *testing.T) {
			sluggish(t, 20, func(t *testing.T, l *pipes) {
				req := fetchRequest("t", 0, 0)
				req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = c.most, c.most
				before := liveBytes()
				conns := l.askAll(t, c.clients, req)
				if held, limit := liveBytes()-before, int64(room+batch+c.clients*each); held > limit {
					t.Errorf("%d clients that take no records hold %d bytes, the limit is %d", c.clients, held, limit)
				}
				for _, w := range conns {
					w.nc.Close()
				}
			})
		})
	}
}

// A client that takes its records waits a little for those that take none, and no longer.
func TestClientsThatTakeNoRecordsStopNobody(t *testing.T) {
	sluggish(t, 20, func(t *testing.T, l *pipes) {
		req := fetchRequest("t", 0, 0)
		req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = 16<<20, 16<<20
		conns := l.askAll(t, 30, req)
		began := time.Now()
		w := l.patient(t)
		w.send(frame(req, 1))
		if n := len(w.receive(req, 1).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches); n < 1<<20 {
			t.Errorf("it gets %d bytes", n)
		}
		if took := time.Since(began); took > 30*silent {
			t.Errorf("it waits %v", took)
		}
		for _, w := range append(conns, w) {
			w.nc.Close()
		}
	})
}
