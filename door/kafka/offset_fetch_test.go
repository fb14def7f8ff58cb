package kafka_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// mute is a store that does not answer a List of topics while it is silent.
type mute struct {
	eventlog.Store
	silent atomic.Bool
}

func (m *mute) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if m.silent.Load() && strings.HasPrefix(prefix, "topic/") {
		return nil, eventlog.ErrUnavailable
	}
	return m.Store.List(ctx, prefix, after, limit)
}

func (m *mute) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if m.silent.Load() && strings.HasPrefix(keys[0], "topic/") {
		return nil, eventlog.ErrUnavailable
	}
	return m.Store.Get(ctx, keys, maxBytes)
}

// A broker that does not know a topic asks the store. Without an answer it does not know either
// what is committed there: a client that is told "nothing" would begin anew.
func TestOffsetsOfATopicThatCannotBeLookedUpAreAnError(t *testing.T) {
	store := &mute{Store: memory.New()}
	b := startOn(t, store, kafka.Config{})
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Version, fetch.Group = 7, "g"
	fetch.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	offset := func() kmsg.OffsetFetchResponseTopicPartition {
		t.Helper()
		got := ask[*kmsg.OffsetFetchResponse](b, fetch)
		if got.ErrorCode != 0 {
			t.Fatalf("error %d", got.ErrorCode)
		}
		return got.Topics[0].Partitions[0]
	}
	if p := offset(); p.ErrorCode != 0 || p.Offset != -1 {
		t.Errorf("of a topic that there is not: %+v, want offset -1", p)
	}
	store.silent.Store(true)
	if p := offset(); p.ErrorCode == 0 {
		t.Errorf("of a topic that may be there: %+v, want an error", p)
	}
}
