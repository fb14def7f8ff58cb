package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/quota"
)

const (
	fetchMax     = 16 << 20        // most bytes of records in one answer; the first batch is sent whatever its size
	fetchWaitMax = 5 * time.Minute // longest that a fetch waits for records
)

// fetch answers with whole batches, starting with the one that contains the requested offset. It
// waits until there are MinBytes or the time is over.
//
// Fetch sessions (KIP-227) are not kept. A client that asks for one is answered with session id 0,
// which the protocol allows: it continues with full requests.
func (s *Server) fetch(ctx context.Context, r *request, in *kmsg.FetchRequest) kmsg.Response {
	epoch := s.log.LeaderEpoch() // Log.Fetch replaces it by the epoch of its answer
	out := &fetched{FetchResponse: in.ResponseKind().(*kmsg.FetchResponse)}
	out.epochAt = func(p eventlog.Partition, o eventlog.Offset) int32 { return min(s.log.EpochAt(p, o), epoch) }
	if in.SessionEpoch > 0 {
		out.ErrorCode = kerr.FetchSessionIDNotFound.Code
		return out
	}
	out.uncommitted = in.IsolationLevel == 0
	if !r.mayUse(quota.ConsumerByteRate, 0) { // the client is over its quota: read nothing, since the answer would not be sent
		return out
	}
	spans, slots, known := s.plan(ctx, r, in, out, epoch)
	r.records = s.fetches.Begin()
	if len(spans) == 0 {
		return framed(ctx, r, out) // there is nothing to wait for
	}
	want := eventlog.Want{
		Spans:    spans,
		MinBytes: int(in.MinBytes),
		MaxBytes: min(r.fetchable(clamp(in.MaxBytes)), int(s.fetches.Share())),
		MaxWait:  min(max(time.Duration(in.MaxWaitMillis)*time.Millisecond, 0), fetchWaitMax),
		Claim:    r.records,
		Epoch:    &epoch,
	}
	if out.atOnce {
		want.MaxWait = 0
	}
	got, err := s.fetchWithin(ctx, r, want)
	for i, slot := range slots {
		p := &out.topics[slot.topic].partitions[slot.partition]
		if err != nil {
			p.code = errorCode(err)
			continue
		}
		p.slice, p.code = got[i], errorCode(got[i].Err)
		if fenced := checkEpoch(known[i], epoch); fenced != nil { // another epoch began meanwhile
			p.slice, p.code = eventlog.Slice{}, errorCode(fenced)
		}
	}
	if err != nil {
		s.trouble("fetch", err)
	}
	if !r.mayUse(quota.ConsumerByteRate, float64(out.size())) {
		out.topics = nil // as in Kafka (KIP-219, FetchContext.getThrottledResponse)
	}
	return framed(ctx, r, out)
}

// framed claims memory for what Log.Fetch has not claimed: the answer's structs, and its encoding,
// into which small batches are copied (spliceMin). An answer that needs at most keptBuffer claims
// nothing. framed uses the records' claim, because conn.send releases the request's claim before it
// sends records.
func framed(ctx context.Context, r *request, out *fetched) kmsg.Response {
	n := out.framing()
	for _, t := range out.topics {
		n += rowCost + len(t.name) + rowCost*len(t.partitions)
	}
	if n > keptBuffer {
		if _, err := r.records.Grow(ctx, int64(n)); err != nil {
			return nil
		}
	}
	return out
}

// rowCost estimates the memory of a topic, or a partition, in an answer that is not encoded yet.
const rowCost = 128

// fetchWithin waits for records as long as the client asked, and for memory and the store at most
// timeoutDefault longer. It stops waiting when other clients wait for this connection's memory.
func (s *Server) fetchWithin(ctx context.Context, r *request, want eventlog.Want) ([]eventlog.Slice, error) {
	ctx, cancel := context.WithTimeout(ctx, want.MaxWait+timeoutDefault)
	defer cancel()
	wait, done := r.conn.interruptible(ctx)
	defer done()
	defer r.waits()()
	want.Stop = wait.Done()
	return s.log.Fetch(ctx, want)
}

// clamp limits a client's byte limit to 1 … fetchMax. Kafka, too, returns one batch if it is 0 or
// less.
func clamp(maxBytes int32) int { return min(max(int(maxBytes), 1), fetchMax) }

// slot says where the answer for a partition goes: the index of its topic in the answer, and its
// index in that topic.
type slot struct{ topic, partition int }

// plan prepares the answer, and compares the client's leader epochs with the current one, which is
// epoch. It returns what to read from the log: for each of spans, slots has its place in the
// answer, and known the leader epoch that the client sent. A partition that the request names more
// than once is read once: the answer is at the place of the first mention, for what the last
// mention asks. Kafka's broker does so because it has a map by partition (FetchRequest.fetchData).
// Mentions that get an error or a nearer broker are answered one by one.
func (s *Server) plan(ctx context.Context, r *request, in *kmsg.FetchRequest, out *fetched, epoch int32) (spans []eventlog.Span, slots []slot, known []int32) {
	out.topics = make([]fetchedTopic, len(in.Topics))
	mentioned := make(map[eventlog.Partition]int) // index into spans
	view := s.view()
	for i := range in.Topics {
		asked, answer := &in.Topics[i], &out.topics[i]
		answer.name, answer.id = asked.Topic, asked.TopicID
		answer.partitions = make([]fetchedPartition, 0, len(asked.Partitions))
		topic, unknown := s.topicEither(ctx, r, acl.Read, asked.Topic, asked.TopicID, in.Version >= 13)
		for k := range asked.Partitions {
			ask := &asked.Partitions[k]
			partition, err := partitionOf(topic, ask.Partition)
			if unknown != nil {
				err = unknown
			} else if err == nil {
				err = checkEpoch(ask.CurrentLeaderEpoch, epoch)
			}
			if err != nil {
				answer.partitions = append(answer.partitions, fetchedPartition{number: ask.Partition, code: errorCode(err)})
				out.atOnce = true
				continue
			}
			if near, is := view.Nearest(partition, in.Rack); is && near != view.Self() && in.Rack != view.Rack() { // KIP-392
				answer.partitions = append(answer.partitions, fetchedPartition{number: ask.Partition, elsewhere: true, nearest: near})
				out.atOnce = true
				continue
			}
			span := eventlog.Span{Partition: partition, From: eventlog.Offset(ask.FetchOffset), MaxBytes: clamp(ask.PartitionMaxBytes)}
			if n, again := mentioned[partition]; again {
				spans[n], known[n] = span, ask.CurrentLeaderEpoch
				continue
			}
			mentioned[partition] = len(spans)
			spans, known = append(spans, span), append(known, ask.CurrentLeaderEpoch)
			slots = append(slots, slot{i, len(answer.partitions)})
			answer.partitions = append(answer.partitions, fetchedPartition{number: ask.Partition})
		}
	}
	return spans, slots, known
}
