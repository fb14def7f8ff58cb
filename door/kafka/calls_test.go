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
	kmsg.OffsetFetch:      "the offsets of each group are read by themselves",
	kmsg.DescribeGroups:   "each group is read by itself",
	kmsg.DeleteGroups:     "each group is read and deleted by itself",
	kmsg.CreatePartitions: "each topic is a change of its own",
	kmsg.DeleteRecords:    "each partition is trimmed by itself: Store.Trim is of one partition",
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
