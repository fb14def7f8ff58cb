package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Brokers connects a new client to Kafka brokers.
type Brokers func(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error)

// OpenKafka returns the protocol of Kafka brokers: an idempotent producer whose records all
// replicas acknowledge, and a consumer group that commits what it has read. timeout is how long a
// record may take. name is that of all that it makes. The caller closes it.
func OpenKafka(ctx context.Context, brokers Brokers, name string, timeout time.Duration) (*Kafka, error) {
	producer, err := brokers(ctx, kgo.RecordDeliveryTimeout(timeout), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, err
	}
	return &Kafka{brokers: brokers, producer: producer, name: name}, nil
}

// Kafka is a Protocol.
type Kafka struct {
	brokers  Brokers
	producer *kgo.Client
	name     string
}

// Close ends the connections of the producer.
func (p *Kafka) Close() error {
	p.producer.Close()
	return nil
}

func (p *Kafka) Traits() Traits {
	return Traits{Name: "Kafka", Where: "topic and group " + p.name, Ordered: true, Audited: true}
}

func (p *Kafka) Create(ctx context.Context) error {
	_, err := kadm.NewClient(p.producer).CreateTopic(ctx, partitions, -1, nil, p.name)
	return err
}

// Write produces a record for each event. They may be in several batches: if one of these fails,
// the outcome of all is unknown.
func (p *Kafka) Write(ctx context.Context, writer int, events [][]byte) (Wrote, error) {
	records := make([]*kgo.Record, len(events))
	for i, e := range events {
		records[i] = &kgo.Record{Topic: p.name, Key: []byte(keyOf(writer)), Value: e}
	}
	return Wrote{}, p.producer.ProduceSync(ctx, records...).FirstErr()
}

// kafkaSession is how long the group keeps the partitions of a consumer whose broker was killed.
const kafkaSession = 6 * time.Second

func (p *Kafka) Read(ctx context.Context, to *Reader) error {
	consumer, err := p.brokers(ctx, kgo.ConsumerGroup(p.name), kgo.ConsumeTopics(p.name), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(kafkaSession), kgo.HeartbeatInterval(time.Second))
	if err != nil {
		return err
	}
	defer consumer.Close()
	for {
		fetched := consumer.PollRecords(ctx, pageMost)
		if ctx.Err() != nil {
			return nil
		}
		if err := passOn(fetched, to); err != nil {
			return err
		}
		records := fetched.Records()
		if len(records) == 0 {
			continue
		}
		if err := consumer.CommitRecords(ctx, records...); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		values := make([][]byte, len(records))
		for i, r := range records {
			values[i] = r.Value
		}
		if err := to.Acked(values...); err != nil {
			return err
		}
	}
}

// passOn notes records that were fetched. If a partition has an error, those of the others count.
func passOn(fetched kgo.Fetches, to *Reader) error {
	for _, r := range fetched.Records() {
		if err := to.Got(r.Value); err != nil {
			return err
		}
	}
	failed := fetched.Err()
	if failed != nil {
		return failed
	}
	return to.Flush()
}

func (p *Kafka) Audit(ctx context.Context, to *Reader) error {
	ends, err := kadm.NewClient(p.producer).ListEndOffsets(ctx, p.name)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return err
	}
	left, from := map[int32]int64{}, map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if from[o.Partition] = kgo.NewOffset().AtStart(); o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	reader, err := p.brokers(ctx, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{p.name: from}))
	if err != nil {
		return err
	}
	defer reader.Close()
	for len(left) > 0 {
		asking, cancel := context.WithTimeout(ctx, closeWithin)
		fetched := reader.PollRecords(asking, pageMost)
		cancel()
		if err := passOn(fetched, to); err != nil {
			return err
		}
		fetched.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return nil
}

func (p *Kafka) Remove(ctx context.Context) error {
	admin := kadm.NewClient(p.producer)
	topics, err := admin.DeleteTopics(ctx, p.name)
	if err == nil {
		err = topics.Error()
	}
	groups, also := admin.DeleteGroups(ctx, p.name)
	if also == nil {
		also = groups.Error()
	}
	return errors.Join(gone(err, kerr.UnknownTopicOrPartition), gone(also, kerr.GroupIDNotFound))
}
