package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// slowly is a reader of a log with one message. It decodes nothing until it may.
type slowly struct {
	*records
	partition eventlog.Partition
}

func (s *slowly) may() {
	for range cap(s.decoding) {
		<-s.decoding
	}
}

// ask reads the message in another goroutine.
func (s *slowly) ask(ctx context.Context) <-chan error {
	got := make(chan error, 1)
	go func() {
		rec, err := s.read(ctx, s.partition, 0)
		if err == nil && string(rec.Value) != "v" {
			err = errors.New("another message")
		}
		got <- err
	}()
	synctest.Wait()
	return got
}

func beginSlowly(t *testing.T) *slowly {
	t.Helper()
	s := &slowly{}
	log, err := eventlog.Open(t.Context(), memory.New(), eventlog.Config{Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	running := make(chan struct{})
	go func() { defer close(running); _ = log.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-running })
	synctest.Wait()
	topic, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "mail", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.partition = topic.Partitions[0]
	if _, err := log.Publish(t.Context(), s.partition, batch.Record{Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	s.records = newRecords(log, func(work func(context.Context)) bool { go work(ctx); return true })
	for range cap(s.decoding) {
		s.decoding <- struct{}{}
	}
	return s
}

func TestABatchIsDecodedForThoseWhoStillWaitWhenTheFirstGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beginSlowly(t)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := s.ask(ctx), s.ask(t.Context())
		cancel()
		if err := <-first; !errors.Is(err, eventlog.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Fatalf("who gave up got %v", err)
		}
		s.may()
		if err := <-second; err != nil {
			t.Fatal(err)
		}
	})
}

func TestWhoWaitsForTheReadOfAnotherGivesUpWithItsOwnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beginSlowly(t)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := s.ask(t.Context()), s.ask(ctx)
		cancel()
		if err := <-second; !errors.Is(err, eventlog.ErrUnavailable) {
			t.Fatalf("who gave up got %v", err)
		}
		s.may()
		if err := <-first; err != nil {
			t.Fatal(err)
		}
	})
}

func TestABatchThatTakesLongerThanEachClaimIsDecodedAtLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beginSlowly(t)
		for range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			if err := <-s.ask(ctx); !errors.Is(err, eventlog.ErrUnavailable) {
				t.Fatalf("a claim that is too short got %v", err)
			}
			cancel()
			time.Sleep(time.Second)
		}
		s.may() // while none asks
		synctest.Wait()
		if _, found, err := s.find(s.partition, 0); !found || err != nil {
			t.Fatalf("what the claims began was dropped: %v", err)
		}
	})
}

func TestABatchThatNobodyWaitsForIsNotDecodedToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beginSlowly(t)
		ctx, cancel := context.WithCancel(t.Context())
		got := s.ask(ctx)
		s.mu.Lock()
		under := s.trips[s.partition]
		s.mu.Unlock()
		cancel()
		<-got
		time.Sleep(tripLingers + time.Second)
		synctest.Wait()
		s.mu.Lock()
		left := len(s.trips)
		s.mu.Unlock()
		if !isClosed(under.done) || !under.ended || left != 0 {
			t.Fatalf("it goes on, and there are %d trips", left)
		}
		s.may()
		if err := <-s.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
