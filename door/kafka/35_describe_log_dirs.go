package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// logDir is the only directory listed: Kafka's tools ask where records are and how large they are.
const logDir = "/weir"

// describeLogDirs returns the bytes of each partition, in one store call. It does not report free
// space, which only the store knows.
func (s *Server) describeLogDirs(ctx context.Context, r *request, in *kmsg.DescribeLogDirsRequest) *kmsg.DescribeLogDirsResponse {
	out := in.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	if err := r.permitCluster(acl.Describe); err != nil {
		out.ErrorCode = errorCode(err) // older versions have no field for it, and get no directory, as in Kafka
		return out
	}
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = logDir
	var ps []eventlog.Partition
	for _, t := range s.logDirTopics(ctx, r, in) {
		answer := kmsg.NewDescribeLogDirsResponseDirTopic()
		answer.Topic = t.name
		for _, number := range t.numbers {
			p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			p.Partition = number
			answer.Partitions = append(answer.Partitions, p)
			ps = append(ps, t.topic.Partitions[number])
		}
		dir.Topics = append(dir.Topics, answer)
	}
	if err := r.claimAnswer(ctx, len(ps)*logDirCost); err != nil {
		return nil
	}
	if len(ps) > 0 {
		sizes, err := s.log.Bounds(ctx, ps...)
		if err != nil {
			s.trouble("DescribeLogDirs", err)
			out.ErrorCode, dir.ErrorCode, dir.Topics = errorCode(err), errorCode(err), nil
		}
		for i := range dir.Topics {
			for k := range dir.Topics[i].Partitions {
				dir.Topics[i].Partitions[k].Size = sizes[0].Bounds.Bytes
				sizes = sizes[1:]
			}
		}
	}
	out.Dirs = append(out.Dirs, dir)
	return out
}

// logDirCost estimates the bytes of a partition in an answer: as read from the store, in memory and
// encoded.
const logDirCost = 256

type logDirTopic struct {
	name    string
	topic   eventlog.Topic
	numbers []int32
}

// logDirTopics lists the requested topics that exist; null requests all.
func (s *Server) logDirTopics(ctx context.Context, r *request, in *kmsg.DescribeLogDirsRequest) []logDirTopic {
	var all []logDirTopic
	view := s.view()
	led := func(t logDirTopic) logDirTopic { // tools add up what all brokers answer
		t.numbers = slices.DeleteFunc(t.numbers, func(n int32) bool { return view.Leader(t.topic.Partitions[n]) != view.Self() })
		return t
	}
	if in.Topics == nil {
		for _, topic := range s.topicsSeen(r) {
			t := logDirTopic{name: topic.Name, topic: topic}
			for number := range topic.Partitions {
				t.numbers = append(t.numbers, int32(number))
			}
			all = append(all, led(t))
		}
		return all
	}
	for _, m := range merge(in.Topics, func(t kmsg.DescribeLogDirsRequestTopic) (string, []int32) { return t.Topic, t.Partitions }) {
		topic, err := s.topicByName(ctx, r, acl.Describe, in.Topics[m.first].Topic)
		if err != nil {
			continue
		}
		t := logDirTopic{name: topic.Name, topic: topic}
		for _, number := range m.partitions {
			if _, err := partitionOf(topic, number); err == nil {
				t.numbers = append(t.numbers, number)
			}
		}
		all = append(all, led(t))
	}
	return all
}
