package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/acl"
)

// Special values of a timestamp, and the version that introduced each.
const (
	atLatest          = -1
	atEarliest        = -2
	atNewest          = -3 // the record with the highest timestamp
	atEarliestLocal   = -4 // the first record that is not in remote storage, which weir does not have
	atLatestTiered    = -5 // the last record in remote storage
	atEarliestPending = -6 // the first record that is yet to be moved to remote storage
)

var listOffsetsSince = map[int64]int16{
	atLatest: 1, atEarliest: 1, atNewest: 7, atEarliestLocal: 8, atLatestTiered: 9, atEarliestPending: 11,
}

// listOffsets finds offsets by time. All first and last offsets of a request cost one store call;
// while the store is unavailable they come from memory. All searches by time of a request are made
// together: a few store calls for each thousand partitions.
func (s *Server) listOffsets(ctx context.Context, r *request, in *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	out := in.ResponseKind().(*kmsg.ListOffsetsResponse)
	topics := make([]listed, len(in.Topics)) // each name is looked up once: later it could belong to another topic
	for i := range in.Topics {
		topics[i].topic, topics[i].unknown = s.topicByName(ctx, r, acl.Describe, in.Topics[i].Topic)
	}
	now := s.log.LeaderEpoch()
	bounds := s.listBounds(ctx, in, topics)
	searched := s.searchOffsets(ctx, in, topics, bounds)
	times := make(map[askedPartition]int, mentions(in)) // how often the request names each partition
	for _, t := range in.Topics {
		for _, p := range t.Partitions {
			times[askedPartition{t.Topic, p.Partition}]++
		}
	}
	for i, t := range in.Topics {
		answer := kmsg.NewListOffsetsResponseTopic()
		answer.Topic = t.Topic
		answer.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, 0, len(t.Partitions))
		for _, p := range t.Partitions {
			a := kmsg.NewListOffsetsResponseTopicPartition()
			a.Partition = p.Partition
			found, epoch, err := nowhere, int32(-1), error(nil)
			// Kafka's broker refuses all mentions, too (ListOffsetsRequest.duplicatePartitions).
			if times[askedPartition{t.Topic, p.Partition}] > 1 {
				err = deny(kerr.InvalidRequest, "partition %d of topic %q is in this request more than once; name it once", p.Partition, t.Topic)
			} else {
				found, epoch, err = s.listOffset(in, topics[i], p, bounds, searched)
			}
			if err == nil && s.log.LeaderEpoch() != now {
				err = deny(kerr.NotLeaderForPartition, "a new leader epoch began while weir looked up the offset")
			}
			if err != nil {
				s.trouble("ListOffsets", err)
				a.ErrorCode = errorCode(err)
			} else {
				a.Offset, a.Timestamp = found.Offset, found.Timestamp
				if a.Offset >= 0 {
					a.LeaderEpoch = epoch
				}
			}
			answer.Partitions = append(answer.Partitions, a)
		}
		out.Topics = append(out.Topics, answer)
	}
	return out
}

// mentions counts the partitions that a request names.
func mentions(in *kmsg.ListOffsetsRequest) (n int) {
	for _, t := range in.Topics {
		n += len(t.Partitions)
	}
	return n
}

// listed is a topic that a request names.
type listed struct {
	topic   eventlog.Topic
	unknown error
}

// boundsTimeout is how long to wait for the store's bounds. After that, the bounds that this
// process knows are used. Clients wait 30 s by default.
const boundsTimeout = 5 * time.Second

// listBounds reads the bounds of all existing partitions of the request, in one store call. If the
// store does not answer, it returns the bounds that this process knows, so that a consumer that
// starts now is served from memory too.
func (s *Server) listBounds(ctx context.Context, in *kmsg.ListOffsetsRequest, topics []listed) map[eventlog.Partition]eventlog.Slice {
	ps := make([]eventlog.Partition, 0, mentions(in))
	mentioned := make(map[eventlog.Partition]bool, mentions(in))
	for i, t := range in.Topics {
		if topics[i].unknown != nil {
			continue
		}
		for _, p := range t.Partitions {
			if partition, err := partitionOf(topics[i].topic, p.Partition); err == nil && first(mentioned, partition) {
				ps = append(ps, partition)
			}
		}
	}
	if len(ps) == 0 {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, boundsTimeout)
	defer cancel()
	slices, err := s.log.EachBounds(asking, ps...)
	bounds := make(map[eventlog.Partition]eventlog.Slice, len(ps))
	away := errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
	for i, p := range ps {
		known, seen := s.log.Known(p)
		switch {
		case err == nil && (slices[i].Err == nil || !seen || !errors.Is(slices[i].Err, eventlog.ErrUnavailable)):
			bounds[p] = slices[i]
		case err == nil: // the partition's shard does not answer
			bounds[p] = eventlog.Slice{Bounds: known}
		case away && seen:
			bounds[p] = eventlog.Slice{Bounds: known}
		default:
			bounds[p] = eventlog.Slice{Err: err}
		}
	}
	return bounds
}

// askedPartition is a partition as the request names it.
type askedPartition struct {
	topic  string
	number int32
}

// nowhere is the answer when no record matches.
var nowhere = batch.Moment{Offset: -1, Timestamp: -1}

// isSearch reports whether a timestamp asks for a record, rather than for a bound of the partition.
func isSearch(timestamp int64) bool { return timestamp >= 0 || timestamp == atNewest }

// askedAbout checks one partition of a request, and returns its number in the store.
func (s *Server) askedAbout(in *kmsg.ListOffsetsRequest, of listed, p kmsg.ListOffsetsRequestTopicPartition, bounds map[eventlog.Partition]eventlog.Slice) (eventlog.Partition, error) {
	if of.unknown != nil {
		return 0, of.unknown
	}
	partition, err := partitionOf(of.topic, p.Partition)
	if err != nil {
		return 0, err
	}
	if err := checkEpoch(p.CurrentLeaderEpoch, s.log.LeaderEpoch()); err != nil {
		return 0, err
	}
	if err := bounds[partition].Err; err != nil {
		return 0, err
	}
	if since, known := listOffsetsSince[p.Timestamp]; p.Timestamp < 0 && (!known || in.Version < since) {
		return 0, deny(kerr.UnsupportedVersion, "timestamp %d has no meaning in ListOffsets version %d", p.Timestamp, in.Version)
	}
	return partition, nil
}

// searchOffsets finds the records of all partitions for which the request asks by time, or for the
// newest.
func (s *Server) searchOffsets(ctx context.Context, in *kmsg.ListOffsetsRequest, topics []listed, bounds map[eventlog.Partition]eventlog.Slice) map[eventlog.Partition]eventlog.Since {
	mentioned := make(map[eventlog.Partition]bool, len(bounds))
	var since []eventlog.Goal
	var newest []eventlog.Partition
	for i, t := range in.Topics {
		for _, p := range t.Partitions {
			if !isSearch(p.Timestamp) {
				continue
			}
			partition, err := s.askedAbout(in, topics[i], p, bounds)
			if err != nil || !first(mentioned, partition) {
				continue
			}
			if p.Timestamp == atNewest {
				newest = append(newest, partition)
			} else {
				if since == nil {
					since = make([]eventlog.Goal, 0, len(bounds))
				}
				since = append(since, eventlog.Goal{Partition: partition, At: eventlog.Timestamp(p.Timestamp)})
			}
		}
	}
	found := make(map[eventlog.Partition]eventlog.Since, len(since)+len(newest))
	answers, err := s.log.OffsetsAt(ctx, since)
	for i, g := range since {
		if err != nil {
			found[g.Partition] = eventlog.Since{Err: err}
		} else {
			found[g.Partition] = answers[i]
		}
	}
	answers, err = s.log.OffsetsOfNewest(ctx, newest)
	for i, p := range newest {
		if err != nil {
			found[p] = eventlog.Since{Err: err}
		} else {
			found[p] = answers[i]
		}
	}
	return found
}

func (s *Server) listOffset(in *kmsg.ListOffsetsRequest, of listed, p kmsg.ListOffsetsRequestTopicPartition, bounds map[eventlog.Partition]eventlog.Slice, searched map[eventlog.Partition]eventlog.Since) (found batch.Moment, epoch int32, err error) {
	partition, err := s.askedAbout(in, of, p, bounds)
	if err != nil {
		return nowhere, -1, err
	}
	first, end := bounds[partition].Bounds.First, bounds[partition].Bounds.Next
	committed := in.IsolationLevel == 1 // KIP-98: then the latest offset is the last stable one
	if committed {
		end = bounds[partition].Bounds.Stable()
	}
	switch p.Timestamp {
	case atLatest:
		return batch.Moment{Offset: int64(end), Timestamp: -1}, s.log.EpochAt(partition, end), nil
	case atEarliest, atEarliestLocal:
		return batch.Moment{Offset: int64(first), Timestamp: -1}, s.log.EpochAt(partition, first), nil
	case atLatestTiered, atEarliestPending:
		return nowhere, -1, nil
	}
	got := searched[partition]
	if got.Err != nil || !got.There {
		return nowhere, -1, got.Err
	}
	// As in Kafka (OffsetResultHolder.lastFetchableOffset), a record that the client cannot fetch
	// yet is not found. The search has told the log of the end that it saw.
	if known, _ := s.log.Known(partition); committed && got.Offset >= int64(known.Stable()) {
		return nowhere, -1, nil
	}
	return got.Moment, s.log.EpochAt(partition, eventlog.Offset(got.Offset)), nil
}
