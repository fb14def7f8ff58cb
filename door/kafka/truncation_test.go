package kafka_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// lossy is a broker whose partition ended at 6, with a client that has read it all, and whose store
// then lost all from 3 on. By the time it returns the broker knows.
func lossy(t *testing.T, reader ...kgo.Opt) (*broker, *kgo.Client) {
	t.Helper()
	store := memory.New()
	b := startOn(t, store, kafka.Config{})
	b.createTopic("t", 1, nil)
	b.mustProduce("t", 0, sealed(t, batch.None, value("kept 0"), value("kept 1"), value("kept 2")))
	restore := store.Backup()
	b.mustProduce("t", 0, sealed(t, batch.None, value("lost 3"), value("lost 4"), value("lost 5")))
	cl := b.client(append([]kgo.Opt{kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(10 * time.Millisecond)}, reader...)...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for n := 0; n < 6; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		n += fetches.NumRecords()
	}
	changed := b.log.IncarnationChanged()
	restore(false)
	select {
	case <-changed:
	case <-time.After(20 * time.Second):
		t.Fatal("the log did not see that its store lost its end")
	}
	return b, cl
}

// KIP-320: a consumer that has read what is lost hears of it, though the log has grown past its
// position meanwhile, and goes on with what is there now.
func TestAConsumerHearsThatItsLogWasCut(t *testing.T) {
	b, cl := lossy(t)
	for range 10 {
		b.mustProduce("t", 0, sealed(t, batch.None, value("new")))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var lost *kgo.ErrDataLoss
	next := int64(3)
	for next < 13 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("the consumer did not come to the end; it stands before %d, and was told of the loss: %v", next, lost != nil)
		}
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.As(err, &lost) {
				t.Error(err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != next || string(r.Value) != "new" || r.LeaderEpoch != b.log.LeaderEpoch() {
				t.Errorf("record %d, %q of epoch %d; want %d, \"new\" of epoch %d", r.Offset, r.Value, r.LeaderEpoch, next, b.log.LeaderEpoch())
			}
			next = r.Offset + 1
		})
	}
	if lost == nil || lost.ConsumedTo != 6 || lost.ResetTo != 3 {
		t.Errorf("the consumer is told %v, want that it had read to 6 and goes on at 3", lost)
	}
}

// A fetch that waits while the store is found to have lost its end is told of the new epoch, and
// not that its offset is out of range: for that clients go to where their reset policy says.
func TestAFetchThatWaitsHearsOfTheNewEpoch(t *testing.T) {
	for _, silently := range []bool{false, true} {
		store := memory.New()
		b := startOn(t, store, kafka.Config{})
		b.createTopic("t", 1, nil)
		b.mustProduce("t", 0, sealed(t, batch.None, value("kept")))
		restore := store.Backup()
		b.mustProduce("t", 0, sealed(t, batch.None, value("lost")))
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 12, 60_000, 1, 1<<20
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic = "t"
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.CurrentLeaderEpoch, rp.FetchOffset, rp.PartitionMaxBytes = 0, 2, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		got := make(chan *kmsg.FetchResponse, 1)
		go func() { got <- ask[*kmsg.FetchResponse](b, req) }()
		restore(silently)
		p := (<-got).Topics[0].Partitions[0]
		wantCode(t, "a fetch that waited", p.ErrorCode, kerr.FencedLeaderEpoch)
	}
}

func TestLeaderEpochsOfARestoredStore(t *testing.T) {
	b, _ := lossy(t)
	b.mustProduce("t", 0, sealed(t, batch.None, value("new")))
	now := b.log.LeaderEpoch()

	meta := kmsg.NewPtrMetadataRequest()
	meta.Version = 12
	if p := ask[*kmsg.MetadataResponse](b, meta).Topics[0].Partitions[0]; p.LeaderEpoch != now {
		t.Errorf("metadata tells leader epoch %d, want %d", p.LeaderEpoch, now)
	}
	for _, c := range []struct {
		current, asked, epoch int32
		end                   int64
		want                  *kerr.Error
	}{
		{-1, 0, 0, 3, nil}, {now, 0, 0, 3, nil}, {now, now - 1, 0, 3, nil}, {now, now, now, 4, nil},
		{now, now + 1, -1, -1, nil}, {0, 0, -1, -1, kerr.FencedLeaderEpoch}, {now + 1, 0, -1, -1, kerr.UnknownLeaderEpoch},
	} {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = 4
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = "t"
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.CurrentLeaderEpoch, rp.LeaderEpoch = c.current, c.asked
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		p := ask[*kmsg.OffsetForLeaderEpochResponse](b, req).Topics[0].Partitions[0]
		wantCode(t, "leader epoch", p.ErrorCode, c.want)
		if p.LeaderEpoch != c.epoch || p.EndOffset != c.end {
			t.Errorf("%+v: epoch %d ends at %d", c, p.LeaderEpoch, p.EndOffset)
		}
	}
	for at, epoch := range map[int64]int32{-1: now, -2: 0} {
		if p := b.list("t", 0, at); p.LeaderEpoch != epoch {
			t.Errorf("the offset for %d is of leader epoch %d, want %d", at, p.LeaderEpoch, epoch)
		}
	}
	if p := b.fetch("t", 0, 9); p.ErrorCode != kerr.OffsetOutOfRange.Code {
		t.Errorf("a fetch above the new end: %v", kerr.ErrorForCode(p.ErrorCode))
	}
}
