package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// troubled is a store that a test can hold up, or make fail.
type troubled struct {
	eventlog.Store
	mu      sync.Mutex    // guards all
	hold    chan struct{} // while not nil, commits wait until it is closed
	fail    error         // what commits return
	broken  error         // what reads and searches return
	silent  bool          // reads get no answer
	flushes [][]eventlog.Entry
}

func (s *troubled) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.mu.Lock()
	hold, fail := s.hold, s.fail
	s.flushes = append(s.flushes, flush)
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, eventlog.ErrUnsure
		}
	}
	if fail != nil {
		return nil, fail
	}
	return s.Store.Commit(ctx, flush)
}

func (s *troubled) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	s.mu.Lock()
	broken, silent := s.broken, s.silent
	s.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, ctx.Err())
	}
	if broken != nil {
		return nil, broken
	}
	return s.Store.Read(ctx, spans, maxBytes)
}

func (s *troubled) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	if broken != nil {
		return nil, broken
	}
	return s.Store.Seek(ctx, goals)
}

func (s *troubled) set(change func(s *troubled)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// faked runs a test in fake time with a broker on a troubled store, and one client.
func faked(t *testing.T, cfg kafka.Config, test func(t *testing.T, b *broker, s *troubled, w *wire)) {
	synctest.Test(t, func(t *testing.T) {
		s := &troubled{Store: memory.New()}
		l := newPipes()
		b := startAt(t, s, l, cfg)
		w := l.dial(t)
		w.nc.SetDeadline(time.Time{})
		test(t, b, s, w)
		w.nc.Close()
		b.stop()
	})
}

func TestProduceRequestsSentAheadShareAFlush(t *testing.T) {
	faked(t, kafka.Config{}, func(t *testing.T, b *broker, s *troubled, w *wire) {
		b.createTopic("t", 1, nil)
		hold := make(chan struct{})
		s.set(func(s *troubled) { s.hold, s.flushes = hold, nil })
		const ahead = 20
		req := produceRequest("t", 0, nil)
		for i := range int32(ahead) {
			w.send(frame(produceRequest("t", 0, sealed(t, batch.None, value(fmt.Sprint(i)))), i))
		}
		synctest.Wait()
		close(hold)
		for i := range int32(ahead) {
			if got := w.receive(req, i).(*kmsg.ProduceResponse).Topics[0].Partitions[0].BaseOffset; got != int64(i) {
				t.Errorf("request %d is at offset %d", i, got)
			}
		}
		if n := len(s.flushes); n > 2 {
			t.Errorf("%d requests took %d flushes; expected one for the first, and one for all others at most", ahead, n)
		}
	})
}

func TestEffectsComeInTheOrderOfTheRequests(t *testing.T) {
	faked(t, kafka.Config{NoAutoCreate: true}, func(t *testing.T, b *broker, _ *troubled, w *wire) {
		create, produce, fetch := createRequest("t", 1, 1), produceRequest("t", 0, sealed(t, batch.None, value("v"))), fetchRequest("t", 0, 0)
		var sender sync.WaitGroup
		sender.Go(func() {
			w.send(frame(create, 1))
			w.send(frame(produce, 2)) // begun early, it would not find the topic
			w.send(frame(fetch, 3))
			w.send(frame(produceRequest("t", 0, sealed(t, batch.None, value("v"))), 4))
		})
		wantCode(t, "create", w.receive(create, 1).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode, nil)
		wantCode(t, "produce", w.receive(produce, 2).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
		if p := w.receive(fetch, 3).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.HighWatermark != 1 {
			t.Errorf("the fetch between two produce requests sees the high watermark %d", p.HighWatermark)
		}
		wantCode(t, "produce", w.receive(produce, 4).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
		sender.Wait()
	})
}

func TestALongPollWakesOnAppend(t *testing.T) {
	faked(t, kafka.Config{}, func(t *testing.T, b *broker, _ *troubled, w *wire) {
		topic := b.createTopic("t", 1, nil)
		req := fetchRequest("t", 0, 0)
		req.MaxWaitMillis = 60_000
		began := time.Now()
		w.send(frame(req, 1))
		synctest.Wait()
		if _, err := b.log.Publish(t.Context(), topic.Partitions[0], value("v")); err != nil {
			t.Fatal(err)
		}
		if p := w.receive(req, 1).(*kmsg.FetchResponse).Topics[0].Partitions[0]; len(p.RecordBatches) == 0 || p.HighWatermark != 1 {
			t.Errorf("the answer has %d bytes, high watermark %d", len(p.RecordBatches), p.HighWatermark)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it came after %v", took)
		}
	})
}

func TestAFetchWaitsForItsMinimum(t *testing.T) {
	faked(t, kafka.Config{}, func(t *testing.T, b *broker, _ *troubled, w *wire) {
		topic := b.createTopic("t", 1, nil)
		publish := func() {
			if _, err := b.log.Publish(t.Context(), topic.Partitions[0], batch.Record{Value: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		publish()
		req := fetchRequest("t", 0, 0)
		req.MaxWaitMillis, req.MinBytes = 60_000, 2000
		began := time.Now()
		w.send(frame(req, 1))
		time.Sleep(time.Second)
		publish()
		if p := w.receive(req, 1).(*kmsg.FetchResponse).Topics[0].Partitions[0]; len(p.RecordBatches) < 2000 || time.Since(began) != time.Second {
			t.Errorf("the answer has %d bytes, after %v", len(p.RecordBatches), time.Since(began))
		}
		req.MinBytes = 1 << 20
		w.send(frame(req, 2))
		if p := w.receive(req, 2).(*kmsg.FetchResponse).Topics[0].Partitions[0]; len(p.RecordBatches) < 2000 || time.Since(began) != 61*time.Second {
			t.Errorf("at the end of the wait: %d bytes, after %v", len(p.RecordBatches), time.Since(began))
		}
	})
}

func TestALongPollEndsWhenItsClientIsGone(t *testing.T) {
	observer := new(seen)
	faked(t, kafka.Config{Observer: observer}, func(t *testing.T, b *broker, _ *troubled, w *wire) {
		b.createTopic("t", 1, nil)
		req := fetchRequest("t", 0, 0)
		req.MaxWaitMillis = 60_000
		w.send(frame(req, 1))
		synctest.Wait()
		w.nc.Close()
		synctest.Wait() // without any time passing
		if observer.open != 0 {
			t.Error("the connection is still served")
		}
	})
}

func TestClientsThatGoAwayTakeNoRoomWithThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		b := startAt(t, memory.New(), l, kafka.Config{}.With(kafka.Limits{FetchBytes: 1})) // room for one answer of the largest size
		topic := b.createTopic("t", 1, nil)
		for range 3 {
			if _, err := b.log.Publish(t.Context(), topic.Partitions[0], batch.Record{Value: make([]byte, 500<<10)}); err != nil {
				t.Fatal(err)
			}
		}
		fetch := fetchRequest("t", 0, 0)
		fetch.MaxBytes, fetch.Topics[0].Partitions[0].PartitionMaxBytes = 2<<20, 2<<20
		for range 20 {
			w := l.dial(t)
			for i := range int32(3) {
				w.send(frame(fetch, i))
			}
			synctest.Wait() // the first answer is being written, the others are to come
			w.nc.Close()
		}
		synctest.Wait()
		w := l.dial(t)
		w.send(frame(fetch, 1))
		if n := len(w.receive(fetch, 1).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches); n < 1500<<10 {
			t.Errorf("the next client gets %d bytes: there is no room left", n)
		}
		w.nc.Close()
		b.stop()
	})
}

func TestDrainingEndsLongPollsAndFinishesProduceRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &troubled{Store: memory.New()}
		l := newPipes()
		b := startAt(t, s, l, kafka.Config{DrainTimeout: time.Minute})
		b.createTopic("t", 1, nil)
		poller, producer, idle := l.dial(t), l.dial(t), l.dial(t)
		hold := make(chan struct{})
		s.set(func(s *troubled) { s.hold = hold })

		poll := fetchRequest("t", 0, 0)
		poll.MaxWaitMillis = 60_000
		poller.send(frame(poll, 1))
		produce := produceRequest("t", 0, sealed(t, batch.None, value("v")))
		producer.send(frame(produce, 1))
		producer.send(frame(produceRequest("t", 0, sealed(t, batch.None, value("v"))), 2))
		synctest.Wait()

		began := time.Now()
		var stopping sync.WaitGroup
		stopping.Go(b.stop)
		poller.receive(poll, 1)
		poller.mustClose()
		idle.mustClose()
		if took := time.Since(began); took > 0 {
			t.Errorf("long poll and idle connection end after %v", took)
		}
		time.Sleep(2 * time.Second)
		close(hold)
		for i := range int32(2) {
			wantCode(t, "produce", producer.receive(produce, i+1).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
		}
		producer.mustClose()
		stopping.Wait()
	})
}

func TestDrainingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &troubled{Store: memory.New()}
		l := newPipes()
		b := startAt(t, s, l, kafka.Config{DrainTimeout: 3 * time.Second})
		b.createTopic("t", 1, nil)
		w := l.dial(t)
		hold := make(chan struct{})
		s.set(func(s *troubled) { s.hold = hold })
		w.send(frame(produceRequest("t", 0, sealed(t, batch.None, value("v"))), 1))
		synctest.Wait()
		began := time.Now()
		var stopping sync.WaitGroup
		stopping.Go(b.stop)
		w.nc.Read(make([]byte, 1)) // an answer that comes too late is not read, so the connection is cut
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the connection is cut after %v", took)
		}
		close(hold)
		stopping.Wait()
	})
}

func TestProducersLearnWhatBecameOfTheirRecords(t *testing.T) {
	for _, c := range []struct {
		name  string
		fail  error
		want  *kerr.Error
		after time.Duration
	}{
		{"the store is away", fmt.Errorf("no route: %w", eventlog.ErrUnavailable), kerr.NotEnoughReplicas, 5 * time.Second},
		{"the answer was lost", fmt.Errorf("connection reset: %w", eventlog.ErrUnsure), kerr.RequestTimedOut, 0},
		{"the store is broken", errors.New("SQLSTATE 42P01"), kerr.UnknownServerError, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			faked(t, kafka.Config{}, func(t *testing.T, b *broker, s *troubled, w *wire) {
				b.createTopic("t", 1, nil)
				s.set(func(s *troubled) { s.fail = c.fail })
				req := produceRequest("t", 0, sealed(t, batch.None, value("v"))) // with a timeout of 5 s
				began := time.Now()
				w.send(frame(req, 1))
				p := w.receive(req, 1).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
				wantCode(t, c.name, p.ErrorCode, c.want)
				if took := time.Since(began); took != c.after {
					t.Errorf("told after %v, expected %v", took, c.after)
				}
				for _, secret := range []string{"SQLSTATE", "route", "reset"} {
					if msg := text(p.ErrorMessage); len(msg) == 0 || strings.Contains(msg, secret) {
						t.Errorf("message %q", msg)
					}
				}
				s.set(func(s *troubled) { s.fail = nil })
				w.send(frame(produceRequest("t", 0, sealed(t, batch.None, value("v"))), 2))
				wantCode(t, "afterwards", w.receive(req, 2).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
				if end := b.end("t", 0); end != 1 {
					t.Errorf("%d records are there, expected the last alone", end)
				}
			})
		})
	}
}

func TestNobodyWaitsForTheStoreLongerThanAsked(t *testing.T) {
	faked(t, kafka.Config{}, func(t *testing.T, b *broker, s *troubled, w *wire) {
		s.set(func(s *troubled) { s.fail = eventlog.ErrUnavailable })
		create := createRequest("t", 1, 1)
		create.TimeoutMillis = 3000
		began := time.Now()
		w.send(frame(create, 1))
		wantCode(t, "create", w.receive(create, 1).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode, kerr.KafkaStorageError)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the answer comes after %v", took)
		}
		metadata := metadataRequest("new")
		w.send(frame(metadata, 2))
		wantCode(t, "metadata", w.receive(metadata, 2).(*kmsg.MetadataResponse).Topics[0].ErrorCode, kerr.KafkaStorageError)
		if took := time.Since(began); took != 23*time.Second {
			t.Errorf("the second answer comes after %v", took)
		}
	})
}

// A consumer that begins asks where the topic begins or ends, and then fetches.
func TestConsumersAreServedFromTheTailWhileTheStoreIsAway(t *testing.T) {
	for _, c := range []struct {
		name  string
		away  func(s *troubled)
		after time.Duration
	}{
		{"it refuses", func(s *troubled) { s.broken = eventlog.ErrUnavailable }, 0},
		{"it is silent", func(s *troubled) { s.silent = true }, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			faked(t, kafka.Config{}, func(t *testing.T, b *broker, s *troubled, w *wire) {
				topic := b.createTopic("t", 1, nil)
				if _, err := b.log.Publish(t.Context(), topic.Partitions[0], value("v")); err != nil {
					t.Fatal(err)
				}
				s.set(c.away)
				list := func(at int64) kmsg.ListOffsetsResponseTopicPartition {
					req := listRequest("t", 0, at)
					w.send(frame(req, 2))
					return w.receive(req, 2).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
				}
				began := time.Now()
				for at, want := range map[int64]int64{-2: 0, -1: 1} {
					if p := list(at); p.ErrorCode != 0 || p.Offset != want {
						t.Errorf("offset %d for %d, and error %d; want %d", p.Offset, at, p.ErrorCode, want)
					}
				}
				if took := time.Since(began); took != 2*c.after {
					t.Errorf("two answers took %v, want %v", took, 2*c.after)
				}
				req := fetchRequest("t", 0, 0)
				w.send(frame(req, 1))
				if p := w.receive(req, 1).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
					t.Errorf("error %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
				}
				s.set(func(s *troubled) { s.silent, s.broken = false, eventlog.ErrUnavailable })
				wantCode(t, "by time", list(1).ErrorCode, kerr.KafkaStorageError) // this the store alone knows
			})
		})
	}
}

func TestAcksZeroIsSilentUntilSomethingFails(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	w := b.dial()
	silent := func(raw []byte) []byte {
		req := produceRequest("t", 0, raw)
		req.Acks = 0
		return frame(req, 1)
	}
	for range 3 {
		w.send(silent(sealed(t, batch.None, value("v"))))
	}
	meta := metadataRequest("t")
	w.send(frame(meta, 2))
	w.receive(meta, 2) // the first answer is that to the first request which wants one
	if end := b.end("t", 0); end != 3 {
		t.Errorf("%d records are there", end)
	}
	w.send(silent([]byte("rubbish")))
	w.mustClose()

	gone := b.dial()
	gone.send(silent(sealed(t, batch.None, value("last words"))))
	gone.nc.Close()
	fetch := fetchRequest("t", 0, 3)
	fetch.MaxWaitMillis = 10_000
	if p := ask[*kmsg.FetchResponse](b, fetch).Topics[0].Partitions[0]; len(p.RecordBatches) == 0 {
		t.Error("what a producer sent before it went is not there")
	}
}

func TestAcksThatDoNotExistAreRefused(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	for _, acks := range []int16{2, -2, 32767} {
		req := produceRequest("t", 0, sealed(t, batch.None, value("v")))
		req.Acks = acks
		wantCode(t, fmt.Sprintf("acks %d", acks), ask[*kmsg.ProduceResponse](b, req).Topics[0].Partitions[0].ErrorCode, kerr.InvalidRequiredAcks)
	}
	if end := b.end("t", 0); end != 0 {
		t.Errorf("%d records are there", end)
	}
}

// deaf is a listener whose clients take no answer: every write to one fails.
type deaf struct{ net.Listener }

func (l deaf) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	return deafConn{nc}, err
}

type deafConn struct{ net.Conn }

func (deafConn) Write([]byte) (int, error) { return 0, errors.New("the client is gone") }

func TestAConnectionEndsWhenItsClientDoesNotTakeAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		b := startAt(t, memory.New(), deaf{l}, kafka.Config{})
		b.createTopic("t", 1, nil)
		w := l.dial(t)
		sent := frame(kmsg.NewPtrApiVersionsRequest(), 1)
		sent = append(sent, frame(createRequest("later", 1, 1), 2)...)
		sent = append(sent, frame(produceRequest("t", 0, sealed(t, batch.None, value("later"))), 3)...)
		w.send(sent)
		w.mustClose()
		synctest.Wait()
		if _, err := b.log.Topic(t.Context(), "later"); !errors.Is(err, eventlog.ErrUnknownTopic) {
			t.Errorf("a request behind the answer that nobody took is carried out: %v", err)
		}
		if n := b.end("t", 0); n != 0 {
			t.Errorf("%d records are appended for a client that is gone", n)
		}
		b.stop()
	})
}
