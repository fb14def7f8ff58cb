package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/fetch"
	"github.com/weir-log/weir/internal/proctest"
)

// natsJetStream is NATS with one server: a stream for a topic, whose subjects are its partitions,
// and a stream that forgets what was acknowledged for a queue.
func natsJetStream() System {
	return System{
		Name: "nats", About: "NATS JetStream " + mustPeer("nats").Version + ", one server, streams in files", Fetch: "nats", Ordered: true,
		Modes: map[Mode]Settings{
			Durable: {"flush": "sync_interval: always", "copies": "1", "client": "nats.go, publishes and waits for each acknowledgement; pull consumers"},
			Shipped: {"flush": "every two minutes (the default)", "copies": "1", "client": "nats.go, publishes and waits for each acknowledgement; pull consumers"},
		},
		Start: func(ctx context.Context, place Place, mode Mode) (Server, error) {
			dir, err := fetch.Dir("nats")
			if err != nil {
				return nil, err
			}
			port, err := proctest.FreePort()
			if err != nil {
				return nil, err
			}
			address := fmt.Sprintf("127.0.0.1:%d", port)
			config := fmt.Sprintf("host: 127.0.0.1\nport: %d\njetstream {\n  store_dir: %q\n", port, filepath.Join(place.Dir, "nats"))
			if mode == Durable {
				config += "  sync_interval: always\n"
			}
			file := filepath.Join(place.Dir, "nats.conf")
			if err := os.WriteFile(file, []byte(config+"}\n"), 0o644); err != nil {
				return nil, err
			}
			p, err := StartProcess(ctx, place.Dir, address, filepath.Join(dir, "bin", "nats-server"), "-c", file)
			if err != nil {
				return nil, err
			}
			conn, err := nats.Connect("nats://"+address, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
			if err != nil {
				return nil, errors.Join(err, p.Stop())
			}
			js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(1<<16))
			if err != nil {
				return nil, errors.Join(err, p.Stop())
			}
			return &natsServer{conn: conn, js: js, p: p}, nil
		},
	}
}

type natsServer struct {
	conn       *nats.Conn
	js         jetstream.JetStream
	p          *Process
	partitions int
}

func (s *natsServer) Target() any                         { return s }
func (s *natsServer) Close() error                        { s.conn.Close(); return s.p.Stop() }
func (s *natsServer) Faults() Faults                      { return s.p.faults() }
func (s *natsServer) Size(context.Context) (int64, error) { return dirSize(s.p.dir) }

func (s *natsServer) Create(ctx context.Context, topic string, partitions int) error {
	s.partitions = partitions
	_, err := s.js.CreateStream(ctx, jetstream.StreamConfig{Name: topic, Subjects: []string{topic + ".*"}, Storage: jetstream.FileStorage})
	return err
}

// publish sends values to subjects, all of them before it waits for the first answer.
func (s *natsServer) publish(ctx context.Context, subject func(i int) string, values [][]byte) error {
	sent := make([]jetstream.PubAckFuture, len(values))
	for i, v := range values {
		var err error
		if sent[i], err = s.js.PublishAsync(subject(i), v); err != nil {
			return fmt.Errorf("%w (%w)", ErrUnsure, err)
		}
	}
	for _, f := range sent {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return fmt.Errorf("%w (%w)", ErrUnsure, err)
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ErrUnsure, ctx.Err())
		}
	}
	return nil
}

func (s *natsServer) Publish(ctx context.Context, topic string, events []Event) error {
	values := make([][]byte, len(events))
	for i, e := range events {
		values[i] = e.Value
	}
	return s.publish(ctx, func(i int) string {
		return fmt.Sprintf("%s.%d", topic, partitionOf(events[i].Key, s.partitions))
	}, values)
}

// fetchMost is how many messages a reader asks for at once.
const fetchMost = 500

// Consume has a durable consumer for each partition of a group, and each member has its partitions.
func (s *natsServer) Consume(ctx context.Context, topic, group string, members int, deliver func(value []byte)) error {
	var all errgroup.Group
	for i := range s.partitions {
		consumer, err := s.js.CreateConsumer(ctx, topic, jetstream.ConsumerConfig{
			Durable: fmt.Sprintf("%s-%d", group, i), FilterSubject: fmt.Sprintf("%s.%d", topic, i),
			AckPolicy: jetstream.AckAllPolicy, MaxAckPending: 10 * fetchMost,
		})
		if err != nil {
			return err
		}
		all.Go(func() error {
			return s.each(ctx, consumer, fetchMost, func(batch []jetstream.Msg) error {
				for _, m := range batch {
					deliver(m.Data())
				}
				return batch[len(batch)-1].Ack()
			})
		})
	}
	return all.Wait()
}

// each hands a consumer's messages to take, until ctx ends.
func (s *natsServer) each(ctx context.Context, consumer jetstream.Consumer, most int, take func([]jetstream.Msg) error) error {
	for ctx.Err() == nil {
		got, err := consumer.Fetch(most, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return errUnless(ctx, err)
		}
		var batch []jetstream.Msg
		flush := func() error {
			if len(batch) == 0 {
				return nil
			}
			err := take(batch)
			batch = batch[:0]
			return err
		}
		for m := range got.Messages() {
			batch = append(batch, m)
			if len(got.Messages()) == 0 { // what has come is handed on; the rest of it may take a second
				if err := flush(); err != nil {
					return errUnless(ctx, err)
				}
			}
		}
		if err := errors.Join(got.Error(), flush()); err != nil {
			return errUnless(ctx, err)
		}
	}
	return nil
}

// errUnless returns an error, unless everything ends.
func errUnless(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, jetstream.ErrNoHeartbeat) {
		return nil
	}
	return err
}

func (s *natsServer) CreateQueue(ctx context.Context, queue string) error {
	_, err := s.js.CreateStream(ctx, jetstream.StreamConfig{Name: queue, Subjects: []string{queue}, Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy})
	return err
}

func (s *natsServer) Enqueue(ctx context.Context, queue string, values [][]byte) error {
	return s.publish(ctx, func(int) string { return queue }, values)
}

// Work has one consumer that all workers share. An acknowledgement is answered by the server.
func (s *natsServer) Work(ctx context.Context, queue string, workers, batch int, got, acked func(value []byte)) error {
	consumer, err := s.js.CreateConsumer(ctx, queue, jetstream.ConsumerConfig{Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 2 * workers * batch})
	if err != nil {
		return err
	}
	var all errgroup.Group
	for range workers {
		all.Go(func() error {
			return s.each(ctx, consumer, batch, func(taken []jetstream.Msg) error {
				for _, m := range taken {
					got(m.Data())
					if err := m.DoubleAck(context.WithoutCancel(ctx)); err != nil {
						return err
					}
					acked(m.Data())
				}
				return nil
			})
		})
	}
	return all.Wait()
}

func (s *natsServer) Left(ctx context.Context, queue string) (int64, error) {
	stream, err := s.js.Stream(ctx, queue)
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int64(info.State.Msgs), nil
}
