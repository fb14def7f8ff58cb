package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// What can be seen of a queue's messages, on PostgreSQL. The helpers are in postgres_test.go.

// Messages are listed alike by the process that changed them, and by one that began afterwards.
func TestOnPostgresMessagesAreListedByState(t *testing.T) {
	url := database(t)
	p := serve(t, url)
	q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 2, Settings: statesSettings})
	others := create(t, p.Queues, queue.Spec{Name: "others"})
	began, ended := putInStates(t, q, others)
	checkStates(t, q, began, ended)
	_, q = alsoServe(t, url)
	checkStates(t, q, began, ended)
}

func TestOnPostgresAFinishedMessageSaysWhen(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{KeepDone: true})
	messages := append(numbers(9), queue.NewMessage{Value: []byte("later"), Delay: 500 * time.Millisecond})
	for i := range messages {
		messages[i].Time = time.Now().Add(-time.Hour)
	}
	put(t, q, messages...)
	type span struct{ from, to time.Time }
	acked := make(map[queue.MessageID]span)
	for range 10 {
		m := take(t, q, 1)[0]
		from := time.Now()
		ack(t, q, m)
		acked[m.ID] = span{from, time.Now()}
	}
	_, other := alsoServe(t, url)
	for _, q := range []*queue.Queue{q, other} {
		for id, when := range acked { // by the store's clock, which is known as well as trips are short
			c := find(t, q, id)
			if c.State != queue.Done || c.Done.Before(when.from.Add(-limit)) || c.Done.After(when.to.Add(limit)) || c.Worker != "w" || c.Attempt != 1 {
				t.Errorf("message %v, which was acknowledged from %v to %v, is %+v", id, when.from, when.to, c)
			}
		}
	}
}

// The counts say how long the oldest message has waited that may be claimed; those of one queue are
// those among all queues.
func TestOnPostgresTheCountsSayHowLongTheOldestMessageWaits(t *testing.T) {
	url := database(t)
	p, q := servePartitions(t, url, queue.Settings{})
	other, sameQueue := alsoServe(t, url)
	now := time.Now()
	aged := func(value string, age time.Duration) queue.NewMessage {
		return queue.NewMessage{Value: []byte(value), Key: []byte(value), Time: now.Add(-age)}
	}
	put(t, q, aged("oldest", 3*time.Hour))
	oldest := take(t, q, 1)[0]
	put(t, q, aged("older", 2*time.Hour), aged("young", time.Hour))
	waits := func(what string, want time.Duration, ready, claimed int64) {
		t.Helper()
		alone := func(q *queue.Queue) queue.Stats {
			s, err := q.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		among := func(p process) queue.Stats {
			all, _, err := p.Counts(t.Context())
			if err != nil || len(all) != 1 || all[0].Name != "mail" {
				t.Fatalf("%s: counts %+v, %v", what, all, err)
			}
			return all[0].Stats
		}
		for by, s := range map[string]queue.Stats{"alone": alone(q), "alone, elsewhere": alone(sameQueue), "among all": among(p), "among all, elsewhere": among(other)} {
			if s.Ready != ready || s.Claimed != claimed || s.Oldest < want-early || s.Oldest > want+limit {
				t.Errorf("%s, %s: %+v; want %d ready, %d claimed, and the oldest to wait for %v", what, by, s, ready, claimed, want)
			}
		}
	}
	waits("while the oldest is claimed", 2*time.Hour, 2, 1)
	nack(t, q, queue.Nack{SetDelay: true}, oldest)
	for _, q := range []*queue.Queue{q, sameQueue} {
		waitUntil(t, "its pause of 0 is over by the store's clock", func() bool { return stats(t, q).Waiting == 0 })
	}
	waits("after it was given back", 3*time.Hour, 3, 0)
	ack(t, q, take(t, q, 3)...)
	waits("after all acks", 0, 0, 0)
}

// Dead letters are redriven at a rate: none comes before its time, whoever claims.
func TestOnPostgresARedriveOfAllKeepsToItsRate(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{})
	_, other := alsoServe(t, url)
	const rate, total = 10, 15
	put(t, q, numbers(total)...)
	nack(t, q, queue.Nack{Reject: true}, take(t, q, total)...)
	began := time.Now()
	redriven := make(chan string, 1)
	go func() {
		n, err := q.RedriveAll(t.Context(), rate)
		redriven <- fmt.Sprint(n, err)
	}()
	for n := range total {
		m := take(t, other, 1)[0]
		if passed := time.Since(began); passed < time.Duration(n)*time.Second/rate-early {
			t.Errorf("the redriven message %d came after %v, at %d a second", n, passed, rate)
		}
		same(t, "message", attempts([]queue.Message{m}), fmt.Sprintf("[%d:1]", n))
	}
	same(t, "redriven", waitFor(t, redriven), fmt.Sprint(total, nil))
	same(t, "the queue", stats(t, q), queue.Stats{Claimed: total})
}
