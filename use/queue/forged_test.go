package queue_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/queue"
)

// forge publishes a record with headers of a queue to its topic, as anybody may who may publish
// there.
func forge(t *testing.T, p process, topic string, headers ...batch.RecordHeader) {
	t.Helper()
	to, err := p.log.Topic(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	rec := eventRecord("forged")
	rec.Headers = headers
	if _, err := p.log.Publish(t.Context(), to.Partitions[0], rec); err != nil {
		t.Fatal(err)
	}
}

// The forger knows all of a message but the token in its header: the key in the store, and the
// message's id.
func TestAForgedHeaderFreesNoOtherMessagesUniqueKey(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Minute} {
		for _, give := range []string{"ack", "reject", "delay"} {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				p := begin(t, store, 20*time.Second)
				synctest.Wait()
				q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
				put := func() queue.Enqueued {
					t.Helper()
					out, err := q.Enqueue(t.Context(), queue.NewMessage{Unique: "u", Value: []byte("real"), Delay: delay})
					if err != nil {
						t.Fatal(err)
					}
					return out[0]
				}
				first := put()
				key := keysOf(t, store, "queue/unique/")[0]
				forge(t, p, "mail", batch.RecordHeader{Key: "weir.queue.unique", Value: []byte(key)}, batch.RecordHeader{Key: queue.HeaderID, Value: []byte(first.ID.String())})
				var forged queue.Message
				for _, m := range claimN(t, q, 10) {
					if string(m.Value) == "forged" {
						forged = m
					}
				}
				var errs []error
				var err error
				switch give {
				case "ack":
					errs, err = q.Ack(t.Context(), forged.Receipt)
				case "reject":
					errs, err = q.Nack(t.Context(), queue.Nack{Reject: true}, forged.Receipt)
				case "delay":
					errs, err = q.Nack(t.Context(), queue.Nack{SetDelay: true, Delay: time.Hour}, forged.Receipt)
				}
				if err := one(t, errs, err); err != nil {
					t.Fatal(err)
				}
				if again := put(); !again.Repeated || again.ID != first.ID {
					t.Fatalf("%s of a forged message freed the key of another, delayed by %v", give, delay)
				}
				if delay == 0 { // and the real one still frees it
					receipt := ""
					time.Sleep(time.Hour / 2)
					for _, m := range claimN(t, q, 10) {
						if string(m.Value) == "real" {
							receipt = m.Receipt
						}
					}
					errs, err := q.Ack(t.Context(), receipt)
					if err := one(t, errs, err); err != nil {
						t.Fatal(err)
					}
					if put().Repeated {
						t.Fatalf("after %s of a forged message the real one does not free its key", give)
					}
				}
			})
		}
	}
}

func TestAMessageDelayedForARetryFreesItsUniqueKeyWhenItIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
		put := func() queue.Enqueued {
			out, err := q.Enqueue(t.Context(), queue.NewMessage{Unique: "u", Delay: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			return out[0]
		}
		first := put()
		for range 2 {
			time.Sleep(time.Hour + time.Second)
			m := claimN(t, q, 1)
			if len(m) != 1 || !put().Repeated {
				t.Fatalf("claimed %v, or its key is free", m)
			}
			errs, err := q.Nack(t.Context(), queue.Nack{SetDelay: true, Delay: time.Hour}, m[0].Receipt)
			if err := one(t, errs, err); err != nil {
				t.Fatal(err)
			}
			if again := put(); !again.Repeated || again.ID != first.ID {
				t.Fatalf("the key of a message that is delayed for a retry is %+v", again)
			}
		}
		time.Sleep(time.Hour + time.Second)
		errs, err := q.Ack(t.Context(), claimN(t, q, 1)[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		if put().Repeated {
			t.Fatal("the key of a message that is done is taken")
		}
	})
}

// A key that an older version put has no token: its message has none, too.
func TestAUniqueKeyWithoutATokenIsFreedByItsOwnMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		p := begin(t, store, 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
		first, err := q.Enqueue(t.Context(), queue.NewMessage{Unique: "u"})
		if err != nil {
			t.Fatal(err)
		}
		errs, err := q.Ack(t.Context(), claimN(t, q, 1)[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		key := uniqueKeyOf(t, p, q)
		old := queue.MessageID{Partition: first[0].ID.Partition, Offset: first[0].ID.Offset + 1}
		_, err = p.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte(old.String())}}})
		if err != nil {
			t.Fatal(err)
		}
		for i, frees := range []bool{true, false} { // the first message is the one that the key names
			forge(t, p, "mail", batch.RecordHeader{Key: "weir.queue.unique", Value: []byte(key)})
			if i == 1 {
				_, err = p.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte(old.String() + " moved")}}})
				if err != nil {
					t.Fatal(err)
				}
			}
			errs, err := q.Ack(t.Context(), claimN(t, q, 1)[0].Receipt)
			if err := one(t, errs, err); err != nil {
				t.Fatal(err)
			}
			if there := len(keysOf(t, store, "queue/unique/")) > 0; there == frees {
				t.Fatalf("message %d: the key is there: %v", i, there)
			}
		}
	})
}

// Who knows where the message is cannot free such a key by a record that says it was enqueued
// there.
func TestAForgedIDFreesNoUniqueKeyWithoutAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		p := begin(t, store, 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
		key := uniqueKeyOf(t, p, q)
		enqueue(t, q, "real")
		real := claimN(t, q, 1)[0]
		_, err := p.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte(real.ID.String())}}})
		if err != nil {
			t.Fatal(err)
		}
		forge(t, p, "mail", batch.RecordHeader{Key: "weir.queue.unique", Value: []byte(key)}, batch.RecordHeader{Key: queue.HeaderID, Value: []byte(real.ID.String())})
		errs, err := q.Ack(t.Context(), claimN(t, q, 1)[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		if len(keysOf(t, store, "queue/unique/")) == 0 {
			t.Fatal("a forged record freed the key")
		}
	})
}

// uniqueKeyOf is the store's key of the unique key u.
func uniqueKeyOf(t *testing.T, p process, q *queue.Queue) string {
	t.Helper()
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Unique: "u", Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	kvs, err := p.log.List(t.Context(), "queue/unique/", "", 10)
	if err != nil || len(kvs) != 1 {
		t.Fatal(kvs, err)
	}
	return kvs[0].Key
}

func TestAForgedNumberOfTriesIsWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Attempts: -1}})
		forge(t, p, "mail", batch.RecordHeader{Key: queue.HeaderPriorAttempts, Value: []byte("9223372036854775807")})
		if m := claimN(t, q, 1); len(m) != 1 || m[0].Attempt < 1 || m[0].Attempt > 1_000_001 {
			t.Fatalf("claimed %+v", m)
		}
	})
}

// A forged priority counts when its message comes back from the dead letters, and is one of the
// queue's: each message comes back, once.
func TestAForgedPriorityIsOneOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Priorities: 3}})
		forgeries := strings.Fields("99 -1 x 1.5 9223372036854775807 9223372036854775808 8 2")
		for _, priority := range forgeries {
			forge(t, p, "mail", batch.RecordHeader{Key: "weir.queue.priority", Value: []byte(priority)})
		}
		for _, m := range claimN(t, q, len(forgeries)) {
			nack(t, q, queue.Nack{Reject: true}, m)
		}
		if n, err := q.RedriveAll(t.Context(), 0); n != len(forgeries) || err != nil {
			t.Fatalf("%d of %d came back, %v", n, len(forgeries), err)
		}
		synctest.Wait()
		if again := claimN(t, q, len(forgeries)); len(again) != len(forgeries) {
			t.Errorf("%d messages can be claimed, want %d", len(again), len(forgeries))
		}
	})
}
