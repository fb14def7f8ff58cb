package eventlog_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

func TestLooseRecordsAreSealedAsTheirTopicAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &gate{Store: memory.New(), open: make(chan struct{})}
		gate.pass()
		log := open(t, gate, eventlog.Config{})
		plain, first := topic(t, log, "plain", 1), topic(t, log, "first", 1)
		packed, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "packed", Partitions: 1, Config: map[string]string{
			"compression.type": "gzip", "message.timestamp.type": "LogAppendTime", "max.message.bytes": "5000"}})
		if err != nil {
			t.Fatal(err)
		}
		gate.shut()
		var publishers sync.WaitGroup
		publish := func(p eventlog.Partition, value []byte) {
			publishers.Go(func() {
				if _, err := log.Publish(t.Context(), p, batch.Record{Value: value, Timestamp: 1}); err != nil {
					t.Error(err)
				}
			})
		}
		publish(first.Partitions[0], nil) // while its flush travels, the others gather
		synctest.Wait()
		for i := range 100 {
			for _, p := range []eventlog.Partition{plain.Partitions[0], packed.Partitions[0]} {
				publish(p, fmt.Appendf(nil, "%0800d", i))
			}
		}
		synctest.Wait()
		gate.pass()
		publishers.Wait()
		for _, c := range []struct {
			topic      eventlog.Topic
			codec      batch.Codec
			appendTime bool
			records    int // most in a batch
		}{{plain, batch.None, false, 100}, {packed, batch.Gzip, true, 4}} {
			got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: c.topic.Partitions[0], MaxBytes: 1 << 20}}})
			if err != nil {
				t.Fatal(err)
			}
			most := 0
			for _, b := range got[0].Batches {
				h, err := batch.Check(b.Bytes)
				if err != nil || h.Attributes.Codec() != c.codec || h.Attributes.AppendTime() != c.appendTime || int64(b.MaxTime) != h.MaxTimestamp {
					t.Errorf("topic %s: %v, %v, append time %v, newest %d and %d", c.topic.Name, err, h.Attributes.Codec(), h.Attributes.AppendTime(), b.MaxTime, h.MaxTimestamp)
				}
				most = max(most, int(b.Records))
			}
			if n := len(values(t, log, c.topic.Partitions[0])); n != 100 || most > c.records || most < c.records-1 {
				t.Errorf("topic %s: %d records, %d in a batch, want %d", c.topic.Name, n, most, c.records)
			}
		}
	})
}

// A setting that changes goes for the next flush, in every process that has heard of it.
func TestLooseRecordsFollowAChangedSetting(t *testing.T) {
	store := memory.New()
	here, there := open(t, store, eventlog.Config{}), open(t, store, eventlog.Config{})
	p := topic(t, here, "orders", 1).Partitions[0]
	for i, codec := range []string{"gzip", "producer"} {
		_, err := here.AlterTopic(t.Context(), "orders", func(c map[string]string) error { c["compression.type"] = codec; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := there.RefreshTopics(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, log := range []*eventlog.Log{here, there} {
			o, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("v")})
			if err != nil {
				t.Fatal(err)
			}
			got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: o, MaxBytes: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			if h, err := batch.Check(got[0].Batches[0].Bytes); err != nil || h.Attributes.Codec() != []batch.Codec{batch.Gzip, batch.None}[i] {
				t.Errorf("compression.type is %s, and a batch is in %v (%v)", codec, h.Attributes.Codec(), err)
			}
		}
	}
}

func TestCommittedBatchesAreReadAtOnceAndFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.New()}
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "orders", 1).Partitions[0]
		started := make(chan struct{})
		got := make(chan []eventlog.Slice)
		go func() {
			close(started)
			slices, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, MaxBytes: 1 << 20}}, MaxWait: 1 << 60})
			if err != nil {
				t.Error(err)
			}
			got <- slices
		}()
		<-started
		synctest.Wait() // the reader waits

		e := sealed(t, p, 3, -1, 0, 0)
		out, err := store.Store.Commit(t.Context(), []eventlog.Entry{e}) // by another way than the log
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		_, mark, err := store.Changes(t.Context(), eventlog.Mark{})
		if err != nil {
			t.Fatal(err)
		}
		reads := store.reads.Load()
		placed := []eventlog.Placed{{Base: out[0].Base[0], Batch: e.Batches[0]}}
		log.Committed(mark.Incarnation, placed)
		synctest.Wait() // no time passes here: no poll helped
		select {
		case slices := <-got:
			if len(slices[0].Batches) != 1 || slices[0].Batches[0].Records != 3 {
				t.Errorf("read %v", slices)
			}
		default:
			t.Error("the reader still waits")
		}
		log.Committed(mark.Incarnation, placed) // twice is once
		if n := len(values(t, log, p)); n != 3 || store.reads.Load() != reads {
			t.Errorf("%d records, %d trips", n, store.reads.Load()-reads)
		}
	})
}
