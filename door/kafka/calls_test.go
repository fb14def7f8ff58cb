package kafka_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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

// tallied is a store that counts its calls, but for the polls of the log.
type tallied struct {
	eventlog.Store
	calls atomic.Int64
}

func (s *tallied) Unwrap() eventlog.Store { return s.Store }

func (s *tallied) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.calls.Add(1)
	time.Sleep(time.Microsecond) // of fake time: meanwhile everybody else submits, as beside a real store
	return s.Store.Commit(ctx, flush)
}

func (s *tallied) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	s.calls.Add(1)
	return s.Store.Read(ctx, spans, maxBytes)
}

func (s *tallied) Trim(ctx context.Context, p eventlog.Partition, before eventlog.Offset) error {
	s.calls.Add(1)
	return s.Store.Trim(ctx, p, before)
}

func (s *tallied) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	s.calls.Add(1)
	return s.Store.Seek(ctx, goals)
}

func (s *tallied) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	s.calls.Add(1)
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *tallied) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	s.calls.Add(1)
	return s.Store.Get(ctx, keys, maxBytes)
}

// callsMost is how many store calls a request makes at most, whatever it mentions.
const callsMost = 32

// moreCalls are the keys whose requests make more than callsMost, and why. Their bound here is four
// for each thing that is mentioned.
var moreCalls = map[kmsg.Key]string{
	kmsg.DeleteRecords: "each partition is trimmed by itself: Store.Trim is of one partition",
}

// A request of each key that is advertised makes a bounded number of store calls: none makes a call
// for each topic, partition or name that it mentions.
func TestNoKeyMakesACallForEachThingItMentions(t *testing.T) {
	const things = 200
	synctest.Test(t, func(t *testing.T) {
		store := &tallied{Store: memory.New()}
		b := startAt(t, store, newPipes(), kafka.Config{NoAutoCreate: true})
		defer b.stop()
		id := b.createTopic("wide", things, nil).ID
		topics := make(map[string][16]byte)
		for n := range things {
			name := fmt.Sprint("t-", n)
			topics[name] = b.createTopic(name, 1, nil).ID
		}
		records := sealed(t, 0, value("v"))
		keys := b.versions()
		slices.SortStableFunc(keys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return cmp.Compare(removes(a), removes(b)) })
		for _, version := range keys {
			key := kmsg.Key(version.ApiKey)
			worst, at := int64(0), ""
			for what, m := range map[string]kafka.Mentions{
				"a partition each": {Name: "wide", ID: id, Partitions: 1 << 30, Records: records},
				"unknown names":    {Name: "no such-", Names: 1 << 30, ID: [16]byte{1}, Records: records},
				"a topic each":     {Name: "t-", Names: things, Topics: func(name string) [16]byte { return topics[name] }, Records: records},
			} {
				for depth := range kafka.MentionDepth {
					req := kmsg.RequestForKey(int16(key))
					if !m.Fill(req, depth, things) {
						break
					}
					req.SetVersion(b.maxVersion(key))
					w := b.dial()
					before := store.calls.Load()
					w.send(frame(req, 1))
					time.Sleep(10 * time.Millisecond) // of fake time
					synctest.Wait()
					if n := store.calls.Load() - before; n > worst {
						worst, at = n, fmt.Sprintf("%s at depth %d", what, depth)
					}
					w.nc.Close()
					synctest.Wait()
				}
			}
			most := int64(callsMost)
			if moreCalls[key] != "" {
				most = 4 * things
			}
			if worst > most {
				t.Errorf("%s: %d store calls for %s, want %d at most", key.Name(), worst, at, most)
			}
			if worst <= callsMost && moreCalls[key] != "" {
				t.Errorf("%s makes %d store calls: it is no exception any more", key.Name(), worst)
			}
		}
	})
}

// What a request names is there, and what it asks for happens: still a few store calls for all of
// it.
func TestChangesOfManyThingsShareTheirStoreCalls(t *testing.T) {
	const things = 200
	synctest.Test(t, func(t *testing.T) {
		store := &tallied{Store: memory.New()}
		b := startAt(t, store, newPipes(), kafka.Config{NoAutoCreate: true})
		defer b.stop()
		var names []string
		for n := range things {
			name := fmt.Sprint("t-", n)
			names = append(names, name)
			b.createTopic(name, 1, nil)
			commit := kmsg.NewPtrOffsetCommitRequest()
			commit.Version, commit.Group, commit.Generation = 8, name, -1
			of, p := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
			of.Topic, p.Offset = name, int64(n)
			of.Partitions = append(of.Partitions, p)
			commit.Topics = append(commit.Topics, of)
			wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](b, commit).Topics[0].Partitions[0].ErrorCode, nil)
		}
		counts := func(what string, most int64, do func()) {
			t.Helper()
			before := store.calls.Load()
			do()
			if n := store.calls.Load() - before; n > most {
				t.Errorf("%s of %d things: %d store calls, want %d at most", what, things, n, most)
			}
		}
		for _, all := range []bool{false, true} {
			fetch := kmsg.NewPtrOffsetFetchRequest()
			fetch.Version = 8
			for _, name := range names {
				of := kmsg.NewOffsetFetchRequestGroup()
				of.Group = name
				if !all {
					topic := kmsg.NewOffsetFetchRequestGroupTopic()
					topic.Topic, topic.Partitions = name, []int32{0}
					of.Topics = []kmsg.OffsetFetchRequestGroupTopic{topic}
				}
				fetch.Groups = append(fetch.Groups, of)
			}
			counts("OffsetFetch", 8, func() {
				for n, g := range ask[*kmsg.OffsetFetchResponse](b, fetch).Groups {
					if len(g.Topics) != 1 || len(g.Topics[0].Partitions) != 1 || g.Topics[0].Partitions[0].Offset != int64(n) {
						t.Fatalf("OffsetFetch of all %v: group %d has %+v", all, n, g)
					}
				}
			})
		}
		describe := kmsg.NewPtrDescribeGroupsRequest()
		describe.Version, describe.Groups = 5, names
		counts("DescribeGroups", 4, func() {
			for _, g := range ask[*kmsg.DescribeGroupsResponse](b, describe).Groups {
				if g.State != "Empty" || g.ErrorCode != 0 {
					t.Fatalf("DescribeGroups: %+v", g)
				}
			}
		})
		more := kmsg.NewPtrCreatePartitionsRequest()
		more.Version = 3
		for _, name := range names {
			topic := kmsg.NewCreatePartitionsRequestTopic()
			topic.Topic, topic.Count = name, 3
			more.Topics = append(more.Topics, topic)
		}
		counts("CreatePartitions", 8, func() {
			for _, topic := range ask[*kmsg.CreatePartitionsResponse](b, more).Topics {
				wantCode(t, "CreatePartitions", topic.ErrorCode, nil)
			}
		})
		used := make(map[eventlog.Partition]bool)
		for _, topic := range b.log.Topics() {
			for _, p := range topic.Partitions {
				if used[p] {
					t.Fatalf("two partitions have the number %d", p)
				}
				used[p] = true
			}
		}
		if len(used) != 3*things {
			t.Errorf("there are %d partitions", len(used))
		}
		remove := kmsg.NewPtrDeleteGroupsRequest()
		remove.Version, remove.Groups = 2, append([]string{"no such"}, names...)
		counts("DeleteGroups", 10, func() {
			for _, g := range ask[*kmsg.DeleteGroupsResponse](b, remove).Groups {
				want := (*kerr.Error)(nil)
				if g.Group == "no such" {
					want = kerr.GroupIDNotFound
				}
				wantCode(t, "DeleteGroups", g.ErrorCode, want)
			}
		})
		if left, err := store.List(t.Context(), "group/", "", 10); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}
