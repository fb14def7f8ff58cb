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

func (s *tallied) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	s.calls.Add(1)
	return s.Store.Trim(ctx, trims)
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

// A request of each key that is advertised makes a bounded number of store calls: none makes a call
// for each topic, partition or name that it mentions. What it asks for happens, and topics that it
// mentions are created.
func TestNoKeyMakesACallForEachThingItMentions(t *testing.T) {
	const things = 200
	synctest.Test(t, func(t *testing.T) {
		store := &tallied{Store: memory.New()}
		b := startAt(t, store, newPipes(), kafka.Config{})
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
				"a partition each": {Name: "wide", ID: id, Partitions: 1 << 30, Records: records, Changes: true},
				"unknown names":    {Name: fmt.Sprint("no such ", key, "-"), Names: 1 << 30, ID: [16]byte{1}, Records: records, Changes: true},
				"new names":        {Name: fmt.Sprint("new-", key, "-"), Names: 1 << 30, Records: records, Changes: true},
				"a topic each":     {Name: "t-", Names: things, Topics: func(name string) [16]byte { return topics[name] }, Records: records, Changes: true},
				"a topic's name":   {Name: "t-", Names: things, Records: records, Changes: true},
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
			if worst > callsMost {
				t.Errorf("%s: %d store calls for %s, want %d at most", key.Name(), worst, at, callsMost)
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

// counting returns what checks that something makes few store calls.
func (s *tallied) counting(t *testing.T) func(what string, most int64, do func()) {
	return func(what string, most int64, do func()) {
		t.Helper()
		before := s.calls.Load()
		do()
		if n := s.calls.Load() - before; n > most {
			t.Errorf("%s: %d store calls, want %d at most", what, n, most)
		}
	}
}

// Topics of one request are created, altered, emptied and deleted together: a few store calls for
// all of them, and each has its own outcome.
func TestTopicsOfARequestShareTheirStoreCalls(t *testing.T) {
	const things = 200
	synctest.Test(t, func(t *testing.T) {
		store := &tallied{Store: memory.New()}
		b := startAt(t, store, newPipes(), kafka.Config{Partitions: 1})
		defer b.stop()
		counts := store.counting(t)
		var names []string
		for n := range things {
			names = append(names, fmt.Sprint("t-", n))
		}
		b.createTopic("there", 1, nil)

		create := kmsg.NewPtrCreateTopicsRequest()
		create.Version, create.TimeoutMillis = 7, 1000
		for _, name := range append([]string{"there", "a.b", "a_b", "no/name"}, names...) {
			topic := kmsg.NewCreateTopicsRequestTopic()
			topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 2, 1
			create.Topics = append(create.Topics, topic)
		}
		counts("CreateTopics", 12, func() {
			for _, topic := range ask[*kmsg.CreateTopicsResponse](b, create).Topics {
				want := map[string]*kerr.Error{"there": kerr.TopicAlreadyExists, "a_b": kerr.InvalidTopicException, "no/name": kerr.InvalidTopicException}[topic.Topic]
				wantCode(t, "create "+topic.Topic, topic.ErrorCode, want)
				if want == nil && (topic.NumPartitions != 2 || topic.TopicID == [16]byte{}) {
					t.Errorf("created: %+v", topic)
				}
			}
		})

		metadata := kmsg.NewPtrMetadataRequest()
		metadata.Version, metadata.AllowAutoTopicCreation = 12, true
		for n := range things {
			topic, name := kmsg.NewMetadataRequestTopic(), fmt.Sprint("asked-", n)
			topic.Topic = &name
			metadata.Topics = append(metadata.Topics, topic)
		}
		counts("Metadata that creates topics", 12, func() {
			for _, topic := range ask[*kmsg.MetadataResponse](b, metadata).Topics {
				wantCode(t, "Metadata", topic.ErrorCode, nil)
				if len(topic.Partitions) != 1 {
					t.Errorf("Metadata: %+v", topic)
				}
			}
		})

		alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
		replace := kmsg.NewPtrAlterConfigsRequest()
		alter.Version, replace.Version = 1, 2
		for _, name := range append([]string{"no such"}, names...) {
			value := "60000"
			if name == names[3] {
				value = "long"
			}
			one, all := kmsg.NewIncrementalAlterConfigsRequestResource(), kmsg.NewAlterConfigsRequestResource()
			one.ResourceType, one.ResourceName = kmsg.ConfigResourceTypeTopic, name
			all.ResourceType, all.ResourceName = kmsg.ConfigResourceTypeTopic, name
			c, d := kmsg.NewIncrementalAlterConfigsRequestResourceConfig(), kmsg.NewAlterConfigsRequestResourceConfig()
			c.Name, c.Value = "retention.ms", &value
			d.Name, d.Value = "segment.ms", &value
			one.Configs, all.Configs = append(one.Configs, c), append(all.Configs, d)
			alter.Resources, replace.Resources = append(alter.Resources, one), append(replace.Resources, all)
		}
		altered := func(name string, code int16) {
			t.Helper()
			wantCode(t, "alter "+name, code, map[string]*kerr.Error{"no such": kerr.UnknownTopicOrPartition, names[3]: kerr.InvalidConfig}[name])
		}
		counts("IncrementalAlterConfigs", 8, func() {
			for _, r := range ask[*kmsg.IncrementalAlterConfigsResponse](b, alter).Resources {
				altered(r.ResourceName, r.ErrorCode)
			}
		})
		if topic, err := b.log.Topic(t.Context(), names[5]); err != nil || topic.Config["retention.ms"] != "60000" {
			t.Errorf("altered: %+v, %v", topic, err)
		}
		counts("AlterConfigs", 8, func() {
			for _, r := range ask[*kmsg.AlterConfigsResponse](b, replace).Resources {
				altered(r.ResourceName, r.ErrorCode)
			}
		})
		if topic, err := b.log.Topic(t.Context(), names[5]); err != nil || len(topic.Config) != 1 || topic.Config["segment.ms"] != "60000" {
			t.Errorf("replaced: %+v, %v", topic, err)
		}

		trim := kmsg.NewPtrDeleteRecordsRequest()
		trim.Version = 2
		for n, name := range names {
			b.mustProduce(name, 0, sealed(t, 0, value("v")))
			topic, p := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
			topic.Topic, p.Offset = name, -1
			if n == 3 {
				p.Offset = 2
			}
			topic.Partitions = append(topic.Partitions, p)
			trim.Topics = append(trim.Topics, topic)
		}
		counts("DeleteRecords", 4, func() {
			for n, topic := range ask[*kmsg.DeleteRecordsResponse](b, trim).Topics {
				p := topic.Partitions[0]
				if n == 3 {
					wantCode(t, "DeleteRecords", p.ErrorCode, kerr.OffsetOutOfRange)
				} else if wantCode(t, "DeleteRecords", p.ErrorCode, nil); p.LowWatermark != 1 {
					t.Errorf("DeleteRecords: %+v", p)
				}
			}
		})

		remove := kmsg.NewPtrDeleteTopicsRequest()
		remove.Version = 6
		for n, name := range append(names, "no such") {
			topic := kmsg.NewDeleteTopicsRequestTopic()
			topic.Topic = &name
			if known, err := b.log.Topic(t.Context(), name); n%2 == 0 && err == nil {
				topic.Topic, topic.TopicID = nil, known.ID
			}
			remove.Topics = append(remove.Topics, topic)
		}
		both := kmsg.NewDeleteTopicsRequestTopic() // the first one is named by its id, too
		both.Topic = &names[0]
		remove.Topics = append(remove.Topics, both)
		counts("DeleteTopics", 12, func() {
			for n, topic := range ask[*kmsg.DeleteTopicsResponse](b, remove).Topics {
				want := (*kerr.Error)(nil)
				if n >= things {
					want = kerr.UnknownTopicOrPartition
				}
				wantCode(t, "delete "+*topic.Topic, topic.ErrorCode, want)
			}
		})
		for _, topic := range b.log.Topics() {
			if slices.Contains(names, topic.Name) {
				t.Errorf("topic %q is there after its deletion", topic.Name)
			}
		}
	})
}

// Which owners of a request's topics exist is read together, whether they forbid what is asked for
// or have ended.
func TestOwnersOfARequestsTopicsAreReadTogether(t *testing.T) {
	const things = 200
	synctest.Test(t, func(t *testing.T) {
		store := &tallied{Store: memory.New()}
		b := startAt(t, store, newPipes(), kafka.Config{})
		defer b.stop()
		counts := store.counting(t)
		var entry eventlog.Entry
		more, trim := kmsg.NewPtrCreatePartitionsRequest(), kmsg.NewPtrDeleteRecordsRequest()
		more.Version, trim.Version = 3, 2
		for n := range things {
			name, key := fmt.Sprint("t-", n), fmt.Sprint("owner/", n)
			if _, err := b.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: name, Partitions: 1, Owner: eventlog.Owner{Key: key, Name: key, Fixed: true}}); err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				entry.Puts = append(entry.Puts, eventlog.Put{Key: key, Version: 1, Value: []byte("there")})
			}
			grown, cut, p := kmsg.NewCreatePartitionsRequestTopic(), kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
			grown.Topic, grown.Count = name, 2
			cut.Topic, p.Offset = name, -1
			cut.Partitions = append(cut.Partitions, p)
			more.Topics, trim.Topics = append(more.Topics, grown), append(trim.Topics, cut)
		}
		if _, err := b.log.Append(t.Context(), entry); err != nil {
			t.Fatal(err)
		}
		counts("DeleteRecords", 4, func() {
			for n, topic := range ask[*kmsg.DeleteRecordsResponse](b, trim).Topics {
				want := kerr.InvalidTopicException
				if n == 0 {
					want = nil
				}
				wantCode(t, "DeleteRecords", topic.Partitions[0].ErrorCode, want)
			}
		})
		counts("CreatePartitions", 8, func() {
			for n, topic := range ask[*kmsg.CreatePartitionsResponse](b, more).Topics {
				want := kerr.InvalidPartitions
				if n == 0 {
					want = nil
				}
				wantCode(t, "CreatePartitions", topic.ErrorCode, want)
			}
		})
	})
}
