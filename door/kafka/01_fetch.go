package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
)

const (
	fetchMax     = 16 << 20        // most bytes of records in one answer; one batch comes however large it is
	fetchScant   = 64 << 10        // the same when too much is being fetched at once: answers get small, nobody waits
	fetchWaitMax = 5 * time.Minute // longest that a fetch waits for records
)

// Fetch answers with whole batches, from the one that holds the offset asked for. While there are too few bytes it waits.
//
// Fetch sessions (KIP-227) are not kept. A client that asks for one is answered with session id 0, which the protocol allows: it
// goes on with full requests.
func (s *Server) fetch(ctx context.Context, r *request, in *kmsg.FetchRequest) kmsg.Response {
	out := &fetched{FetchResponse: in.ResponseKind().(*kmsg.FetchResponse), epochAt: s.log.EpochAt, release: func() {}}
	if in.SessionEpoch > 0 {
		out.ErrorCode = kerr.FetchSessionIDNotFound.Code
		return out
	}
	out.uncommitted = in.IsolationLevel == 0
	spans, slots := s.plan(ctx, in, out)
	if len(spans) == 0 {
		return out // there is nothing to wait for
	}
	want := eventlog.Want{
		Spans:    spans,
		MinBytes: int(in.MinBytes),
		MaxWait:  min(max(time.Duration(in.MaxWaitMillis)*time.Millisecond, 0), fetchWaitMax),
	}
	if out.failed {
		want.MaxWait = 0
	}
	got, err := s.fetchWithin(ctx, r, want, clamp(in.MaxBytes), out)
	for i, slot := range slots {
		p := &out.topics[slot.topic].partitions[slot.partition]
		if err != nil {
			p.code = errorCode(err)
			continue
		}
		p.slice, p.code = got[i], errorCode(got[i].Err)
	}
	if err != nil {
		s.trouble("fetch", err)
	}
	return out
}

// clamp brings a client's byte limit into what is possible. Kafka, too, returns one batch when it is 0 or less.
func clamp(maxBytes int32) int { return min(max(int(maxBytes), 1), fetchMax) }

// slot is where in the answer a span's slice goes.
type slot struct{ topic, partition int }

// plan lays the answer out, and lists what must be asked of the log. A partition that is mentioned again is answered once, where it was first
// mentioned, and as the last mention asks: Kafka's broker keeps the mentions in a map by partition (FetchRequest.fetchData).
func (s *Server) plan(ctx context.Context, in *kmsg.FetchRequest, out *fetched) (spans []eventlog.Span, slots []slot) {
	out.topics = make([]fetchedTopic, len(in.Topics))
	mentioned := make(map[eventlog.Partition]int) // which span
	for i := range in.Topics {
		asked, answer := &in.Topics[i], &out.topics[i]
		answer.name, answer.id = asked.Topic, asked.TopicID
		answer.partitions = make([]fetchedPartition, 0, len(asked.Partitions))
		topic, unknown := s.topicEither(ctx, asked.Topic, asked.TopicID, in.Version >= 13)
		for k := range asked.Partitions {
			ask := &asked.Partitions[k]
			partition, err := partitionOf(topic, ask.Partition)
			if unknown != nil {
				err = unknown
			} else if err == nil {
				err = s.checkEpoch(ask.CurrentLeaderEpoch)
			}
			if err != nil {
				answer.partitions = append(answer.partitions, fetchedPartition{number: ask.Partition, code: errorCode(err)})
				out.failed = true
				continue
			}
			span := eventlog.Span{Partition: partition, From: eventlog.Offset(ask.FetchOffset), MaxBytes: clamp(ask.PartitionMaxBytes)}
			if n, again := mentioned[partition]; again {
				spans[n] = span
				continue
			}
			mentioned[partition] = len(spans)
			spans = append(spans, span)
			slots = append(slots, slot{i, len(answer.partitions)})
			answer.partitions = append(answer.partitions, fetchedPartition{number: ask.Partition})
		}
	}
	return spans, slots
}

// fetchWithin fetches and, where there is too little, waits and fetches again. Only while it reads and answers it holds
// room of Server.fetches, not while it waits.
func (s *Server) fetchWithin(ctx context.Context, r *request, want eventlog.Want, maxBytes int, out *fetched) ([]eventlog.Slice, error) {
	most := 0 // that can come
	for _, span := range want.Spans {
		most = min(most+span.MaxBytes, maxBytes)
	}
	want.MinBytes = min(want.MinBytes, most) // or it waited for what cannot come
	wait := want.MaxWait
	for {
		held := int64(most)
		want.MaxBytes = most
		if !s.fetches.TryAcquire(held) {
			held, want.MaxBytes = 0, min(most, fetchScant)
		}
		want.MaxWait = 0
		got, err := s.log.Fetch(ctx, want)
		size, failed := sizeOf(got)
		if err != nil || failed || wait == 0 || size >= min(want.MinBytes, want.MaxBytes) {
			kept := min(held, int64(size))
			s.fetches.Release(held - kept)
			out.release = func() { s.fetches.Release(kept) }
			return got, err
		}
		s.fetches.Release(held)
		want.MaxBytes, want.MaxWait, wait = most, wait, 0
		waiting, done := r.conn.givesWay(ctx)
		_, err = s.log.Fetch(waiting, want)
		gaveWay := waiting.Err() != nil
		done()
		if err != nil && !gaveWay {
			return nil, err
		}
	}
}

// sizeOf counts bytes of records, and tells whether a partition failed.
func sizeOf(slices []eventlog.Slice) (size int, failed bool) {
	for _, s := range slices {
		failed = failed || s.Err != nil
		for _, b := range s.Batches {
			size += len(b.Bytes)
		}
	}
	return size, failed
}
