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
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/quota"
)

// decompressedMax bounds the size of a batch after decompression, because consumers hold a whole
// batch in memory.
const decompressedMax = batch.DefaultMaxDecompressed

// All batches of one request together may decompress to decompressedMax plus decompressedEach times
// the request's bytes. Kafka has no such bound; without it, a request of 1 MB could cost minutes.
// The bound never refuses the first batch, so a client that resends refused batches makes progress.
const decompressedEach = 32

// Values of a produce request's acks. Every answer is sent after the records are durable; acks=0
// gets no answer.
const (
	acksNone = 0
	acksOne  = 1
	acksAll  = -1
)

// appending is one partition's part of a produce request. If it has a ticket, it was submitted;
// otherwise err is why it was refused.
type appending struct {
	ticket    *eventlog.Ticket
	partition eventlog.Partition
	stamped   eventlog.Timestamp // the append time given to the records, or NoTimestamp
	err       error
}

// produce starts a produce request: it checks and submits every batch, in the order of the request.
// Batches are independent; each partition has its own answer.
func (s *Server) produce(ctx context.Context, r *request) handlerEnd {
	in := r.body.(*kmsg.ProduceRequest)
	timeout := timeoutDefault
	if in.Acks == acksAll {
		timeout = r.timeout()
	}
	r.uses(quota.ProducerByteRate, float64(lengthSize+r.length))
	ctx, cancel := context.WithTimeout(ctx, timeout)
	r.mayDecompress = decompressedMax + decompressedEach*r.length
	mentions, elements := mentionsOf(in)
	again := make(map[producedPart]error) // the error that all mentions of a repeated partition share: an error takes more memory than a mention
	parts := make([]appending, 0, elements)
	for i := range in.Topics {
		t := &in.Topics[i]
		topic, unknown := s.topicEither(ctx, r, acl.Write, t.Topic, t.TopicID, in.Version >= 13)
		name := nameOrID(&t.Topic, t.TopicID)
		for k := range t.Partitions {
			p := &t.Partitions[k]
			if unknown != nil {
				parts = append(parts, appending{err: unknown})
				continue
			}
			part := producedPart{name, p.Partition}
			if n := mentions[part]; n > 1 {
				if again[part] == nil {
					again[part] = deny(kerr.InvalidRequest, "partition %d of topic %q is in this request %d times; send one batch for each partition", p.Partition, topic.Name, n)
				}
				parts = append(parts, appending{err: again[part]})
				continue
			}
			if ctx.Err() != nil { // the batches so far took all the time; the remaining batches are certainly not appended
				parts = append(parts, appending{err: fmt.Errorf("produce: %w (%w)", s.log.Late(time.Time{}), context.Cause(ctx))})
				continue
			}
			parts = append(parts, s.submit(ctx, r, topic, p))
			p.Records = nil // the log has the bytes or a copy of them now, or the batch was refused: the request does not need them any more
		}
	}
	return func(context.Context) kmsg.Response {
		defer cancel()
		return s.produced(ctx, r, in, parts)
	}
}

// producedPart names a partition of a produce request.
type producedPart struct {
	topic     string // name or id
	partition int32
}

// mentionsOf counts how often a request names each partition; all is the sum. Of a repeated
// partition, Kafka's broker keeps the last batch and drops the others unanswered
// (KafkaApis.handleProduceRequest fills a map). Here each batch is refused, so that none is lost
// silently, and none decompressed in vain.
func mentionsOf(in *kmsg.ProduceRequest) (mentions map[producedPart]int, all int) {
	mentions = make(map[producedPart]int)
	for i := range in.Topics {
		t := &in.Topics[i]
		name := nameOrID(&t.Topic, t.TopicID)
		for k := range t.Partitions {
			mentions[producedPart{name, t.Partitions[k].Partition}]++
		}
		all += len(t.Partitions)
	}
	return mentions, all
}

// smallPart: a batch smaller than 1/smallPart of its request is copied, so that the log does not
// keep the whole request in memory.
const smallPart = 8

// submit checks one partition's batch, a slice of the request, and submits it to the log.
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
	h, err := checkBatch(r, topic, p.Records)
	if err != nil {
		nameOthers(ctx, r, err)
		return appending{err: err}
	}
	if _, differs := recoded(topic, h); differs { // recompression makes a second batch: its memory is claimed here until the log claims it
		size := int64(min(topic.MaxMessageBytes(), decompressedMax))
		if _, err := r.claim.Grow(ctx, size); err != nil {
			return appending{err: fmt.Errorf("recompress: %w: %w", s.log.Late(time.Time{}), err)}
		}
		defer r.claim.Shrink(size)
	}
	raw, stamped, err := applySettings(topic, p.Records, h)
	if err != nil {
		return appending{err: err}
	}
	if len(raw) < r.length/smallPart {
		raw = bytes.Clone(raw) // otherwise the log would keep the whole request in memory, refused batches included
	}
	maxTime := eventlog.Timestamp(h.MaxTimestamp)
	if stamped != eventlog.NoTimestamp {
		maxTime = stamped
	}
	b := eventlog.Batch{Partition: partition, Records: h.Records, MaxTime: maxTime, Bytes: raw}
	if h.ProducerID >= 0 {
		b.Producer = &h
	}
	ticket := s.log.Submit(ctx, eventlog.Entry{Batches: []eventlog.Batch{b}})
	return appending{ticket: ticket, partition: partition, stamped: stamped}
}

// checkProducer checks the fields that concern the whole request.
func checkProducer(in *kmsg.ProduceRequest) error {
	if in.Acks != acksNone && in.Acks != acksOne && in.Acks != acksAll {
		return deny(kerr.InvalidRequiredAcks, "acks is %d; it must be 0, 1 or -1", in.Acks)
	}
	if in.TransactionID != nil {
		return errTransactions
	}
	return nil
}

// errTransactions answers requests that use transactions; FindCoordinator has an error of its own.
var errTransactions = lacking("transactions", kerr.TransactionalIDAuthorizationFailed, noTransactions)

const noTransactions = "transactions are not supported: unset transactional.id"

// checkBatch checks that records is exactly one batch, valid, and of a kind that a client may
// append to the topic.
func checkBatch(r *request, topic eventlog.Topic, records []byte) (batch.Header, error) {
	const lengthEnd = 12 // bytes of a batch that its length field does not count
	if len(records) == 0 {
		return batch.Header{}, deny(kerr.InvalidRecord, "the partition has no record batch in this request; send exactly one")
	}
	if len(records) > lengthEnd {
		length := int64(int32(binary.BigEndian.Uint32(records[8:])))
		if more := int64(len(records)) - lengthEnd - length; length > 0 && more > 0 {
			return batch.Header{}, deny(kerr.InvalidRecord, "%d bytes follow the first record batch of %d bytes; send exactly one batch for each partition", more, lengthEnd+length)
		}
	}
	if limit := topic.MaxMessageBytes(); len(records) > limit {
		return batch.Header{}, deny(kerr.MessageTooLarge, "the record batch has %d bytes; the limit, max.message.bytes of topic %q, is %d", len(records), topic.Name, limit)
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
	case a.Own():
		return h, deny(kerr.InvalidRecord, "the record batch has attribute bit 14, which only the broker may set")
	case a.HasHorizon():
		return h, deny(kerr.InvalidRecord, "the record batch has attribute bit 6, which only the broker may set")
	case a.AppendTime():
		return h, deny(kerr.InvalidTimestamp, "the record batch has the timestamp type LogAppendTime, which only the broker may set")
	case h.BaseOffset != 0:
		return h, deny(kerr.InvalidRecord, "the base offset of the record batch is %d; it must be 0", h.BaseOffset)
	case h.ProducerID >= 0 && (h.BaseSequence < 0 || h.ProducerEpoch < 0):
		return h, deny(kerr.InvalidRecord, "the record batch has producer id %d, epoch %d and sequence %d; with a producer id, epoch and sequence must not be negative", h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	case a.Codec() == batch.Zstd && r.version < 7:
		return h, deny(kerr.UnsupportedCompressionType, "zstd needs Produce version 7 or later; this request has version %d", r.version)
	}
	limit := min(r.mayDecompress, decompressedMax)
	validate := batch.Validate
	if topic.Compacted() {
		validate = batch.ValidateKeyed
	}
	n, err := validate(records, h, limit)
	r.mayDecompress = max(r.mayDecompress-n, 0)
	switch {
	case err == nil:
		return h, nil
	case errors.Is(err, batch.ErrDecodedTooLarge): // this batch is too large in any request
		return h, denyFor(err)
	case errors.Is(err, batch.ErrTooLarge) && limit < decompressedMax: // clients retry after this code: the batch itself is valid
		return h, deny(kerr.NotEnoughReplicas, "the batches of a request of %d bytes may together decompress to %d bytes; this batch exceeds that and was not appended: send it again, in a request with fewer batches",
			r.length, decompressedMax+decompressedEach*r.length)
	default:
		return h, denyFor(err)
	}
}

// applySettings gives a batch the codec and timestamps that the topic's settings ask for.
// max.message.bytes applies to the size as stored as well as to the size as sent (checkBatch), as
// in Kafka, which checks again after recompression (UnifiedLog.append, messageSizeMaybeChanged).
func applySettings(topic eventlog.Topic, raw []byte, h batch.Header) ([]byte, eventlog.Timestamp, error) {
	if want, differs := recoded(topic, h); differs {
		again, err := batch.Recompress(raw, want, decompressedMax, topic.MaxMessageBytes())
		if errors.Is(err, batch.ErrTooLarge) {
			err = deny(kerr.MessageTooLarge, "the record batch of %d bytes must be recompressed, because compression.type is %s for topic %q, and the result must fit into max.message.bytes, which is %d: %v",
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

// recoded reports whether a batch must be recompressed for the topic, and with which codec.
func recoded(topic eventlog.Topic, h batch.Header) (batch.Codec, bool) {
	want, ok := topic.Codec()
	return want, ok && want != h.Attributes.Codec()
}

// produced waits for the submitted batches and builds the response.
func (s *Server) produced(ctx context.Context, r *request, in *kmsg.ProduceRequest, parts []appending) kmsg.Response {
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
			s.await(ctx, r, parts[0], p)
			failed = failed || p.ErrorCode != 0
			parts = parts[1:]
		}
	}
	if in.Acks != acksNone {
		return out
	}
	if failed {
		return nil // closes the connection: the only way to report a failure with acks=0
	}
	return noReply
}

// await waits for one partition's batch and fills in its answer.
func (s *Server) await(ctx context.Context, r *request, a appending, p *kmsg.ProduceResponseTopicPartition) {
	var outcome eventlog.Outcome
	if a.err == nil {
		outcome, a.err = a.ticket.Wait(ctx)
	}
	p.BaseOffset = -1
	if a.ticket != nil {
		// Without LogStartOffset Apache Kafka's producer does not start a new epoch after
		// UNKNOWN_PRODUCER_ID, and resends the batch in vain.
		known, _ := s.log.Known(a.partition)
		p.LogStartOffset = int64(known.First)
	}
	if a.err == nil {
		p.BaseOffset = int64(outcome.Base[0])
		p.LogAppendTime = int64(a.stamped)
		return
	}
	s.refused(r, a.err)
	p.ErrorCode, p.ErrorMessage = r.codeOf(a.err)
	if p.ErrorCode == kerr.KafkaStorageError.Code {
		p.ErrorCode = kerr.NotEnoughReplicas.Code // the batch was certainly not appended; KafkaStorageError does not promise that to producers
	}
	var record *batch.RecordError
	if errors.As(a.err, &record) && record.Record != batch.WholeBatch {
		p.ErrorRecords = append(p.ErrorRecords, errorRecord(record.Record, record.Reason))
		for _, other := range record.Others {
			p.ErrorRecords = append(p.ErrorRecords, errorRecord(other.Record, other.Reason))
		}
	}
}

// errorRecord names a record that is wrong (KIP-467). Clients blame those that are named, and may
// send the others of the batch again.
func errorRecord(index int, reason string) kmsg.ProduceResponseTopicPartitionErrorRecord {
	at := kmsg.NewProduceResponseTopicPartitionErrorRecord()
	at.RelativeOffset, at.ErrorMessage = int32(index), &reason
	return at
}

// nameOthers shortens an error's list of wrong records to as many as the answer may still name
// (othersNamedMax), and claims the memory that they take in the answer and in its encoded form. If
// the claim fails, only the first record is named.
func nameOthers(ctx context.Context, r *request, err error) {
	const each = 256
	var record *batch.RecordError
	if !errors.As(err, &record) || len(record.Others) == 0 {
		return
	}
	record.Others = record.Others[:min(len(record.Others), othersNamedMax-r.othersNamed)]
	r.othersNamed += len(record.Others)
	if r.claimAnswer(ctx, each*len(record.Others)) != nil {
		record.Others = nil
	}
}

// othersNamedMax bounds the records that the answer to one request names beside the first wrong one
// of each batch.
const othersNamedMax = 10_000
