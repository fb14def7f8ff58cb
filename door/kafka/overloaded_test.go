package kafka_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// hung is a store whose reads of keys end only with their ctx while it is shut; the log's polls are
// answered.
type hung struct {
	eventlog.Store
	shut atomic.Bool
}

func (s *hung) wait(ctx context.Context) error {
	if !s.shut.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *hung) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *hung) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, keys, maxBytes)
}

// Whose time is over, while the store answers others, hears that weir is overloaded and that
// nothing was changed, with a code after which clients try again.
func TestTheEndOfARequestsTimeIsToldAsOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hung{Store: memory.New()}
		b := startAt(t, store, newPipes(), kafka.Config{NoAutoCreate: true})
		defer b.stop()
		defer store.shut.Store(false)
		b.createTopic("t", 1, nil)
		time.Sleep(time.Second) // the log has read what changed
		store.shut.Store(true)
		told := func(what string, code int16, text *string) {
			t.Helper()
			if text == nil {
				text = new(string)
			}
			if code != kerr.KafkaStorageError.Code && code != kerr.NotEnoughReplicas.Code || !strings.Contains(*text, "overloaded") || !strings.Contains(*text, "Nothing was changed") {
				t.Errorf("%s: code %d, %q", what, code, *text)
			}
		}
		create := kmsg.NewPtrCreateTopicsRequest()
		create.Version, create.TimeoutMillis = 5, 5000
		create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "new", NumPartitions: 1, ReplicationFactor: 1}}
		created := ask[*kmsg.CreateTopicsResponse](b, create).Topics[0]
		told("create a topic", created.ErrorCode, created.ErrorMessage)
		grow := kmsg.NewPtrCreatePartitionsRequest()
		grow.Version, grow.TimeoutMillis = 1, 5000
		grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 2}}
		grown := ask[*kmsg.CreatePartitionsResponse](b, grow).Topics[0]
		told("create partitions", grown.ErrorCode, grown.ErrorMessage)
		produce := kmsg.NewPtrProduceRequest()
		produce.Version, produce.Acks, produce.TimeoutMillis = 8, -1, 5000
		records := sealed(t, 0, value("v"))
		for _, topic := range []string{"unheard", "t"} { // when it is the turn of the second, the time is over
			produce.Topics = append(produce.Topics, kmsg.ProduceRequestTopic{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: records}}})
		}
		for _, topic := range ask[*kmsg.ProduceResponse](b, produce).Topics {
			told("produce to "+topic.Topic, topic.Partitions[0].ErrorCode, topic.Partitions[0].ErrorMessage)
		}
	})
}
