package shard_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/keys"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// frail is a store that may be down.
type frail struct {
	eventlog.Store
	down    atomic.Bool
	commits atomic.Int64 // so many commits succeed before it is down; negative: all
}

func newFrail(s eventlog.Store) *frail {
	f := &frail{Store: s}
	f.commits.Store(-1)
	return f
}

var errCut = fmt.Errorf("%w: the cable was cut", eventlog.ErrUnavailable)

func (f *frail) fail() error {
	if f.down.Load() {
		return errCut
	}
	return nil
}

func (f *frail) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if left := f.commits.Load(); left >= 0 && f.commits.Add(-1) < 0 {
		f.down.Store(true)
	}
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.Store.Commit(ctx, flush)
}

func (f *frail) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.Store.Read(ctx, spans, maxBytes)
}

func (f *frail) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	if err := f.fail(); err != nil {
		return nil, since, err
	}
	return f.Store.Changes(ctx, since)
}

func (f *frail) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.Store.List(ctx, prefix, after, limit)
}

func (f *frail) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.Store.Get(ctx, keys, maxBytes)
}

func (f *frail) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.Store.Seek(ctx, goals)
}

var quiet = slog.New(slog.DiscardHandler)

func openSet(t *testing.T, stores ...eventlog.Store) *shard.Set {
	t.Helper()
	var shards []shard.Shard
	for i, s := range stores {
		shards = append(shards, shard.Shard{Name: fmt.Sprintf("store %d", i), Store: s})
	}
	set, err := shard.Open(t.Context(), shards, shard.Options{Rules: keys.Rules(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set
}

func run(t *testing.T, s eventlog.Store) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), s, eventlog.Config{Logger: quiet, Poll: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- log.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return log
}

func create(t *testing.T, log *eventlog.Log, name string, partitions int) eventlog.Topic {
	t.Helper()
	topic, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: name, Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

// spread counts the partitions of topics on each shard.
func spread(shards int, topics ...eventlog.Topic) []int {
	n := make([]int, shards)
	for _, t := range topics {
		for _, p := range t.Partitions {
			n[p.Shard()]++
		}
	}
	return n
}

func TestTopicsAreSpreadAndAddedShardsTakeNewPartitions(t *testing.T) {
	stores := []eventlog.Store{memory.New(), memory.New()}
	log := run(t, openSet(t, stores...))
	a, b := create(t, log, "a", 4), create(t, log, "b", 3)
	if n := spread(2, a, b); fmt.Sprint(n) != "[4 3]" && fmt.Sprint(n) != "[3 4]" {
		t.Errorf("seven partitions are spread like %v", n)
	}
	log = run(t, openSet(t, append(stores, memory.New())...))
	c := create(t, log, "c", 3)
	if n := spread(3, c); fmt.Sprint(n) != "[1 1 1]" {
		t.Errorf("a topic created after a shard was added is spread like %v", n)
	}
	grown, err := log.ChangeTopic(t.Context(), "a", eventlog.TopicChange{Partitions: 6})
	if err != nil {
		t.Fatal(err)
	}
	if n := spread(3, grown); fmt.Sprint(n) != "[2 2 2]" || !slices.Equal(grown.Partitions[:4], a.Partitions) {
		t.Errorf("the topic that grew is spread like %v: %v, before %v", n, grown.Partitions, a.Partitions)
	}
	if err := log.DeleteTopic(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for i, s := range stores {
		all, _, err := s.Changes(t.Context(), eventlog.Mark{})
		for _, held := range all {
			if err != nil || slices.Contains(grown.Partitions, held.Partition) {
				t.Errorf("shard %d still holds %+v (%v)", i, held, err)
			}
		}
	}
}

// The same key goes to the same partition and keeps its order, also when a shard is lost for a
// while and the publisher repeats.
func TestAKeyKeepsItsPartitionAndItsOrder(t *testing.T) {
	lost := newFrail(memory.New())
	set := openSet(t, memory.New(), lost, memory.New())
	log, other := run(t, set), run(t, set)
	topic := create(t, log, "orders", 6)
	if err := other.RefreshTopics(t.Context()); err != nil {
		t.Fatal(err)
	}
	publishers := []*publish.Publisher{publish.New(log, publish.Config{}), publish.New(other, publish.Config{})}
	r := seed.Random(t)
	sent := map[string]int{}
	for n := range 300 {
		lost.down.Store(n%40 > 30)
		key := fmt.Sprint("key ", r.IntN(20))
		_, err := publishers[r.IntN(2)].Publish(t.Context(), publish.Event{Topic: "orders", Key: []byte(key), Value: fmt.Append(nil, sent[key])})
		switch {
		case err == nil:
			sent[key]++
		case !errors.Is(err, eventlog.ErrUnavailable) || !lost.down.Load():
			t.Fatal(err)
		}
	}
	lost.down.Store(false)
	read, at := map[string]int{}, map[string]eventlog.Partition{}
	reader := run(t, set) // the others need not have heard of each other's last events yet
	for _, p := range topic.Partitions {
		got, err := reader.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, MaxBytes: 1 << 20}}})
		if err != nil || got[0].Err != nil {
			t.Fatal(err, got[0].Err)
		}
		for _, b := range got[0].Batches {
			for rec, err := range b.Decode() {
				key := string(rec.Key)
				if was, is := at[key]; err != nil || is && was != p || string(rec.Value) != fmt.Sprint(read[key]) {
					t.Fatalf("%s has %s in partition %d, after %d events in %d (%v)", key, rec.Value, p, read[key], was, err)
				}
				at[key] = p
				read[key]++
			}
		}
	}
	if fmt.Sprint(read) != fmt.Sprint(sent) {
		t.Errorf("read %v, sent %v", read, sent)
	}
}

func produced(t *testing.T, p eventlog.Partition, id int64, sequence int32) eventlog.Entry {
	t.Helper()
	raw, err := batch.Seal([]batch.Record{{Value: fmt.Append(nil, sequence), Timestamp: 1}}, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint64(raw[43:], uint64(id))
	binary.BigEndian.PutUint16(raw[51:], 0)
	binary.BigEndian.PutUint32(raw[53:], uint32(sequence))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	h, err := batch.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return eventlog.Entry{Batches: []eventlog.Batch{{Partition: p, Records: 1, MaxTime: 1, Bytes: raw, Producer: &h}}}
}

// A process that dies between the steps of creating or deleting a topic leaves nothing that can be
// seen, and what it leaves is deleted.
func TestATopicIsThereOrNotWhereverTheProcessDies(t *testing.T) {
	for _, deletes := range []bool{false, true} {
		for n := range 6 {
			at, after := n%3, int64(n/3) // the shard whose next commit fails, or the one after it
			synctest.Test(t, func(t *testing.T) {
				stores := []*frail{newFrail(memory.New()), newFrail(memory.New()), newFrail(memory.New())}
				var all []eventlog.Store
				for _, s := range stores {
					all = append(all, s)
				}
				first := run(t, openSet(t, all...))
				if deletes {
					for _, p := range create(t, first, "topic", 6).Partitions {
						if _, err := first.Publish(t.Context(), p, batch.Record{Value: []byte("v"), Timestamp: 1}); err != nil {
							t.Fatal(err)
						}
					}
				}
				stores[at].commits.Store(after)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var err error
				if deletes {
					err = first.DeleteTopic(ctx, "topic")
				} else {
					_, err = first.CreateTopic(ctx, eventlog.TopicSpec{Name: "topic", Partitions: 6})
				}
				stores[at].commits.Store(-1)
				stores[at].down.Store(false)

				second := run(t, openSet(t, all...))
				topic, missing := second.TopicNow(t.Context(), "topic")
				switch {
				case missing == nil && (err == nil) == deletes: // it is there although the change that would end that succeeded, or the other way round
					t.Fatalf("deletes %v, shard %d failed: %v, and the topic is there", deletes, at, err)
				case missing != nil && (err == nil) != deletes:
					t.Fatalf("deletes %v, shard %d failed: %v, and the topic is missing: %v", deletes, at, err, missing)
				case missing != nil && !errors.Is(missing, eventlog.ErrUnknownTopic):
					t.Fatal(missing)
				}
				next := create(t, second, "next", 6) // it takes numbers that a topic which was not created did not
				run(t, openSet(t, all...))
				time.Sleep(time.Minute) // of the bubble: the log deletes what is left
				held := 0
				for _, s := range stores {
					bounds, _, err := s.Store.Changes(t.Context(), eventlog.Mark{})
					if err != nil {
						t.Fatal(err)
					}
					held += len(bounds)
				}
				topic, _ = second.TopicNow(t.Context(), "topic") // a deletion that has begun was completed
				if want := 1 + len(topic.Partitions) + len(next.Partitions); held != want {
					t.Errorf("deletes %v, shard %d failed (%v): the shards hold %d partitions, want %d", deletes, at, err, held, want)
				}
			})
		}
	}
}

// If shard 0 is restored from a backup, it lacks the topics created since. Their records on other
// shards stay.
func TestRecordsOfATopicThatABackupLacksStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home, other := memory.New(), memory.New()
		log := run(t, openSet(t, home, other))
		restore := home.Backup()
		var there eventlog.Partition
		for _, p := range create(t, log, "topic", 2).Partitions {
			if p.Shard() == 1 {
				there = p
			}
		}
		if _, err := log.Publish(t.Context(), there, batch.Record{Value: []byte("v"), Timestamp: 1}); err != nil {
			t.Fatal(err)
		}
		restore(false)
		time.Sleep(time.Minute)    // of the bubble
		create(t, log, "later", 2) // raises the next free number
		run(t, openSet(t, home, other))
		time.Sleep(time.Minute)
		bounds, _, err := other.Changes(t.Context(), eventlog.Mark{})
		if err != nil || !slices.ContainsFunc(bounds, func(b eventlog.Bounds) bool { return b.Partition == there && b.Next == 1 }) {
			t.Errorf("the shard holds %+v (%v), and not the record in partition %d", bounds, err, there)
		}
	})
}

// While a shard is lost, what is on the others goes on, in processes that are running; nothing is
// started again.
func TestOneShardDownThroughTheLog(t *testing.T) {
	lost := newFrail(memory.New())
	log := run(t, openSet(t, memory.New(), lost))
	topic := create(t, log, "topic", 2)
	var here, there eventlog.Partition
	for _, p := range topic.Partitions {
		if p.Shard() == 0 {
			here = p
		} else {
			there = p
		}
	}
	if _, err := log.Append(t.Context(), produced(t, there, 7, 0)); err != nil {
		t.Fatal(err)
	}
	lost.down.Store(true)
	for n := range 3 {
		if _, err := log.Append(t.Context(), produced(t, there, 7, 1)); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("a batch for the lost shard: %v", err)
		}
		if _, err := log.Append(t.Context(), produced(t, here, 7, int32(n))); err != nil {
			t.Errorf("a batch for the other: %v", err)
		}
	}
	got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: here, MaxBytes: 1000}}})
	if err != nil || len(got[0].Batches) != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := log.Healthy(); err != nil {
		t.Errorf("healthy: %v", err)
	}
	if _, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "other", Partitions: 2}); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a topic on both shards: %v", err)
	}
	lost.down.Store(false)
	for _, sequence := range []int32{1, 1, 2} { // the second is a duplicate
		if _, err := log.Append(t.Context(), produced(t, there, 7, sequence)); err != nil {
			t.Errorf("sequence number %d: %v", sequence, err)
		}
	}
	if bounds, err := log.Bounds(t.Context(), there); err != nil || bounds[0].Bounds.Next != 3 {
		t.Errorf("%+v, %v", bounds, err)
	}
}

// A shard that is restored from a backup begins a leader epoch, and the log goes on.
func TestARestoredShardBeginsALeaderEpoch(t *testing.T) {
	stores := []*memory.Store{memory.New(), memory.New()}
	log := run(t, openSet(t, stores[0], stores[1]))
	topic := create(t, log, "topic", 2)
	before := log.LeaderEpoch()
	changed := log.IncarnationChanged()
	restore := stores[1].Backup()
	for _, p := range topic.Partitions {
		if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("lost"), Timestamp: 1}); err != nil {
			t.Fatal(err)
		}
	}
	restore(false)
	<-changed
	if now := log.LeaderEpoch(); now <= before {
		t.Errorf("leader epoch %d, before %d", now, before)
	}
	for _, p := range topic.Partitions {
		at, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("new"), Timestamp: 1})
		if want := eventlog.Offset(1 - p.Shard()); err != nil || at != want {
			t.Errorf("the next record of a partition on shard %d is at %d, want %d (%v)", p.Shard(), at, want, err)
		}
	}
}

func TestWhatUsesNeedIsOnOneShard(t *testing.T) {
	set := openSet(t, memory.New(), memory.New(), memory.New())
	log := run(t, set)
	streams := stream.New(log, stream.Config{})
	on := map[int]bool{}
	var categories []*stream.Category
	for n := range 60 {
		c, err := streams.CreateCategory(t.Context(), stream.Spec{Name: fmt.Sprint("category-", n), Partitions: 3})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Append(t.Context(), "s", stream.NoStream, stream.NewEvent{Type: "t", Data: []byte("{}"), Tags: []string{"a", "b"}, Subject: "someone"}); err != nil {
			t.Errorf("append: %v", err)
		}
		topic, err := log.Topic(t.Context(), c.Name())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.ChangeTopic(t.Context(), c.Name(), eventlog.TopicChange{Partitions: 6}); err != nil {
			t.Fatal(err)
		}
		grown, err := log.TopicNow(t.Context(), c.Name())
		if n := spread(3, grown); err != nil || slices.Max(n) != 6 {
			t.Errorf("a category's partitions are spread like %v (%v)", n, err)
		}
		on[topic.Partitions[0].Shard()] = true
		categories = append(categories, c)
	}
	if len(on) != 3 {
		t.Errorf("sixty categories are on the shards %v", on)
	}
	shardOf := func(c *stream.Category) int {
		topic, err := log.Topic(t.Context(), c.Name())
		if err != nil {
			t.Fatal(err)
		}
		return topic.Partitions[0].Shard()
	}
	for _, c := range categories[1:] {
		_, err := streams.AppendAll(t.Context(),
			stream.Part{Category: categories[0], Stream: "all " + c.Name(), Expected: stream.NoStream, Events: []stream.NewEvent{{Type: "t", Data: []byte("{}")}}},
			stream.Part{Category: c, Stream: "all", Expected: stream.NoStream, Events: []stream.NewEvent{{Type: "t", Data: []byte("{}")}}})
		if same := shardOf(c) == shardOf(categories[0]); same && err != nil || !same && !errors.Is(err, eventlog.ErrSpansShards) {
			t.Errorf("an append to categories on shards %d and %d: %v", shardOf(categories[0]), shardOf(c), err)
		}
	}

	queues := queue.New(log, publish.New(log, publish.Config{}), queue.Config{})
	if _, err := queues.Create(t.Context(), queue.Spec{Name: "q", Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	for _, topic := range log.Topics() {
		if n := spread(3, topic); strings.HasPrefix(topic.Name, "q") && n[0] != len(topic.Partitions) {
			t.Errorf("topic %s of a queue is spread like %v", topic.Name, n)
		}
	}
	create(t, log, "wide", 3)
	if _, err := queues.Create(t.Context(), queue.Spec{Name: "other", Topic: "wide"}); !errors.Is(err, eventlog.ErrSpansShards) {
		t.Errorf("a queue on a topic of three shards: %v", err)
	}
	if _, _, err := publish.New(log, publish.Config{}).PublishOnce(t.Context(), "key", publish.Event{Topic: "wide", Value: []byte("v")}); !errors.Is(err, eventlog.ErrSpansShards) {
		t.Errorf("an idempotency key for a topic of three shards: %v", err)
	}
	for n := range 20 { // each on some shard
		name := fmt.Sprint("group ", n)
		e := group.OffsetEntry(eventlog.KeyValue{}, name, []group.Committed{{TopicPartition: group.TopicPartition{Topic: eventlog.TopicID{1}}, Offset: 3}})
		if _, err := log.Append(t.Context(), e); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAURLListsShards(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return "sqlite:" + filepath.Join(dir, name) }
	comma := strings.ReplaceAll(file("a,b.db"), ",", ",,")
	opened, err := store.Open(t.Context(), "shard:"+comma+","+file("c.db"), quiet, keys.Rules()...)
	if err != nil {
		t.Fatal(err)
	}
	if n := opened.(*shard.Set).Shards(); n != 2 {
		t.Errorf("%d shards", n)
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
	for address, says := range map[string]string{
		"shard:":                              "shard 0 of 1",
		"shard:" + file("a.db") + ",":         "shard 1 of 2",
		"shard:shard:memory:":                 "list of shards itself",
		"shard:postgres://h1,h2/db":           "a comma inside a URL is written twice",
		"shard:" + file("c.db") + "," + comma: "c.db",
	} {
		if _, err := store.Open(t.Context(), address, quiet, keys.Rules()...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want that it says %q", address, err, says)
		}
	}
	if _, err := store.Open(t.Context(), "shard:memory:,memory:", quiet); !errors.Is(err, store.ErrAddress) {
		t.Errorf("without rules: %v", err)
	}
	if got := store.Redact("shard:postgres://u:secret@h1,,h2/db,mysql://u:secret@h/db"); got != "shard:postgres://u:xxxxx@h1,,h2/db,mysql://u:xxxxx@h/db" {
		t.Errorf("redacted: %s", got)
	}
	if !store.Missing("shard:"+file("c.db")+","+file("missing.db")) || store.Missing("shard:"+file("c.db")+",memory:") {
		t.Error("missing")
	}
}
