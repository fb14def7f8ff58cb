package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/system"
)

const (
	rebalancePartitions = 1000
	rebalanceMembers    = 100
	rebalanceMoves      = 10   // members that leave, and that come
	joiningMembers      = 2000 // which join a group at the same time
	rebalanceMax        = 3 * time.Minute
)

// runRebalance measures how long it takes until all of a thousand partitions are read again: a
// hundred members join at once, ten leave, ten come. Then how long two thousand members need that
// join at once.
func runRebalance(ctx context.Context, b *bench) error {
	fmt.Printf("%d members, %d partitions: time until a record was read from each partition.\n\n", rebalanceMembers, rebalancePartitions)
	fmt.Printf("| broker | protocol | all join | %d leave | %d come | %d join at once |\n| --- | --- | --- | --- | --- | --- |\n", rebalanceMoves, rebalanceMoves, joiningMembers)
	for range b.runs {
		for _, kind := range append([]string{"apache kafka"}, b.stores...) {
			if err := rebalanceOn(ctx, b, kind); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
		}
	}
	return nil
}

func rebalanceOn(ctx context.Context, b *bench, kind string) error {
	var address string
	var stop func()
	name := "weir on " + kind
	if kind == "apache kafka" {
		s, err := system.Find(kind[len("apache "):])
		if err != nil {
			return err
		}
		dir, err := os.MkdirTemp(b.dir, "kafka-")
		if err != nil {
			return err
		}
		server, err := s.Start(ctx, system.Place{Dir: dir}, system.Shipped)
		if err != nil {
			return err
		}
		name, address, stop = s.About, server.(interface{ Address() string }).Address(), func() { _ = server.Close() } // nothing is to be kept
	} else {
		w, err := b.start(ctx, kind)
		if err != nil {
			return err
		}
		address, stop = w.kafka, w.close
	}
	defer stop()
	for _, protocol := range []struct {
		name string
		opts []kgo.Opt
	}{
		{"classic, cooperative-sticky", []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}},
		{"consumer", []kgo.Opt{kgo.ServerSideBalancer()}},
	} {
		r := &rebalance{address: address, topic: "rebalance-" + protocol.name[:7], opts: protocol.opts}
		took, err := r.measure(ctx)
		r.end()
		if err != nil {
			return fmt.Errorf("%s: %w", protocol.name, err)
		}
		joined := "–"
		if protocol.name == "consumer" {
			d, err := joinAtOnce(ctx, address, r.topic)
			if err != nil {
				return fmt.Errorf("%d members that join at once: %w", joiningMembers, err)
			}
			joined = fmt.Sprintf("%.2f s", d.Seconds())
		}
		fmt.Printf("| %s | %s | %.2f s | %.2f s | %.2f s | %s |\n", name, protocol.name, took[0].Seconds(), took[1].Seconds(), took[2].Seconds(), joined)
	}
	return nil
}

// rebalance is one group that reads.
type rebalance struct {
	address, topic string
	opts           []kgo.Opt
	producer       *kgo.Client
	members        []*kgo.Client
	running        sync.WaitGroup

	round atomic.Int32 // which records count
	mu    sync.Mutex   // guards the rest
	read  map[int32]bool
	all   chan struct{} // is closed when each partition was read in this round
}

func (r *rebalance) measure(ctx context.Context) (took [3]time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, rebalanceMax)
	defer cancel()
	if r.producer, err = kgo.NewClient(kgo.SeedBrokers(r.address), kgo.DefaultProduceTopic(r.topic), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		return took, err
	}
	if err := thousandPartitions(ctx, r.producer, r.topic); err != nil {
		return took, err
	}
	for i, change := range []func() error{
		func() error { return r.join(rebalanceMembers) },
		func() error { return r.leave(rebalanceMoves) },
		func() error { return r.join(rebalanceMoves) },
	} {
		all := r.begin()
		began := time.Now()
		if err := change(); err != nil {
			return took, err
		}
		if err := r.publish(ctx); err != nil {
			return took, err
		}
		select {
		case <-all:
			took[i] = time.Since(began)
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			return took, fmt.Errorf("change %d: %d of %d partitions were read within %v", i+1, len(r.read), rebalancePartitions, rebalanceMax)
		}
		if err := r.rest(ctx); err != nil {
			return took, err
		}
	}
	return took, nil
}

// thousandPartitions makes the topic, as soon as the broker takes topics.
func thousandPartitions(ctx context.Context, client *kgo.Client, topic string) error {
	for {
		made, err := kadm.NewClient(client).CreateTopic(ctx, rebalancePartitions, 1, nil, topic)
		if err = errors.Join(err, made.Err); err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// begin begins a round: only records that are published now count.
func (r *rebalance) begin() (all chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round.Add(1)
	r.read, r.all = make(map[int32]bool), make(chan struct{})
	return r.all
}

// publish publishes a record of this round in each partition.
func (r *rebalance) publish(ctx context.Context) error {
	var records []*kgo.Record
	for p := range int32(rebalancePartitions) {
		records = append(records, &kgo.Record{Partition: p, Value: []byte{byte(r.round.Load())}})
	}
	return r.producer.ProduceSync(ctx, records...).FirstErr()
}

// rest waits until all partitions are read once more, and two seconds, so that the next change is
// alone.
func (r *rebalance) rest(ctx context.Context) error {
	all := r.begin()
	if err := r.publish(ctx); err != nil {
		return err
	}
	select {
	case <-all:
		time.Sleep(2 * time.Second)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join has n more members join, each with its own client, as n processes would.
func (r *rebalance) join(n int) error {
	for range n {
		m, err := kgo.NewClient(append([]kgo.Opt{
			kgo.SeedBrokers(r.address), kgo.ConsumerGroup(r.topic), kgo.ConsumeTopics(r.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchMaxWait(500 * time.Millisecond), kgo.DisableAutoCommit(),
		}, r.opts...)...)
		if err != nil {
			return err
		}
		r.members = append(r.members, m)
		r.running.Go(func() { r.consume(m) })
	}
	return nil
}

func (r *rebalance) consume(m *kgo.Client) {
	for {
		fetches := m.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		r.mu.Lock()
		fetches.EachRecord(func(rec *kgo.Record) {
			if rec.Value[0] != byte(r.round.Load()) || r.read[rec.Partition] {
				return
			}
			if r.read[rec.Partition] = true; len(r.read) == rebalancePartitions {
				close(r.all)
			}
		})
		r.mu.Unlock()
	}
}

// leave ends n members, which tell the broker so.
func (r *rebalance) leave(n int) error {
	var leaving sync.WaitGroup
	for _, m := range r.members[:n] {
		leaving.Go(m.Close)
	}
	r.members = r.members[n:]
	leaving.Wait()
	return nil
}

func (r *rebalance) end() {
	_ = r.leave(len(r.members)) // it cannot fail
	r.running.Wait()
	if r.producer != nil {
		r.producer.Close()
	}
}

// joinAtOnce measures how long members need that join a group at the same time, each by a
// connection of its own, until each has its first answer.
func joinAtOnce(ctx context.Context, address, topic string) (time.Duration, error) {
	conns := make([]net.Conn, joiningMembers)
	for i := range conns {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i/500))} // weir takes 1,000 connections of one address
		conn, err := (&net.Dialer{LocalAddr: from}).DialContext(ctx, "tcp", address)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(rebalanceMax)); err != nil {
			return 0, err
		}
		conns[i] = conn
	}
	var group errgroup.Group
	began := time.Now()
	for i, conn := range conns {
		group.Go(func() error { return joinOnce(conn, topic, fmt.Sprintf("member-%d", i)) })
	}
	err := group.Wait()
	return time.Since(began), err
}

// joinOnce sends a member's first heartbeat, again while the group's coordinator is not there yet.
func joinOnce(conn net.Conn, topic, member string) error {
	for {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.SetVersion(1)
		req.Group, req.MemberID, req.RebalanceTimeoutMillis = "at-once", member, 60_000
		req.SubscribedTopicNames, req.Topics = []string{topic}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
		if err := ask(conn, req, resp); err != nil {
			return err
		}
		err := kerr.ErrorForCode(resp.ErrorCode)
		if err == nil || !kerr.IsRetriable(err) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// ask sends a request, and reads its answer.
func ask(conn net.Conn, req kmsg.Request, resp kmsg.Response) error {
	if _, err := conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("dev")).AppendRequest(nil, req, 1)); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, body); err != nil {
		return err
	}
	const header = 4 + 1 // correlation id and tags
	return resp.ReadFrom(body[header:])
}
