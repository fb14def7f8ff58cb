package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// describeProducers lists the idempotent producers of partitions. It reads the producers of all
// partitions from the log, once for each request.
func (s *Server) describeProducers(ctx context.Context, r *request, in *kmsg.DescribeProducersRequest) *kmsg.DescribeProducersResponse {
	out := in.ResponseKind().(*kmsg.DescribeProducersResponse)
	asked := make(map[eventlog.Partition]slot) // where each answer is
	for i, m := range merge(in.Topics, func(t kmsg.DescribeProducersRequestTopic) (string, []int32) { return t.Topic, t.Partitions }) {
		t := kmsg.NewDescribeProducersResponseTopic()
		t.Topic = in.Topics[m.first].Topic
		topic, unknown := s.topicByName(ctx, r, acl.Read, t.Topic)
		for k, number := range m.partitions {
			p := kmsg.NewDescribeProducersResponseTopicPartition()
			p.Partition = number
			partition, err := eventlog.Partition(0), unknown
			if err == nil {
				partition, err = partitionOf(topic, number)
			}
			if err == nil {
				asked[partition] = slot{i, k}
			} else {
				s.trouble("DescribeProducers", err)
				p.ErrorCode, p.ErrorMessage = r.codeOf(err)
			}
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	if len(asked) == 0 {
		return out
	}
	var crowded error
	err := s.log.Producers(ctx, func(of eventlog.Partition, known eventlog.Producer) error {
		at, is := asked[of]
		if !is {
			return nil
		}
		if crowded = r.claimAnswer(ctx, producerCost); crowded != nil {
			return crowded
		}
		p := &out.Topics[at.topic].Partitions[at.partition]
		p.ActiveProducers = append(p.ActiveProducers, activeProducer(known))
		return nil
	})
	if crowded != nil {
		return nil
	}
	if err != nil {
		s.trouble("DescribeProducers", err)
		for _, at := range asked {
			p := &out.Topics[at.topic].Partitions[at.partition]
			p.ActiveProducers = nil
			p.ErrorCode, p.ErrorMessage = r.codeOf(err)
		}
	}
	return out
}

// producerCost estimates the bytes of a producer in an answer, in memory and encoded.
const producerCost = 256

func activeProducer(known eventlog.Producer) kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
	a.ProducerID, a.ProducerEpoch, a.LastSequence = known.ID, int32(known.Epoch), known.LastSequence
	a.LastTimestamp = time.Now().Add(-known.Idle).UnixMilli()
	a.CurrentTxnStartOffset, a.CoordinatorEpoch = -1, -1 // no transactions
	return a
}
