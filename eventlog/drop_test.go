package eventlog_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/seed"
)

// Two processes remove records of a random history, on each store: what stays is where it was, and
// what is to go is gone.
func TestDroppedRecordsAreGoneAndTheOthersStayWhereTheyAre(t *testing.T) {
	everystore.Run(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		random := seed.Random(t)
		logs := []*eventlog.Log{open(t, reopen(t), eventlog.Config{}), open(t, reopen(t), eventlog.Config{})}
		topic, err := logs[0].CreateTopic(t.Context(), eventlog.TopicSpec{Name: "t", Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		p := topic.Partitions[0]
		value := func(rec batch.Record) string { return string(rec.Value) }
		want := make(map[int64]string)
		for range 20 {
			var records []batch.Record
			for range 1 + random.IntN(20) {
				records = append(records, batch.Record{Value: fmt.Append(nil, random.IntN(5))})
			}
			at, err := logs[0].Publish(t.Context(), p, records...)
			if err != nil {
				t.Fatal(err)
			}
			for i, rec := range records {
				want[int64(at)+int64(i)] = value(rec)
			}
		}
		first := eventlog.Offset(random.IntN(30))
		if err := logs[0].Trim(t.Context(), p, first); err != nil {
			t.Fatal(err)
		}
		for round, gone := range []string{"1", "3", "3", "0"} {
			log := logs[round%2]
			slices, err := log.Bounds(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			for at, end := slices[0].Bounds.First, slices[0].Bounds.Next; at < end; {
				next, err := log.Drop(t.Context(), log.IncarnationChanged(), topic, p, at, func(rec batch.Record) bool { return value(rec) == gone })
				if err != nil || next <= at {
					t.Fatalf("from %d: %d, %v", at, next, err)
				}
				at = next
			}
			trimmed := int64(-1) // the end of the batch that was trimmed in part, which stays
			for offset := range want {
				if offset < int64(first) {
					delete(want, offset)
				}
			}
			is := make(map[int64]string)
			for _, rec := range heldRecords(t, log, p) {
				is[rec.Offset] = value(rec)
				if value(rec) == gone {
					trimmed = max(trimmed, rec.Offset)
				}
			}
			if trimmed >= int64(first)+20 {
				t.Errorf("round %d: the record at %d is not gone", round, trimmed)
			}
			for offset, v := range want {
				if _, there := is[offset]; v == gone && !there {
					delete(want, offset)
				} else if is[offset] != v {
					t.Errorf("round %d: %q is at %d, want %q", round, is[offset], offset, v)
				}
			}
			if len(is) != len(want) {
				t.Errorf("round %d: there are %d records, want %d", round, len(is), len(want))
			}
		}
	})
}

// Whoever decided before the store was rewound removes nothing afterwards.
func TestNothingIsDroppedByWhatWasKnownBeforeARewind(t *testing.T) {
	changed := make(chan struct{})
	close(changed)
	everystore.Run(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		log := open(t, reopen(t), eventlog.Config{})
		topic, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "t", Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		p := topic.Partitions[0]
		if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		_, err = log.Drop(t.Context(), changed, topic, p, 0, func(batch.Record) bool { return true })
		if !errors.Is(err, eventlog.ErrRewound) {
			t.Errorf("%v", err)
		}
		if held := heldRecords(t, log, p); !slices.ContainsFunc(held, func(rec batch.Record) bool { return string(rec.Value) == "v" }) {
			t.Error("it was dropped")
		}
	})
}
