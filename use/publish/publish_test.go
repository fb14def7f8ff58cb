package publish_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/publish"
)

func TestEventsArriveAsTheyWereGiven(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		log := run(t, reopen(t), eventlog.Config{})
		p := publish.New(log, publish.Config{})
		orders := topic(t, log, "orders", 3)
		moment := time.Date(2024, 2, 29, 12, 0, 0, int(5*time.Millisecond), time.UTC)
		given := []batch.Record{
			{Key: []byte("k"), Value: []byte("v"), Timestamp: moment.UnixMilli(), Headers: []batch.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a"}, {Key: "ü", Value: []byte{}}}},
			{Key: []byte{}, Value: []byte{}, Timestamp: moment.UnixMilli()},
			{Timestamp: moment.UnixMilli()}, // neither key nor value
			{Value: []byte{0, 0xff}, Timestamp: 0},
			{Value: bytes.Repeat([]byte("x"), 600<<10), Timestamp: 1},
		}
		event := func(r batch.Record) publish.Event {
			return publish.Event{Topic: "orders", Partition: number(1), Key: r.Key, Value: r.Value, Headers: r.Headers, Time: time.UnixMilli(r.Timestamp)}
		}
		var all []publish.Event
		var got []publish.Placed
		for _, r := range given {
			placed, err := p.Publish(t.Context(), event(r))
			check(t, err)
			got = append(got, placed...)
			all = append(all, event(r))
		}
		placed, err := p.Publish(t.Context(), all...)
		check(t, err)
		want := append(given, given...)
		for i, at := range append(got, placed...) {
			if at != (publish.Placed{Partition: 1, Offset: eventlog.Offset(i)}) {
				t.Errorf("event %d is at %+v", i, at)
			}
			want[i].Offset = int64(i)
		}
		if diff := cmp.Diff(want, read(t, log, orders.Partitions[1]).records, cmp.Comparer(same)); diff != "" {
			t.Errorf("given (-) and read (+):\n%s", diff)
		}
	})
}

// same tells null from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func TestAnEventWithoutATimeGetsThePresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := run(t, memory.New(), eventlog.Config{})
		orders := topic(t, log, "orders", 1)
		time.Sleep(time.Hour)
		_, err := publish.New(log, publish.Config{}).Publish(t.Context(), publish.Event{Topic: "orders"})
		check(t, err)
		if got := read(t, log, orders.Partitions[0]).records[0].Timestamp; got != time.Now().UnixMilli() {
			t.Errorf("it is of %v", time.UnixMilli(got))
		}
	})
}

// What is refused is refused as a whole: nothing of the call is published, and the error says what
// is wrong.
func TestARefusedEventRefusesItsWholeCall(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	orders := topic(t, log, "orders", 3, "max.message.bytes", "1000")
	good := publish.Event{Topic: "orders", Value: []byte("v")}
	p := publish.New(log, publish.Config{})
	for _, c := range []struct {
		name  string
		event publish.Event
		is    error // nil: *eventlog.InvalidError
		says  []string
	}{
		{"unknown topic", publish.Event{Topic: "nobody"}, eventlog.ErrUnknownTopic, []string{`"nobody"`}},
		{"bad topic", publish.Event{Topic: "a b"}, nil, []string{`' '`}},
		{"no topic", publish.Event{}, nil, []string{"empty"}},
		{"too large", publish.Event{Topic: "orders", Value: make([]byte, 1000)}, eventlog.ErrTooLarge, []string{"1070 bytes", "max.message.bytes", `"orders" is 1000`}},
		{"large headers", publish.Event{Topic: "orders", Headers: []batch.RecordHeader{{Key: "h", Value: make([]byte, 1000)}}}, eventlog.ErrTooLarge, []string{"is 1000"}},
		{"partition beyond", publish.Event{Topic: "orders", Partition: number(3)}, nil, []string{`"3"`, "has 3 partitions, numbered from 0"}},
		{"negative partition", publish.Event{Topic: "orders", Partition: number(-1)}, nil, []string{`"-1"`, "has 3"}},
		{"header name", publish.Event{Topic: "orders", Headers: []batch.RecordHeader{{Key: "\xff"}}}, nil, []string{"UTF-8"}},
		{"before 1970", publish.Event{Topic: "orders", Time: time.UnixMilli(-1)}, nil, []string{"1969-12-31", "1970"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, events := range [][]publish.Event{{c.event}, {good, c.event, good}} {
				placed, err := p.Publish(t.Context(), events...)
				var invalid *eventlog.InvalidError
				if c.is != nil && !errors.Is(err, c.is) || c.is == nil && !errors.As(err, &invalid) || placed != nil {
					t.Fatalf("%d events: %v, %v", len(events), placed, err)
				}
				for _, part := range c.says {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not say %q", err, part)
					}
				}
				if len(events) > 1 && !strings.Contains(err.Error(), "event 1 of 3") {
					t.Errorf("%q does not say which event", err)
				}
			}
		})
	}
	var invalid *eventlog.InvalidError
	if _, err := p.Publish(t.Context()); !errors.As(err, &invalid) {
		t.Errorf("no events: %v", err)
	}
	large := make([]publish.Event, 40)
	topic(t, log, "wide", 1)
	for i := range large {
		large[i] = publish.Event{Topic: "wide", Value: make([]byte, 500<<10)}
	}
	if _, err := p.Publish(t.Context(), large...); !errors.Is(err, eventlog.ErrTooLarge) || !strings.Contains(err.Error(), "16777216") {
		t.Errorf("20 MB in one call: %v", err)
	}
	if n := total(t, log, orders); n != 0 {
		t.Errorf("%d events were published", n)
	}
}

func TestMaxMessageBytesIsExact(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	small := topic(t, log, "small", 1, "max.message.bytes", "200")
	p := publish.New(log, publish.Config{})
	published := 0
	for size := range 200 {
		if _, err := p.Publish(t.Context(), publish.Event{Topic: "small", Value: make([]byte, size)}); err == nil {
			published++
		}
	}
	largest := 0
	for _, b := range read(t, log, small.Partitions[0]).batches {
		largest = max(largest, len(b.Bytes))
	}
	if largest != 200 || published >= 200 {
		t.Errorf("the largest of %d published makes a batch of %d bytes, and the limit is 200", published, largest)
	}
}

func TestManyEventsGoToManyPlacesAllAtOnce(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		everystore.RefusedOnShards(t, "events for partitions of two shards in one call")
		log := run(t, reopen(t), eventlog.Config{})
		orders, bills := topic(t, log, "orders", 4), topic(t, log, "bills", 2)
		p := publish.New(log, publish.Config{})
		_, err := p.Publish(t.Context(), publish.Event{Topic: "orders", Partition: number(0)}) // so that offsets differ
		check(t, err)
		var events []publish.Event
		for i := range 1000 {
			name, n := "orders", int32(i%4)
			if i%3 == 0 {
				name, n = "bills", int32(i%2)
			}
			events = append(events, publish.Event{Topic: name, Partition: &n, Value: fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", 5000))})
		}
		placed, err := p.Publish(t.Context(), events...)
		check(t, err)
		arrived(t, log, map[string]eventlog.Topic{"orders": orders, "bills": bills}, events, placed)
		for _, partition := range orders.Partitions {
			for _, b := range read(t, log, partition).batches {
				if len(b.Bytes) > 512<<10 {
					t.Errorf("a batch has %d bytes", len(b.Bytes))
				}
			}
		}
	})
}

// arrived sees that each event is where it was said to be.
func arrived(t *testing.T, log *eventlog.Log, topics map[string]eventlog.Topic, events []publish.Event, placed []publish.Placed) {
	t.Helper()
	if len(placed) != len(events) {
		t.Fatalf("%d places for %d events", len(placed), len(events))
	}
	for i, at := range placed {
		partition := topics[events[i].Topic].Partitions[at.Partition]
		got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: partition, From: at.Offset, MaxBytes: 1}}})
		check(t, err)
		check(t, got[0].Err)
		b := got[0].Batches[0]
		skip := at.Offset - b.Base
		for r, err := range batch.Records(b.Bytes, 1<<30) {
			check(t, err)
			if skip == 0 && !bytes.Equal(r.Value, events[i].Value) {
				t.Fatalf("event %d is not at %+v: there is %.20q", i, at, r.Value)
			}
			skip--
		}
	}
}

func TestEventsOfOneCallStayNeighbours(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	orders := topic(t, log, "orders", 1)
	p := publish.New(log, publish.Config{})
	var callers sync.WaitGroup
	for caller := range 20 {
		callers.Go(func() {
			for range 20 {
				_, err := p.Publish(t.Context(), publish.Event{Topic: "orders", Value: []byte{byte(caller)}},
					publish.Event{Topic: "orders", Value: []byte{byte(caller)}}, publish.Event{Topic: "orders", Value: []byte{byte(caller)}})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	records := read(t, log, orders.Partitions[0]).records
	for i := 0; i+2 < len(records); i += 3 {
		if a, b, c := records[i].Value[0], records[i+1].Value[0], records[i+2].Value[0]; a != b || b != c {
			t.Fatalf("from offset %d on there are events of %d, %d and %d", i, a, b, c)
		}
	}
	if len(records) != 1200 {
		t.Errorf("%d events", len(records))
	}
}

func TestACallIsCutIntoBatchesThatTheTopicAllows(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	small := topic(t, log, "small", 1, "max.message.bytes", "300")
	for _, first := range []int64{0, 1} { // one of the first millisecond of 1970 cannot share a batch with other callers' events
		var events []publish.Event
		for i := range 50 {
			// Times far apart need the longest deltas.
			events = append(events, publish.Event{Topic: "small", Value: make([]byte, 3*i), Time: time.UnixMilli(first + int64(i%2)<<40)})
		}
		_, err := publish.New(log, publish.Config{}).Publish(t.Context(), events...)
		check(t, err)
	}
	h := read(t, log, small.Partitions[0])
	for _, b := range h.batches {
		if len(b.Bytes) > 300 {
			t.Errorf("a batch of %d records has %d bytes", b.Records, len(b.Bytes))
		}
	}
	if len(h.records) != 100 || len(h.batches) > 60 {
		t.Errorf("%d records in %d batches", len(h.records), len(h.batches))
	}
}

func TestTopicsSettingsAreHonoured(t *testing.T) {
	codecs := map[string]batch.Codec{"producer": batch.None, "uncompressed": batch.None, "gzip": batch.Gzip, "snappy": batch.Snappy, "lz4": batch.LZ4, "zstd": batch.Zstd}
	for name, codec := range codecs {
		for _, stamp := range []string{"CreateTime", "LogAppendTime"} {
			t.Run(name+" "+stamp, func(t *testing.T) {
				log := run(t, memory.New(), eventlog.Config{})
				orders := topic(t, log, "orders", 2, "compression.type", name, "message.timestamp.type", stamp)
				p := publish.New(log, publish.Config{})
				old := time.UnixMilli(1)
				event := func(partition int32) publish.Event {
					return publish.Event{Topic: "orders", Partition: &partition, Value: bytes.Repeat([]byte("x"), 1000), Time: old}
				}
				before := time.Now().UnixMilli()
				_, err := p.Publish(t.Context(), event(0)) // loose
				check(t, err)
				_, err = p.Publish(t.Context(), event(0), event(1)) // sealed
				check(t, err)
				_, _, err = p.PublishOnce(t.Context(), "key", event(1))
				check(t, err)
				for _, partition := range orders.Partitions {
					h := read(t, log, partition)
					if len(h.batches) != 2 {
						t.Errorf("%d batches", len(h.batches))
					}
					for _, b := range h.batches {
						header, err := batch.Check(b.Bytes)
						check(t, err)
						if header.Attributes.Codec() != codec || header.Attributes.AppendTime() != (stamp == "LogAppendTime") {
							t.Errorf("a batch is in %v, append time %v", header.Attributes.Codec(), header.Attributes.AppendTime())
						}
						if b.MaxTime != eventlog.Timestamp(header.MaxTimestamp) {
							t.Errorf("the store heard of %d, the batch says %d", b.MaxTime, header.MaxTimestamp)
						}
					}
					for _, r := range h.records {
						if fresh := r.Timestamp >= before; fresh != (stamp == "LogAppendTime") {
							t.Errorf("a record of %d", r.Timestamp)
						}
					}
				}
			})
		}
	}
}

func TestSingleEventsShareFlushesAndBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newGate(memory.New())
		log := run(t, store, eventlog.Config{})
		orders := topic(t, log, "orders", 1)
		p := publish.New(log, publish.Config{})
		store.shut()
		commits := store.commits.Load()
		var callers sync.WaitGroup
		for range 500 {
			callers.Go(func() {
				if _, err := p.Publish(t.Context(), publish.Event{Topic: "orders"}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		store.pass()
		callers.Wait()
		if h := read(t, log, orders.Partitions[0]); len(h.batches) > 2 || store.commits.Load()-commits > 2 {
			t.Errorf("500 events in %d batches, %d commits; want at most 2 of each: those that went at once, and the rest", len(h.batches), store.commits.Load()-commits)
		}
	})
}

func TestATopicThatAnotherProcessMadeAnewIsFound(t *testing.T) {
	store := memory.New()
	here, there := run(t, store, eventlog.Config{Poll: time.Hour}), run(t, store, eventlog.Config{Poll: time.Hour})
	p := publish.New(here, publish.Config{})
	topic(t, here, "orders", 1)
	_, err := there.Topic(t.Context(), "orders")
	check(t, err)
	check(t, there.DeleteTopic(t.Context(), "orders"))
	if _, err := p.Publish(t.Context(), publish.Event{Topic: "orders"}); !errors.Is(err, eventlog.ErrUnknownTopic) {
		t.Errorf("to a topic that another process deleted: %v", err)
	}
	topic(t, here, "orders", 1)
	check(t, there.RefreshTopics(t.Context()))
	for _, n := range []int{1, 2} { // loose and sealed
		check(t, there.DeleteTopic(t.Context(), "orders"))
		anew := topic(t, there, "orders", 2)
		var events []publish.Event
		for i := range n {
			events = append(events, publish.Event{Topic: "orders", Partition: number(int32(i))})
		}
		_, err = p.Publish(t.Context(), events...)
		check(t, err)
		if got := total(t, there, anew); got != n {
			t.Errorf("%d events in the new topic, want %d", got, n)
		}
	}
}

func TestUnknownOutcomeIsToldAsSuch(t *testing.T) {
	store := newGate(memory.New())
	log := run(t, store, eventlog.Config{})
	topic(t, log, "orders", 2)
	p := publish.New(log, publish.Config{})
	one, other := publish.Event{Topic: "orders", Partition: number(0)}, publish.Event{Topic: "orders", Partition: number(1)}
	for _, events := range [][]publish.Event{{one}, {one, other}} {
		store.lose(1)
		if _, err := p.Publish(t.Context(), events...); !errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("%d events, and the answer was lost: %v", len(events), err)
		}
	}
}
