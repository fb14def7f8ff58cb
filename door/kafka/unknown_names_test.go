package kafka_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// countingLists is a store that counts the calls of List.
type countingLists struct {
	eventlog.Store
	lists atomic.Int32
}

func (s *countingLists) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	s.lists.Add(1)
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *countingLists) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	s.lists.Add(1)
	return s.Store.Get(ctx, keys, maxBytes)
}

func TestUnknownNamesOfOneRequestCostAFewStoreCalls(t *testing.T) {
	const names = 1000
	store := &countingLists{Store: memory.New()}
	b := startOn(t, store, kafka.Config{NoAutoCreate: true})
	b.createTopic("t", 1, nil)
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.MaxBytes = 11, 1<<20
	offsets := kmsg.NewPtrListOffsetsRequest()
	offsets.Version = 4
	for n := range names {
		name := fmt.Sprint("unknown-", n)
		if n == names/2 {
			name = "t"
		}
		f := kmsg.NewFetchRequestTopic()
		f.Topic, f.Partitions = name, []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}
		fetch.Topics = append(fetch.Topics, f)
		o := kmsg.NewListOffsetsRequestTopic()
		o.Topic, o.Partitions = name, []kmsg.ListOffsetsRequestTopicPartition{kmsg.NewListOffsetsRequestTopicPartition()}
		offsets.Topics = append(offsets.Topics, o)
	}
	check := func(what string, code func(n int) int16) {
		t.Helper()
		if n := store.lists.Swap(0); n > 10 {
			t.Errorf("%s of %d unknown names makes %d store calls", what, names, n)
		}
		for n := range names {
			want := kerr.UnknownTopicOrPartition
			if n == names/2 {
				want = nil
			}
			wantCode(t, fmt.Sprint(what, " of name ", n), code(n), want)
		}
	}
	store.lists.Store(0)
	fetched := ask[*kmsg.FetchResponse](b, fetch)
	check("fetch", func(n int) int16 { return fetched.Topics[n].Partitions[0].ErrorCode })
	listed := ask[*kmsg.ListOffsetsResponse](b, offsets)
	check("list offsets", func(n int) int16 { return listed.Topics[n].Partitions[0].ErrorCode })
}
