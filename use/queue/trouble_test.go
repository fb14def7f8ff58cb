package queue_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// process is the queues of one process, and what is below them.
type process struct {
	*queue.Queues
	log  *eventlog.Log
	stop func()
}

// begin runs a process on a store until the test ends, or stop.
func begin(t *testing.T, store eventlog.Store, poll time.Duration) process {
	t.Helper()
	return beginBeside(t, store, poll, nil)
}

func beginBeside(t *testing.T, store eventlog.Store, poll time.Duration, sql queue.Beside) process {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Poll: poll})
	if err != nil {
		t.Fatal(err)
	}
	p := process{log: log, Queues: queue.New(log, publish.New(log, publish.Config{}), queue.Config{Beside: sql})}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx) })
	started := make(chan struct{})
	running.Go(func() { close(started); _ = p.Run(ctx) })
	<-started
	p.stop = func() { cancel(); running.Wait() }
	t.Cleanup(p.stop)
	return p
}

// garble makes a batch whose header is right and whose records are not.
func garble(t *testing.T, topic eventlog.Topic, n int) eventlog.Batch {
	t.Helper()
	b, err := topic.Seal(topic.Partitions[0], make([]batch.Record, n))
	if err != nil {
		t.Fatal(err)
	}
	const header, atCRC, atAttributes = 61, 17, 21
	for i := header; i < len(b.Bytes); i++ {
		b.Bytes[i] = 0xff
	}
	binary.BigEndian.PutUint32(b.Bytes[atCRC:], crc32.Checksum(b.Bytes[atAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func TestMessagesThatCannotBeReadBecomeDeadLettersAndHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		topic, err := p.log.Topic(t.Context(), "mail")
		if err != nil {
			t.Fatal(err)
		}
		enqueue(t, q, "before")
		if _, err := p.log.Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{garble(t, topic, 2)}}); err != nil {
			t.Fatal(err)
		}
		enqueue(t, q, "after")
		got := ""
		for range 4 {
			got += values(claimN(t, q, 10))
		}
		if got != "before after " {
			t.Fatalf("around a batch that cannot be read there is %q", got)
		}
		letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
		if err != nil || len(letters) != 2 || letters[0].Reason != "unreadable" || letters[0].ID != (queue.MessageID{Partition: topic.Partitions[0], Offset: 1}) {
			t.Fatalf("dead letters %+v, %v; want the two that cannot be read", letters, err)
		}
	})
}

// A process that has not heard of a message's record yet may find it claimed and given back by
// another one.
func TestAMessageThatThisProcessHasNotHeardOfIsNotTakenForOneThatIsGone(t *testing.T) {
	for _, before := range []int{0, 1, 2} { // records between what this process knows and the message
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			a, b := begin(t, store, time.Hour), begin(t, store, time.Hour)
			synctest.Wait()
			q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeepDone: true}})
			if err := b.log.RefreshTopics(t.Context()); err != nil {
				t.Fatal(err)
			}
			other := open(t, b.Queues, "mail")
			enqueue(t, other, "known") // b has heard of the partition
			if got := claimN(t, other, 1); len(got) != 1 {
				t.Fatal("b does not get its own message")
			}
			for i := range before {
				enqueue(t, q, fmt.Sprint(i))
			}
			enqueue(t, q, "late")
			ms := claimN(t, q, 10)
			if len(ms) != before+1 {
				t.Fatalf("a got %q", values(ms))
			}
			for _, m := range ms {
				if errs, err := q.Nack(t.Context(), queue.Nack{SetDelay: true}, m.Receipt); err != nil || errs[0] != nil {
					t.Fatal(err, errs)
				}
			}
			time.Sleep(2 * time.Second)
			got, err := other.Claim(t.Context(), queue.Claim{Max: 10, Wait: 5 * time.Second})
			if err != nil || !strings.HasSuffix(values(got), "late ") || len(got) != before+1 {
				t.Fatalf("b got %q, %v; want all that a gave back", values(got), err)
			}
			for _, m := range got {
				if errs, err := q.Ack(t.Context(), m.Receipt); err != nil || errs[0] != nil {
					t.Fatal(err, errs)
				}
			}
		})
	}
}

func TestWhatOneProcessGivesBackIsSoonClaimedInAnother(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		t.Run(fmt.Sprint("wait ", wait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				a, b := begin(t, store, 100*time.Millisecond), begin(t, store, 100*time.Millisecond)
				synctest.Wait()
				q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: time.Hour}})
				time.Sleep(time.Second)
				other := open(t, b.Queues, "mail")
				got := make(chan []queue.Message, 1)
				claim := func(wait time.Duration) []queue.Message {
					ms, err := other.Claim(t.Context(), queue.Claim{Wait: wait})
					if err != nil {
						t.Error(err)
					}
					return ms
				}
				claim(0) // b knows the queue, and that it is empty
				if wait > 0 {
					go func() { got <- claim(wait) }()
					synctest.Wait()
				}
				enqueue(t, q, "a")
				m := claimN(t, q, 1)
				if len(m) != 1 {
					t.Skip("b was faster")
				}
				time.Sleep(5 * time.Second)
				if wait == 0 {
					claim(0)
					time.Sleep(time.Second)
				}
				errs, err := q.Nack(t.Context(), queue.Nack{SetDelay: true}, m[0].Receipt)
				if one(t, errs, err) != nil {
					t.Fatal(errs)
				}
				began := time.Now()
				if wait == 0 {
					go func() {
						for ms := claim(0); ; ms = claim(0) {
							if len(ms) > 0 || time.Since(began) > time.Minute {
								got <- ms
								return
							}
							time.Sleep(100 * time.Millisecond)
						}
					}()
				}
				if ms := <-got; len(ms) != 1 || time.Since(began) > 1200*time.Millisecond {
					t.Fatalf("got %v after %v", ms, time.Since(began))
				}
			})
		})
	}
}

// A record becomes durable some time after its slot was chosen.
func TestADelayedMessageThatReachesItsSlotLateIsNotLateByATurnOfTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		for i := range 64 { // each slot has something to come
			if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("far"), Delay: time.Duration(i+600) * time.Second}, queue.NewMessage{Value: []byte("far"), Delay: time.Duration(i) * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		for range 40 {
			ms := claimN(t, q, 100)
			for _, m := range ms {
				if _, err := q.Ack(t.Context(), m.Receipt); err != nil {
					t.Fatal(err)
				}
			}
			// The slot of a second or more ago gets what is to come in 63 s, and what was due then.
			if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("far"), Delay: 63 * time.Second}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			topic, err := p.log.Topic(t.Context(), "__weir_later")
			if err != nil {
				t.Fatal(err)
			}
			due := time.Now().Add(-1100 * time.Millisecond)
			slot := due.UnixMilli() / 1000 % 64
			b, err := topic.Seal(topic.Partitions[slot], []batch.Record{{Value: []byte("late"), Timestamp: due.UnixMilli(), Headers: []batch.RecordHeader{
				{Key: "weir.queue.to", Value: []byte("mail/" + q.Info().ID)}, {Key: "weir.queue.due", Value: strconv.AppendInt(nil, due.UnixMilli(), 10)}}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.log.Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{b}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond)
			if got := values(claimN(t, q, 100)); !strings.Contains(got, "late") {
				t.Fatalf("after 300 ms there is %q", got)
			}
			time.Sleep(850 * time.Millisecond)
		}
	})
}

func TestKeysBehindAThousandMessagesOfOneKeyAreGivenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeyOrder: true, Window: 50}})
		var ms []queue.NewMessage
		for i := range 1000 {
			ms = append(ms, queue.NewMessage{Key: []byte("x"), Value: fmt.Append(nil, "x", i)})
		}
		ms = append(ms, queue.NewMessage{Key: []byte("y"), Value: []byte("y")})
		if _, err := q.Enqueue(t.Context(), ms...); err != nil {
			t.Fatal(err)
		}
		if got := values(append(claimN(t, q, 10), claimN(t, q, 10)...)); got != "x0 y " {
			t.Fatalf("claimed %q, want the first of each key", got)
		}
		if got := values(claimN(t, q, 10)); got != "" {
			t.Fatalf("claimed %q beside them", got)
		}
	})
}

func TestForgedReceiptsAreRefusedByEveryAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeepDone: true, Unique: true}})
		enqueue(t, q, "a", "b")
		m := claimN(t, q, 1)[0]
		of := strings.Split(m.Receipt, ".")
		forge := func(field int, value string) string {
			f := append([]string(nil), of...)
			f[field] = value
			return strings.Join(f, ".")
		}
		forged := []string{
			"", "x", strings.Repeat("1.", 100), strings.Repeat("x", 1<<20), m.Receipt + ".1", m.Receipt + " ",
			forge(0, "0000000000000000"), forge(2, "1"), forge(2, "2"), forge(2, "1000000"), forge(2, "9223372036854775807"), forge(2, "-1"), forge(2, "99999999999999999999"),
			forge(3, "0"), forge(3, "2"), forge(3, "-5"), forge(4, "00000000"), forge(4, "xyz"),
		}
		for name, answer := range map[string]func(...string) ([]error, error){
			"ack":    func(r ...string) ([]error, error) { return q.Ack(t.Context(), r...) },
			"nack":   func(r ...string) ([]error, error) { return q.Nack(t.Context(), queue.Nack{}, r...) },
			"reject": func(r ...string) ([]error, error) { return q.Nack(t.Context(), queue.Nack{Reject: true}, r...) },
			"extend": func(r ...string) ([]error, error) { return q.Extend(t.Context(), time.Minute, r...) },
		} {
			errs, err := answer(forged...)
			if err != nil || len(errs) != len(forged) {
				t.Fatal(name, err)
			}
			for i, err := range errs {
				if !errors.Is(err, queue.ErrBadReceipt) && !errors.Is(err, queue.ErrStaleReceipt) {
					t.Errorf("%s of the forged receipt %.60q: %v", name, forged[i], err)
				}
			}
		}
		many := make([]string, queue.AnswersMax+1)
		for i := range many {
			many[i] = m.Receipt
		}
		var invalid *eventlog.InvalidError
		if _, err := q.Ack(t.Context(), many...); !errors.As(err, &invalid) {
			t.Errorf("one receipt too many: %v", err)
		}
		errs, err := q.Ack(t.Context(), many[1:]...)
		if err != nil || errs[0] != nil || errs[1] != nil || errs[99_999] != nil {
			t.Errorf("one receipt 100,000 times: %v; %v, %v", err, errs[0], errs[1])
		}
		if got := values(claimN(t, q, 10)); got != "b " {
			t.Errorf("then there is %q, want b", got)
		}
	})
}

func TestWhatIsNotAllowedIsRefusedAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
		var invalid *eventlog.InvalidError
		for _, lease := range []time.Duration{-1, -time.Hour, time.Millisecond, 365 * 24 * time.Hour} {
			if _, err := q.Claim(t.Context(), queue.Claim{Lease: lease}); !errors.As(err, &invalid) {
				t.Errorf("claim with a lease of %v: %v", lease, err)
			}
			if _, err := q.Extend(t.Context(), lease, "x"); !errors.As(err, &invalid) {
				t.Errorf("extend by %v: %v", lease, err)
			}
		}
		if _, err := q.Extend(t.Context(), 0, "x"); !errors.As(err, &invalid) {
			t.Errorf("extend by 0: %v", err)
		}
		for name, m := range map[string]queue.NewMessage{
			"a negative delay":      {Delay: -time.Second},
			"a delay of a thousand": {Delay: 200 * 365 * 24 * time.Hour},
			"the year 9999":         {At: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
			"delay and time":        {Delay: 1, At: time.Now().Add(time.Hour)},
			"a unique key of 1 MiB": {Unique: strings.Repeat("u", 1<<20)},
			"priority 1 of none":    {Priority: 1},
			"priority -1":           {Priority: -1},
		} {
			if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("good")}, m); !errors.As(err, &invalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, m := range map[string]queue.NewMessage{
			"now": {}, "later": {Delay: 2 * time.Second}, "unique": {Unique: "u"}, "unique and later": {Unique: "v", Delay: 2 * time.Second},
		} {
			for _, size := range []int{2 << 20, 20 << 20} {
				m.Value = make([]byte, size)
				if _, err := q.Enqueue(t.Context(), m); !errors.Is(err, eventlog.ErrTooLarge) {
					t.Errorf("%d MiB %s: %v", size>>20, name, err)
				}
			}
		}
		if _, err := qs.Open(t.Context(), "nobody"); !errors.Is(err, queue.ErrUnknownQueue) {
			t.Errorf("unknown queue: %v", err)
		}
		time.Sleep(10 * time.Second)
		if got := claimN(t, q, 10); len(got) != 0 {
			t.Errorf("refused messages are there: %d", len(got))
		}
		for name, m := range map[string]queue.NewMessage{"empty": {}, "in the past": {At: time.Now().Add(-time.Hour)}, "in the year 1": {At: time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)}} {
			if _, err := q.Enqueue(t.Context(), m); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := claimN(t, q, 10); len(got) != 1 || len(got[0].Value) != 0 {
				t.Errorf("%s: claimed %d", name, len(got))
			}
		}
	})
}

func TestAUniqueKeyIsFreeOnceItsMessageIsGone(t *testing.T) {
	put := func(t *testing.T, q *queue.Queue) queue.Enqueued {
		t.Helper()
		out, err := q.Enqueue(t.Context(), queue.NewMessage{Unique: "u"})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	t.Run("with the topic's retention", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := begin(t, newStore(t), 20*time.Second)
			synctest.Wait()
			q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
			first := put(t, q)
			time.Sleep(2 * time.Hour)
			if again := put(t, q); !again.Repeated {
				t.Fatal("the key of a message that is there is free")
			}
			enqueue(t, q, "other")
			if err := p.log.Trim(t.Context(), first.ID.Partition, first.ID.Offset+1); err != nil {
				t.Fatal(err)
			}
			if again := put(t, q); again.Repeated {
				t.Fatal("the key of a message that retention removed is taken")
			}
			if again := put(t, q); !again.Repeated {
				t.Fatal("the key of the new message is free")
			}
		})
	})
	t.Run("done while the queue had no unique keys", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			qs := start(t, newStore(t))
			create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
			unique := func(on bool) {
				if _, err := qs.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Unique = on; return nil }); err != nil {
					t.Fatal(err)
				}
			}
			put(t, open(t, qs, "mail"))
			unique(false)
			q := open(t, qs, "mail")
			if errs, err := q.Ack(t.Context(), claimN(t, q, 1)[0].Receipt); err != nil || errs[0] != nil {
				t.Fatal(err, errs)
			}
			unique(true)
			time.Sleep(2 * time.Hour)
			if again := put(t, open(t, qs, "mail")); again.Repeated {
				t.Fatal("the key of a message that is done is taken")
			}
		})
	})
}

func eventRecord(value string) batch.Record {
	return batch.Record{Value: []byte(value), Timestamp: time.Now().UnixMilli()}
}

// flawed is a store that gives back one batch of a partition with other bytes than it was given.
type flawed struct {
	eventlog.Store
	mu        sync.Mutex
	partition eventlog.Partition
	base      eventlog.Offset
}

func (s *flawed) damage(p eventlog.Partition, base eventlog.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partition, s.base = p, base
}

func (s *flawed) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	got, err := s.Store.Read(ctx, spans, maxBytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range got {
		for k, b := range got[i].Batches {
			if b.Partition == s.partition && b.Base == s.base {
				b.Bytes = append([]byte(nil), b.Bytes...)
				b.Bytes[len(b.Bytes)-1] ^= 0xff
				got[i].Batches[k] = b
			}
		}
	}
	return got, err
}

func TestADamagedBatchHoldsUpNeitherItsPartitionNorTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flawed{Store: newStore(t), partition: -1}
		p := begin(t, store, 100*time.Millisecond)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "before")
		enqueue(t, q, "damaged")
		enqueue(t, q, "after")
		topic, err := p.log.Topic(t.Context(), "mail")
		if err != nil {
			t.Fatal(err)
		}
		late := func(value string, delay time.Duration) queue.MessageID {
			t.Helper()
			at, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte(value), Delay: delay})
			if err != nil {
				t.Fatal(err)
			}
			return at[0].ID
		}
		p.stop() // another process reads from the store
		store.damage(topic.Partitions[0], 1)
		p = begin(t, store, 100*time.Millisecond)
		synctest.Wait()
		q = open(t, p.Queues, "mail")
		got := ""
		for range 4 {
			ms := claimN(t, q, 10)
			got += values(ms)
			for _, m := range ms {
				errs, err := q.Ack(t.Context(), m.Receipt)
				if one(t, errs, err) != nil {
					t.Error(errs)
				}
			}
		}
		if got != "before after " {
			t.Errorf("around a damaged batch %q is claimed", got)
		}
		letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
		if err != nil || len(letters) != 1 || letters[0].Reason != "unreadable" {
			t.Errorf("dead letters %+v, %v; want the damaged one", letters, err)
		}

		bad := late("damaged", 90*time.Second)
		late("good", 90*time.Second)
		late("other", 95*time.Second)
		p.stop()
		store.damage(bad.Partition, bad.Offset)
		p = begin(t, store, 100*time.Millisecond)
		synctest.Wait()
		time.Sleep(3 * time.Minute)
		if got := values(claimN(t, open(t, p.Queues, "mail"), 10)); got != "good other " {
			t.Errorf("of the delayed messages %q came", got)
		}
	})
}

// A door may be open a moment before Run begins: a claim waits for it, and is not told that the
// process stops.
func TestAClaimBeforeRunBeginsWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, err := eventlog.Open(t.Context(), newStore(t), eventlog.Config{Poll: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = log.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
		qs := queue.New(log, publish.New(log, publish.Config{}), queue.Config{})
		q := create(t, qs, queue.Spec{Name: "mail"})
		hurried, hurry := context.WithTimeout(t.Context(), time.Second)
		defer hurry()
		if _, err := q.Claim(hurried, queue.Claim{Max: 1}); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("a claim that gives up before Run: %v, want ErrUnavailable", err)
		}
		claimed := make(chan string)
		go func() {
			got, err := q.Claim(t.Context(), queue.Claim{Max: 1, Wait: time.Minute})
			if err != nil || len(got) != 1 {
				claimed <- fmt.Sprint(got, err)
				return
			}
			claimed <- string(got[0].Value)
		}()
		synctest.Wait()
		running.Go(func() { _ = qs.Run(ctx) })
		synctest.Wait()
		enqueue(t, q, "hello")
		if got := <-claimed; got != "hello" {
			t.Errorf("claimed %s", got)
		}
	})
}

// A message that waits for its retries outside of its partition moves: its age does not begin
// again.
func TestRetriesDoNotMakeAMessageYounger(t *testing.T) {
	for _, first := range []time.Duration{0, 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			qs := start(t, newStore(t))
			q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{TTL: 10 * time.Minute, Attempts: -1, Delays: []time.Duration{2 * time.Minute}}})
			if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("x"), Delay: first}); err != nil {
				t.Fatal(err)
			}
			begin, attempts := time.Now(), 0
			for time.Since(begin) < time.Hour {
				for _, m := range claimN(t, q, 1) {
					attempts++
					errs, err := q.Nack(t.Context(), queue.Nack{}, m.Receipt)
					if err := one(t, errs, err); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
			}
			dead, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
			if err != nil || len(dead) != 1 || dead[0].Reason != "expired" || attempts != 5 {
				t.Errorf("after a delay of %v and %d attempts the dead letters are %+v, %v; want that it expired after 5", first, attempts, dead, err)
			}
		})
	}
}
