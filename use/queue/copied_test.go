package queue_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/queue"
)

// A worker passes on the headers of the message that it has, or a mirror copies the record: that is
// a new message all the same.
var copiers = map[string]func(t *testing.T, p process, q *queue.Queue, headers []batch.RecordHeader){
	"enqueued": func(t *testing.T, _ process, q *queue.Queue, headers []batch.RecordHeader) {
		t.Helper()
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("copy"), Headers: headers}); err != nil {
			t.Fatal(err)
		}
	},
	"delayed": func(t *testing.T, _ process, q *queue.Queue, headers []batch.RecordHeader) {
		t.Helper()
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("copy"), Headers: headers, Delay: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
	},
	"published": func(t *testing.T, p process, q *queue.Queue, headers []batch.RecordHeader) {
		t.Helper()
		forge(t, p, q.Info().Topic, headers...)
	},
}

func copied(t *testing.T, test func(t *testing.T, p process, again func(*queue.Queue, []batch.RecordHeader))) {
	for name, again := range copiers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := begin(t, newStore(t), time.Second)
				synctest.Wait()
				test(t, p, func(q *queue.Queue, headers []batch.RecordHeader) { again(t, p, q, headers) })
			})
		})
	}
}

func TestACopyOfAMessageDoesNotFreeItsUniqueKey(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} {
		copied(t, func(t *testing.T, p process, again func(*queue.Queue, []batch.RecordHeader)) {
			q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true, Lease: time.Hour}})
			put := func() queue.Enqueued {
				out, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("first"), Unique: "u", Delay: delay})
				if err != nil {
					t.Fatal(err)
				}
				return out[0]
			}
			put()
			time.Sleep(5 * time.Second)
			first := claimN(t, q, 1)[0]
			again(q, first.Headers)
			second := claimN(t, q, 1)[0]
			nack(t, q, queue.Nack{SetDelay: true, Delay: 2 * time.Minute}, second) // also not on its way through the wheel
			time.Sleep(3 * time.Minute)
			ack(t, q, claimN(t, q, 1)...)
			if !put().Repeated {
				t.Fatal("the message with the key is claimed, and another one with its key was enqueued")
			}
			ack(t, q, first)
			if put().Repeated {
				t.Fatal("the key of a message that is done is taken")
			}
		})
	}
}

func TestACopyOfAMessageHasAllItsAttemptsAndItsOwnTimeAndID(t *testing.T) {
	copied(t, func(t *testing.T, p process, again func(*queue.Queue, []batch.RecordHeader)) {
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		other := create(t, p.Queues, queue.Spec{Name: "other", Partitions: 1, Settings: queue.Settings{Attempts: 2, TTL: 4 * time.Minute}})
		enqueue(t, q, "first")
		for range 2 {
			nack(t, q, queue.Nack{SetDelay: true, Delay: 2 * time.Minute}, claimN(t, q, 1)[0])
			time.Sleep(3 * time.Minute)
		}
		first := claimN(t, q, 1)[0]
		if first.Attempt != 3 {
			t.Fatalf("a message that was put off twice is at attempt %d", first.Attempt)
		}
		for _, to := range []*queue.Queue{q, other} {
			again(to, first.Headers)
			got := claimN(t, to, 1)
			if len(got) != 1 || got[0].Attempt != 1 || got[0].ID == first.ID || got[0].Time.Equal(first.Time) {
				t.Errorf("claimed %+v, want the first attempt of a new message, and not of %+v", got, first)
			}
		}
	})
}

func TestACopyOfAMessageThatWasPurgedIsDelivered(t *testing.T) {
	copied(t, func(t *testing.T, p process, again func(*queue.Queue, []batch.RecordHeader)) {
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("first"), Delay: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		first := claimN(t, q, 1)[0]
		if err := p.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		q = open(t, p.Queues, "mail")
		again(q, first.Headers)
		if got := claimN(t, q, 10); len(got) != 1 {
			t.Errorf("claimed %q, want the copy", values(got))
		}
	})
}

func TestHeadersOfAScheduleAndTheCallersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Priorities: 2}})
		headers := []batch.RecordHeader{{Key: "a"}, {Key: queue.HeaderTick}, {Key: "weir.queue.priority", Value: []byte("1")}, {Key: "b"}, {Key: queue.HeaderSchedule}}
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Headers: headers}); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, h := range claimN(t, q, 1)[0].Headers {
			names = append(names, h.Key)
		}
		if got := strings.Join(names, " "); got != "a weir.queue.tick b weir.queue.schedule" {
			t.Errorf("the message has the headers %s", got)
		}
		if headers[2].Key != "weir.queue.priority" {
			t.Error("the caller's headers were changed")
		}
	})
}

// Two queues read one topic. What comes back for one is not for the other, though what is enqueued
// through one is for both.
func TestWhatComesBackForOneQueueIsNotForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), time.Second)
		synctest.Wait()
		mail := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		audit := create(t, p.Queues, queue.Spec{Name: "audit", Topic: "mail", Partitions: 1, Settings: queue.Settings{Attempts: 2}})
		if _, err := mail.Enqueue(t.Context(), queue.NewMessage{Value: []byte("delayed"), Delay: time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		for _, q := range []*queue.Queue{mail, audit} {
			got := claimN(t, q, 10)
			if values(got) != "delayed " {
				t.Fatalf("%s gets %q", q.Info().Name, values(got))
			}
			ack(t, q, got...)
		}
		enqueue(t, mail, "x")
		var id queue.MessageID
		idle := func(after string) {
			t.Helper()
			if peeked, err := audit.Browse(t.Context(), queue.Browse{}); err != nil || len(peeked.Messages) > 0 {
				t.Errorf("after %s there is %+v (%v) to see in audit", after, peeked, err)
			}
			if c, err := audit.Find(t.Context(), id); err != nil || c.State != "done" {
				t.Errorf("after %s the message is %+v (%v) in audit", after, c, err)
			}
			if got := claimN(t, audit, 10); len(got) > 0 {
				t.Errorf("after %s audit gets %q again", after, values(got))
			}
		}
		got := claimN(t, audit, 10)
		if values(got) != "x " {
			t.Fatalf("audit gets %q", values(got))
		}
		id = got[0].ID
		ack(t, audit, got...)
		for i, after := range []string{"a retry", "another"} {
			m := claimN(t, mail, 1)[0]
			if m.Attempt != i+1 || m.ID != id {
				t.Fatalf("attempt %d in mail is %+v", i+1, m)
			}
			nack(t, mail, queue.Nack{SetDelay: true, Delay: 2 * time.Minute}, m)
			time.Sleep(5 * time.Minute)
			idle(after)
		}
		nack(t, mail, queue.Nack{Reject: true}, claimN(t, mail, 1)[0])
		if n, err := mail.RedriveAll(t.Context(), 0); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		idle("a redrive")
		m := claimN(t, mail, 1)[0]
		if m.Attempt != 1 || m.ID != id {
			t.Errorf("after the redrive mail has %+v", m)
		}
		nack(t, mail, queue.Nack{SetDelay: true, Delay: 2 * time.Minute}, m)
		time.Sleep(5 * time.Minute)
		idle("a retry of what was redriven")
		if m := claimN(t, mail, 1)[0]; m.Attempt != 2 {
			t.Errorf("after that mail has %+v", m)
		}
		if letters, err := audit.DeadLetters(t.Context(), queue.MessageID{}, 10); err != nil || len(letters) > 0 {
			t.Errorf("audit has the dead letters %+v (%v)", letters, err)
		}
	})
}
