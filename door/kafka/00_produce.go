package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// decompressedMax bounds what a compressed batch may grow to, for the sake of consumers, who hold it as a whole.
const decompressedMax = batch.DefaultMaxDecompressed

// Acks as a producer asks for them. Every answer is given when the records are durable; a producer that wants none
// gets none.
const (
	acksNone = 0
	acksOne  = 1
	acksAll  = -1
)

// appending is one partition's part of a produce request: under way when it has a ticket, else refused.
type appending struct {
	ticket    *eventlog.Ticket
	partition eventlog.Partition
	stamped   eventlog.Timestamp // the append time given to the records, or NoTimestamp
	err       error
}

// produce begins a produce request: it checks every batch and submits it, in the order of the request. Batches are
// independent; each partition has its own answer.
func (s *Server) produce(ctx context.Context, r *request) handlerEnd {
	in := r.body.(*kmsg.ProduceRequest)
	timeout := timeoutDefault
	if in.Acks == acksAll {
		timeout = r.timeout()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	var under []appending
	for i := range in.Topics {
		t := &in.Topics[i]
		topic, unknown := s.topicEither(ctx, t.Topic, t.TopicID, in.Version >= 13)
		for k := range t.Partitions {
			p := &t.Partitions[k]
			if unknown != nil {
				under = append(under, appending{err: unknown})
				continue
			}
			under = append(under, s.submit(ctx, r, topic, p))
			p.Records = nil // the log's now
		}
	}
	return func(context.Context) kmsg.Response {
		defer cancel()
		return s.produced(ctx, r, in, under)
	}
}

// smallPart is which part of a request, one in so many, a batch may be before it is kept apart from the request's other bytes.
const smallPart = 8

// submit hands one partition's batch to the log. It is a slice of the request.
func (s *Server) submit(ctx context.Context, r *request, topic eventlog.Topic, p *kmsg.ProduceRequestTopicPartition) appending {
	in := r.body.(*kmsg.ProduceRequest)
	partition, err := partitionOf(topic, p.Partition)
	if err != nil {
		return appending{err: err}
	}
	if err := checkAppends(topic); err != nil {
		return appending{err: err}
	}
	if err := checkProducer(in); err != nil {
		return appending{err: err}
	}
	h, err := checkBatch(in, topic, p.Records)
	if err != nil {
		return appending{err: err}
	}
	if _, differs := recoded(topic, h); differs { // a second batch is made, and counted until the log counts it
		room := int64(min(topic.MaxMessageBytes(), decompressedMax))
		if _, err := r.claim.Grow(ctx, room); err != nil {
			return appending{err: fmt.Errorf("compress anew: %w: %w", eventlog.ErrUnavailable, err)}
		}
		defer r.claim.Shrink(room)
	}
	raw, stamped, err := asTopicWants(topic, p.Records, h)
	if err != nil {
		return appending{err: err}
	}
	if len(raw) < r.length/smallPart {
		raw = bytes.Clone(raw) // else the log would hold on to all of the request, the refused batches too
	}
	maxTime := eventlog.Timestamp(h.MaxTimestamp)
	if stamped != eventlog.NoTimestamp {
		maxTime = stamped
	}
	ticket := s.log.Submit(ctx, eventlog.Entry{Batches: []eventlog.Batch{{
		Partition: partition, Records: h.Records, MaxTime: maxTime, Bytes: raw,
	}}})
	return appending{ticket: ticket, partition: partition, stamped: stamped}
}

// checkProducer refuses what goes for the whole request.
func checkProducer(in *kmsg.ProduceRequest) error {
	if in.Acks != acksNone && in.Acks != acksOne && in.Acks != acksAll {
		return deny(kerr.InvalidRequiredAcks, "acks is %d; 0, 1 and -1 are allowed", in.Acks)
	}
	if in.TransactionID != nil {
		return errTransactions
	}
	return nil
}

// errTransactions answers everything that belongs to transactions. The code is one that librdkafka, Kafka's own client and franz-go take as
// fatal at once where they ask for the coordinator; librdkafka's rd_kafka_txn_handle_FindCoordinator asks for ever after any other. sarama
// asks twelve times, whatever the answer. docs/kafka.md tells what each says.
var errTransactions = lacking("transactions", kerr.TransactionalIDAuthorizationFailed, "transactions are not supported: unset transactional.id")

// checkBatch sees that records is one batch that a client may append to the topic.
func checkBatch(in *kmsg.ProduceRequest, topic eventlog.Topic, records []byte) (batch.Header, error) {
	const lengthEnd = 12 // what a batch's length does not count
	if len(records) == 0 {
		return batch.Header{}, deny(kerr.InvalidRecord, "there is no record batch; exactly one is needed")
	}
	if len(records) > lengthEnd {
		length := int64(int32(binary.BigEndian.Uint32(records[8:])))
		if more := int64(len(records)) - lengthEnd - length; length > 0 && more > 0 {
			return batch.Header{}, deny(kerr.InvalidRecord, "%d bytes follow the record batch of %d; exactly one batch is needed", more, lengthEnd+length)
		}
	}
	if limit := topic.MaxMessageBytes(); len(records) > limit {
		return batch.Header{}, deny(kerr.MessageTooLarge, "the record batch has %d bytes; max.message.bytes of topic %q is %d", len(records), topic.Name, limit)
	}
	h, err := batch.Check(records)
	if err != nil {
		return h, denyFor(err)
	}
	a := h.Attributes
	switch {
	case a.Control():
		return h, deny(kerr.InvalidRecord, "the record batch is a control batch, which clients may not write")
	case a.Transactional():
		return h, errTransactions
	case a.AppendTime():
		return h, deny(kerr.InvalidTimestamp, "the record batch says LogAppendTime, which only the broker may set")
	case h.BaseOffset != 0:
		return h, deny(kerr.InvalidRecord, "the base offset of the record batch is %d; 0 is needed", h.BaseOffset)
	case h.ProducerID >= 0 && (h.BaseSequence < 0 || h.ProducerEpoch < 0):
		return h, deny(kerr.InvalidRecord, "the record batch has producer id %d, epoch %d and sequence %d; neither may be negative", h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	case a.Codec() == batch.Zstd && in.Version < 7:
		return h, deny(kerr.UnsupportedCompressionType, "zstd needs Produce version 7, and this request is version %d", in.Version)
	}
	if err := batch.Validate(records, h, decompressedMax); err != nil {
		return h, denyFor(err)
	}
	return h, nil
}

// asTopicWants gives a batch the codec and timestamps that the topic's settings ask for. max.message.bytes counts what is stored, as in
// Kafka, which looks again after it compressed anew (UnifiedLog.append, messageSizeMaybeChanged).
func asTopicWants(topic eventlog.Topic, raw []byte, h batch.Header) ([]byte, eventlog.Timestamp, error) {
	if want, differs := recoded(topic, h); differs {
		again, err := batch.Recompress(raw, want, decompressedMax, topic.MaxMessageBytes())
		if errors.Is(err, batch.ErrTooLarge) {
			err = deny(kerr.MessageTooLarge, "the record batch of %d bytes is stored with compression.type %s of topic %q, and max.message.bytes is %d: %v",
				len(raw), topic.CompressionType(), topic.Name, topic.MaxMessageBytes(), err)
		} else if err != nil {
			err = denyFor(err)
		}
		if err != nil {
			return nil, 0, err
		}
		raw = again
	}
	if !topic.AppendTime() {
		return raw, eventlog.NoTimestamp, nil
	}
	now := time.Now().UnixMilli()
	batch.StampAppendTime(raw, now)
	return raw, eventlog.Timestamp(now), nil
}

// recoded tells whether a batch must be compressed anew for the topic, and how.
func recoded(topic eventlog.Topic, h batch.Header) (batch.Codec, bool) {
	want, ok := topic.Codec()
	return want, ok && want != h.Attributes.Codec()
}

// produced waits for what is under way and answers.
func (s *Server) produced(ctx context.Context, r *request, in *kmsg.ProduceRequest, under []appending) kmsg.Response {
	out := in.ResponseKind().(*kmsg.ProduceResponse)
	out.Topics = make([]kmsg.ProduceResponseTopic, len(in.Topics))
	failed := false
	for i := range in.Topics {
		t, answer := &in.Topics[i], &out.Topics[i]
		answer.Default()
		answer.Topic, answer.TopicID = t.Topic, t.TopicID
		answer.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))
		for k := range t.Partitions {
			p := &answer.Partitions[k]
			p.Default()
			p.Partition = t.Partitions[k].Partition
			s.await(ctx, r, under[0], p)
			failed = failed || p.ErrorCode != 0
			under = under[1:]
		}
	}
	if in.Acks != acksNone {
		return out
	}
	if failed {
		return nil // closing is the only way to tell a producer that wants no answers
	}
	return noReply
}

// await fills in one partition's answer.
func (s *Server) await(ctx context.Context, r *request, a appending, p *kmsg.ProduceResponseTopicPartition) {
	var outcome eventlog.Outcome
	if a.err == nil {
		outcome, a.err = a.ticket.Wait(ctx)
	}
	p.BaseOffset = -1
	if a.ticket != nil {
		// Without it Apache Kafka's producer does not begin a new epoch after UNKNOWN_PRODUCER_ID, and repeats the batch in vain.
		known, _ := s.log.Known(a.partition)
		p.LogStartOffset = int64(known.First)
	}
	if a.err == nil {
		p.BaseOffset = int64(outcome.Base[0])
		p.LogAppendTime = int64(a.stamped)
		return
	}
	s.refused(r, a.err)
	p.ErrorCode, p.ErrorMessage = codeOf(a.err)
	if p.ErrorCode == kerr.KafkaStorageError.Code {
		p.ErrorCode = kerr.NotEnoughReplicas.Code // certainly not appended, which that code does not promise to producers
	}
	var record *batch.RecordError
	if errors.As(a.err, &record) && record.Record != batch.WholeBatch {
		at := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		at.RelativeOffset, at.ErrorMessage = int32(record.Record), &record.Reason
		p.ErrorRecords = append(p.ErrorRecords, at)
	}
}
