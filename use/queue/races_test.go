package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// between is a store that lets something happen once in the middle of an operation: after a prefix
// was listed.
type between struct {
	eventlog.Store
	mu     sync.Mutex
	prefix string
	then   func()
}

func (s *between) after(prefix string, then func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prefix, s.then = prefix, then
}

func (s *between) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	s.mu.Lock()
	then := s.then
	if then != nil && strings.HasPrefix(prefix, s.prefix) {
		s.then = nil
	} else {
		then = nil
	}
	s.mu.Unlock()
	if then != nil {
		then()
	}
	return kvs, err
}

// ahead is a store that lets something happen ahead of each commit, and ahead of each list of keys.
type ahead struct {
	eventlog.Store
	ofCommit atomic.Pointer[func()]
	ofList   atomic.Pointer[func(prefix string)]
}

func (s *ahead) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if do := s.ofCommit.Load(); do != nil {
		(*do)()
	}
	return s.Store.Commit(ctx, flush)
}

func (s *ahead) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if do := s.ofList.Load(); do != nil {
		(*do)(prefix)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

// holdCommits has commits wait until release is called.
func (s *ahead) holdCommits() (release func()) {
	held := make(chan struct{})
	wait := func() { <-held }
	s.ofCommit.Store(&wait)
	return func() { s.ofCommit.Store(nil); close(held) }
}

// late is a store that commits an entry for a queue's state late: its answer is lost, and it
// happens just before the next one.
type late struct {
	eventlog.Store
	mu     sync.Mutex
	armed  bool
	during func()           // before the answer is lost
	held   []eventlog.Entry // sent, and not yet there
}

func (s *late) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	changes := false
	for _, e := range flush {
		for _, p := range e.Puts {
			changes = changes || strings.HasPrefix(p.Key, "queue/state/")
		}
	}
	s.mu.Lock()
	hold := s.armed && changes
	var held []eventlog.Entry
	if hold {
		s.armed, s.held = false, flush
	} else if changes {
		held, s.held = s.held, nil
	}
	s.mu.Unlock()
	if hold {
		s.during()
		return nil, fmt.Errorf("commit: %w", eventlog.ErrUnsure)
	}
	if held != nil {
		if _, err := s.Store.Commit(ctx, held); err != nil {
			return nil, err
		}
	}
	return s.Store.Commit(ctx, flush)
}

// List is slow while something is on its way, so that the log goes on meanwhile.
func (s *late) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	s.mu.Lock()
	slow := s.held != nil
	s.mu.Unlock()
	if slow {
		time.Sleep(time.Second)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

// afterCommit is a store that lets something happen once, after the next commit that appends to a
// partition of its, and before its answer.
type afterCommit struct {
	eventlog.Store
	mu   sync.Mutex
	of   eventlog.Partition
	then func()
}

func (s *afterCommit) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	out, err := s.Store.Commit(ctx, flush)
	s.mu.Lock()
	then := s.then
	appends := func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Batches, func(b eventlog.Batch) bool { return b.Partition == s.of })
	}
	if then != nil && slices.ContainsFunc(flush, appends) {
		s.then = nil
	} else {
		then = nil
	}
	s.mu.Unlock()
	if then != nil {
		then()
	}
	return out, err
}

func TestAMessageWhoseTopicIsDeletedBeforeTheAnswerIsNotCalledRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := newStore(t)
		store := &afterCommit{Store: memory}
		log, qs := startLog(t, store)
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		other, _ := startLog(t, memory)
		topic, err := log.Topic(t.Context(), q.Info().Topic)
		if err != nil {
			t.Fatal(err)
		}
		store.mu.Lock()
		store.of = topic.Partitions[0]
		store.then = func() {
			if err := other.DeleteTopic(t.Context(), topic.Name); err != nil {
				t.Error(err)
			}
			if err := log.RefreshTopics(t.Context()); err != nil {
				t.Error(err)
			}
		}
		store.mu.Unlock()
		_, err = q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("x")})
		if !errors.Is(err, eventlog.ErrUnsure) || errors.Is(err, eventlog.ErrUnknownTopic) {
			t.Errorf("a message that was enqueued before its topic was deleted: %v", err)
		}
	})
}

func startLog(t *testing.T, store eventlog.Store) (*eventlog.Log, *queue.Queues) {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Poll: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	qs := queue.New(log, publish.New(log, publish.Config{}), queue.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx) })
	running.Go(func() { _ = qs.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	synctest.Wait()
	return log, qs
}

func TestAMessageThatThisProcessHasNotHeardOfIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a := start(t, store)
		q := create(t, a, queue.Spec{Name: "mail", Partitions: 1})
		b := start(t, store) // its log polls every 20 s
		enqueue(t, q, "x")
		errs, err := q.Nack(t.Context(), queue.Nack{SetDelay: true}, claimN(t, q, 1)[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		got := claimN(t, open(t, b, "mail"), 1) // it knows the message from the queue's state alone
		if values(got) != "x " {
			time.Sleep(time.Minute)
			s, err := q.Stats(t.Context())
			t.Errorf("the other process got %q; a minute later the queue has %+v, %v", values(got), s, err)
		}
	})
}

func TestAMessageIsEnqueuedOnceWhenAnotherProcessPurgedTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a := start(t, store)
		create(t, a, queue.Spec{Name: "mail", Partitions: 1})
		b := start(t, store)
		open(t, b, "mail")
		if err := a.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		if err := b.With(t.Context(), "mail", func(q *queue.Queue) error {
			_, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("now")}, queue.NewMessage{Value: []byte("later"), Delay: time.Second})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := values(claimN(t, open(t, a, "mail"), 10)); got != "now later " {
			t.Errorf("the queue has %q, want each message once", got)
		}
	})
}

func TestADeadLetterThatIsRedrivenDuringAPurgeIsNotDeadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &between{Store: newStore(t)}
		a := start(t, store)
		q := create(t, a, queue.Spec{Name: "mail", Partitions: 1})
		b := start(t, store)
		enqueue(t, q, "x", "y")
		for range 2 {
			errs, err := q.Nack(t.Context(), queue.Nack{Reject: true}, claimN(t, q, 1)[0].Receipt)
			if err := one(t, errs, err); err != nil {
				t.Fatal(err)
			}
		}
		letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
		if err != nil || len(letters) != 2 {
			t.Fatalf("%d dead letters, %v", len(letters), err)
		}
		redrive := func(l queue.DeadLetter) {
			if n, err := q.Redrive(t.Context(), l); err != nil || n != 1 {
				t.Errorf("redriven %d, %v", n, err)
			}
		}
		redrive(letters[0])
		store.after("queue/dead/", func() { redrive(letters[1]) })
		if err := b.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second) // for b to hear of the dead letters
		if again, err := open(t, b, "mail").DeadLetters(t.Context(), queue.MessageID{}, 10); err != nil || len(again) != 0 {
			t.Errorf("%d dead letters after all were redriven, %v", len(again), err)
		}
	})
}

func TestAMessageClaimedWhileTheQueueGetsLimitsIsNotClaimedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &between{Store: newStore(t)}
		a := start(t, store)
		q := create(t, a, queue.Spec{Name: "mail", Partitions: 1})
		b := start(t, store)
		enqueue(t, q, "x")
		var first []queue.Message
		store.after("queue/state/", func() { first = claimN(t, q, 1) })
		if _, err := b.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Concurrency = 10; return nil }); err != nil {
			t.Fatal(err)
		}
		if len(first) != 1 {
			t.Fatalf("claimed %d messages while the queue was altered", len(first))
		}
		time.Sleep(20 * time.Second) // for b to hear of the message
		if got := claimN(t, open(t, b, "mail"), 10); len(got) != 0 {
			t.Errorf("claimed %q again, while its first lease goes on", values(got))
		}
	})
}

func TestAClaimWhoseAnswerWasLostGivesOutWhatTheStoreHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &late{Store: newStore(t)}
		qs := start(t, store)
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "x")
		var more sync.WaitGroup
		store.during = func() {
			more.Go(func() { enqueue(t, q, "y") }) // it is in the log before the claim is tried again
			time.Sleep(time.Second)
		}
		store.armed = true
		first := claimN(t, q, 10)
		more.Wait()
		second := claimN(t, q, 10)
		if got := values(first) + values(second); strings.Count(got, "x") != 1 || strings.Count(got, "y") != 1 {
			t.Errorf("the first claim got %q and the second %q: each message has one claim", values(first), values(second))
		}
		for _, m := range append(first, second...) {
			errs, err := q.Ack(t.Context(), m.Receipt)
			if err := one(t, errs, err); err != nil {
				t.Errorf("ack of %q: %v", m.Value, err)
			}
		}
	})
}

func TestAUniqueKeyDoesNotOutliveAMessageThatWasTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, qs := startLog(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
		first, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("x"), Unique: "daily"})
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Trim(t.Context(), first[0].ID.Partition, first[0].ID.Offset+1); err != nil {
			t.Fatal(err)
		}
		second, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("y"), Unique: "daily"})
		if err != nil || second[0].Repeated {
			t.Fatalf("%+v, %v: the message that had the key is gone", second, err)
		}
		if got := values(claimN(t, q, 10)); got != "y " {
			t.Errorf("the queue has %q, want y", got)
		}
	})
}

func TestAUniqueKeyIsFreeOnceItsMessageIsDoneAlsoWhileTheQueueHadNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
		daily := func(value string) queue.Enqueued {
			t.Helper()
			q = open(t, qs, "mail")
			out, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte(value), Unique: "daily"})
			if err != nil {
				t.Fatal(err)
			}
			return out[0]
		}
		set := func(unique bool) {
			t.Helper()
			if _, err := qs.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Unique = unique; return nil }); err != nil {
				t.Fatal(err)
			}
			q = open(t, qs, "mail")
		}
		first := daily("x")
		set(false)
		errs, err := q.Ack(t.Context(), claimN(t, q, 1)[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		set(true)
		second := daily("y")
		if second.Repeated || second.ID == first.ID {
			t.Fatalf("%+v: the first message, %v, is done", second, first.ID)
		}
		errs, err = q.Nack(t.Context(), queue.Nack{SetDelay: true, Delay: time.Hour}, claimN(t, q, 1)[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		for range 2 { // it is put off, and then it waits in the queue
			if again := daily("z"); !again.Repeated || again.ID != second.ID {
				t.Fatalf("%+v, and %v is not done", again, second.ID)
			}
			time.Sleep(2 * time.Hour)
		}
		errs, err = q.Ack(t.Context(), claimN(t, q, 1)[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		if third := daily("z"); third.Repeated {
			t.Fatalf("%+v: %v is done", third, second.ID)
		}
	})
}

func TestAnAnswerReachesTheQueueThroughAProcessThatDidNotHearOfAPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a := start(t, store)
		create(t, a, queue.Spec{Name: "mail", Partitions: 1})
		b := start(t, store)
		open(t, b, "mail")
		if err := a.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		q := open(t, a, "mail")
		enqueue(t, q, "x")
		receipt := claimN(t, q, 1)[0].Receipt
		if err := b.With(t.Context(), "mail", func(q *queue.Queue) error {
			errs, err := q.Ack(t.Context(), receipt)
			if err == nil {
				err = errs[0]
			}
			return err
		}); err != nil {
			t.Errorf("ack through another process: %v", err)
		}
	})
}

func TestAClaimThatIsRepeatedGetsWhatItHasGot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, 100*time.Millisecond), begin(t, store, 100*time.Millisecond)
		synctest.Wait()
		q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 2})
		enqueue(t, q, "a", "b", "c", "d")
		time.Sleep(time.Second)
		claim := func(p process, worker, id string, want string) []queue.Message {
			t.Helper()
			ms, err := open(t, p.Queues, "mail").Claim(t.Context(), queue.Claim{Max: 3, Worker: worker, ID: id})
			if err != nil || len(ms) != len(want) {
				t.Errorf("claim %s of worker %s got %q, %v; want %s of them", id, worker, values(ms), err, want)
			}
			return ms
		}
		first := claim(a, "w", "1", "abc")
		again := claim(b, "w", "1", "abc") // by another process
		receipts := map[string]bool{}
		for _, m := range first {
			receipts[m.Receipt] = true
		}
		for _, m := range again {
			if !receipts[m.Receipt] || m.Attempt != 1 {
				t.Errorf("the repetition got %q with another receipt, or as attempt %d", m.Value, m.Attempt)
			}
		}
		claim(a, "other", "1", "d")
		claim(a, "w", "2", "")
		errs, err := q.Ack(t.Context(), again[0].Receipt)
		if one(t, errs, err) != nil {
			t.Fatal(errs)
		}
		claim(a, "w", "1", "bc")
		time.Sleep(31 * time.Second)
		for _, m := range claim(b, "w", "1", "bcd") { // their leases ended: it is a claim like any
			if m.Attempt != 2 {
				t.Errorf("after its lease %q comes as attempt %d", m.Value, m.Attempt)
			}
		}
	})
}

func TestAnAnswerReachesAPartitionThatThisProcessHasNotHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, time.Hour), begin(t, store, time.Hour)
		synctest.Wait()
		q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		other := open(t, b.Queues, "mail")
		enqueue(t, other, "m") // it knows the topic as it is
		if _, err := a.log.ChangeTopic(t.Context(), "mail", eventlog.TopicChange{Partitions: 2}); err != nil {
			t.Fatal(err)
		}
		topic, err := a.log.Topic(t.Context(), "mail")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.log.Publish(t.Context(), topic.Partitions[1], eventRecord("new")); err != nil {
			t.Fatal(err)
		}
		got := claimN(t, q, 1)
		if values(got) != "new " {
			t.Fatalf("claimed %q", values(got))
		}
		errs, err := other.Ack(t.Context(), got[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Errorf("ack through the other process: %v", err)
		}
	})
}

// A client goes away in the middle of a claim, and repeats it through another process. What the
// repetition got is not given back by the first one.
func TestWhatARepeatedClaimGotIsNotGivenBackByTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		slow := &ahead{Store: store}
		a, b := begin(t, slow, time.Second), begin(t, store, time.Second)
		synctest.Wait()
		q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "m")
		time.Sleep(2 * time.Second)
		turns := make(chan struct{})
		turn := func() { <-turns }
		slow.ofCommit.Store(&turn)
		claim := queue.Claim{ID: "1", Worker: "w", Lease: time.Minute}
		ctx, leave := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := q.Claim(ctx, claim)
			first <- err
		}()
		synctest.Wait() // its commit is on the way
		leave()
		if err := <-first; !errors.Is(err, eventlog.ErrUnsure) {
			t.Fatalf("the first claim: %v", err)
		}
		turns <- struct{}{}
		synctest.Wait() // the claim is durable, and what it got is about to be given back
		got, err := open(t, b.Queues, "mail").Claim(t.Context(), claim)
		if err != nil || values(got) != "m " {
			t.Fatalf("the repetition got %q, %v", values(got), err)
		}
		slow.ofCommit.Store(nil)
		close(turns)
		synctest.Wait()
		if other := claimN(t, q, 1); len(other) > 0 {
			t.Errorf("another worker has the message, as attempt %d, %v before the lease ends", other[0].Attempt, time.Until(got[0].Until))
		}
		errs, err := q.Ack(t.Context(), got[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Errorf("ack within the lease: %v", err)
		}
	})
}

// A claim that waits is cut off, and repeated before there is a message. The server serves the
// first one, which nobody hears.
func TestARepeatedClaimThatWaitsGetsWhatTheFirstGot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, time.Second), begin(t, store, time.Second)
		synctest.Wait()
		q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 2})
		for name, second := range map[string]process{"the same process": a, "another process": b} {
			claim := func(p process) chan string {
				came := make(chan string, 1)
				go func() {
					got, err := open(t, p.Queues, "mail").Claim(t.Context(), queue.Claim{ID: name, Worker: "w", Max: 2, Wait: 20 * time.Second})
					if err != nil {
						t.Error(err)
					}
					came <- values(got)
				}()
				time.Sleep(time.Second)
				return came
			}
			first, again := claim(a), claim(second)
			enqueue(t, q, "m")
			if one, two := <-first, <-again; one != "m " || two != "m " {
				t.Errorf("repeated through %s: one got %q and the other %q, want m, which their id has", name, one, two)
			}
		}
	})
}

// lostAnswer is a store that loses the answer of one commit of what became of messages or dead
// letters, after something else has happened.
type lostAnswer struct {
	eventlog.Store
	then atomic.Pointer[func()]
}

func (s *lostAnswer) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	out, err := s.Store.Commit(ctx, flush)
	changes := slices.ContainsFunc(flush, func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool {
			return strings.HasPrefix(p.Key, "queue/state/") || strings.HasPrefix(p.Key, "queue/dead/")
		})
	})
	if err != nil || !changes {
		return out, err
	}
	if then := s.then.Swap(nil); then != nil {
		(*then)()
		return nil, fmt.Errorf("commit: %w", eventlog.ErrUnsure)
	}
	return out, nil
}

// The answer to a claim is lost, and another process changes the queue before it can be found out
// what became of it. The claim has what it got: it does not take other messages, while those stay
// away until their leases end.
func TestAClaimWhoseAnswerWasLostHasWhatItGot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := newStore(t)
		store := &lostAnswer{Store: memory}
		q := create(t, start(t, store), queue.Spec{Name: "mail", Partitions: 1})
		other := open(t, start(t, memory), "mail")
		enqueue(t, q, "first", "second", "third", "fourth")
		synctest.Wait()
		then := func() {
			got, err := other.Claim(t.Context(), queue.Claim{Wait: time.Minute}) // it has to hear of them first
			if err != nil || len(got) != 1 || string(got[0].Value) != "third" {
				t.Errorf("the other process got %+v, %v", got, err)
			}
		}
		store.then.Store(&then)
		got := claimN(t, q, 2)
		if len(got) != 2 || string(got[0].Value) != "first" || string(got[1].Value) != "second" || got[0].Attempt != 1 {
			t.Errorf("the claim got %+v", got)
		}
		if rest := claimN(t, q, 2); len(rest) != 1 || string(rest[0].Value) != "fourth" {
			t.Errorf("the next one got %+v", rest)
		}
	})
}

// The answer to a redrive or a discard is lost, and another process takes another letter before it
// can be found out what became of it. Nobody is told that nothing was taken.
func TestALetterWhoseAnswerWasLostIsPerhapsTaken(t *testing.T) {
	for name, take := range map[string]func(*queue.Queue, context.Context, ...queue.DeadLetter) (int, error){
		"redrive": (*queue.Queue).Redrive, "discard": (*queue.Queue).Discard,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := newStore(t)
				store := &lostAnswer{Store: memory}
				q := create(t, start(t, store), queue.Spec{Name: "mail", Partitions: 1})
				other := open(t, start(t, memory), "mail")
				enqueue(t, q, "a", "b", "c")
				nack(t, q, queue.Nack{Reject: true}, claimN(t, q, 3)...)
				letters := deadLetters(t, q)
				if n, err := q.Discard(t.Context(), letters[1]); n != 1 || err != nil {
					t.Fatalf("%d letters are discarded, %v", n, err)
				}
				then := func() {
					if n, err := other.Discard(t.Context(), letters[2]); n != 1 || err != nil {
						t.Errorf("the other process discards %d letters, %v", n, err)
					}
				}
				store.then.Store(&then)
				n, err := take(q, t.Context(), letters[0], letters[1])
				if n != 0 || !errors.Is(err, eventlog.ErrUnsure) || !strings.Contains(fmt.Sprint(err), "1 were taken") {
					t.Errorf("the answer is lost: %d letters, %v; want an unknown outcome of one", n, err)
				}
				if n, err := take(q, t.Context(), letters[0]); n != 0 || err != nil {
					t.Errorf("again: %d letters, %v; want none, as it is taken", n, err)
				}
			})
		})
	}
}

// An answer joins a change whose state was read before the message was claimed, in another process.
// So says nothing about the receipt.
func TestAReceiptGivenOutMeanwhileIsNotStale(t *testing.T) {
	committed := func() error { return nil }
	for name, answer := range map[string]func(context.Context, *queue.Queue, string) ([]error, error){
		"ack": func(ctx context.Context, q *queue.Queue, receipt string) ([]error, error) { return q.Ack(ctx, receipt) },
		"ack with SQL": func(ctx context.Context, q *queue.Queue, receipt string) ([]error, error) {
			return q.Handled(ctx, committed, receipt)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				slow := &ahead{Store: store}
				a, b := begin(t, store, 250*time.Millisecond), begin(t, slow, 250*time.Millisecond)
				synctest.Wait()
				create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
				mail, busy := open(t, b.Queues, "mail"), create(t, b.Queues, queue.Spec{Name: "busy", Partitions: 1})
				enqueue(t, mail, "m")
				time.Sleep(time.Second)
				release := slow.holdCommits()
				var calls sync.WaitGroup
				calls.Go(func() { _, _ = busy.Enqueue(t.Context(), queue.NewMessage{}) })
				synctest.Wait()
				calls.Go(func() { _, _ = mail.Claim(t.Context(), queue.Claim{}) })
				synctest.Wait() // it has read the state, and waits for the next flush
				got := claimN(t, open(t, a.Queues, "mail"), 1)
				if values(got) != "m " {
					t.Fatalf("claimed %q", values(got))
				}
				calls.Go(func() {
					errs, err := answer(t.Context(), mail, got[0].Receipt)
					if err := errors.Join(append(errs, err)...); err != nil {
						t.Errorf("a receipt just given out by another process is refused: %v", err)
					}
				})
				synctest.Wait()
				release()
				calls.Wait()
				time.Sleep(31 * time.Second)
				if again := claimN(t, open(t, a.Queues, "mail"), 1); len(again) > 0 {
					t.Errorf("the message comes again, as attempt %d", again[0].Attempt)
				}
			})
		})
	}
}

// Nobody is told that a message is done which the state does not have yet.
func TestAnAckWithSQLOfAMessageThatWasNotClaimedIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "a", "b")
		receipt := strings.Split(claimN(t, q, 1)[0].Receipt, ".")
		receipt[2] = "1" // the offset of b
		errs, err := q.Handled(t.Context(), func() error { return nil }, strings.Join(receipt, "."))
		var stale *queue.StaleReceiptError
		if err := one(t, errs, err); !errors.As(err, &stale) || stale.Done {
			t.Errorf("%v, want a stale receipt of a message that is not done", err)
		}
	})
}
