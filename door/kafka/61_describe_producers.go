package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
)

// describeProducers lists the idempotent producers of partitions.
func (s *Server) describeProducers(ctx context.Context, r *request, in *kmsg.DescribeProducersRequest) *kmsg.DescribeProducersResponse {
	out := in.ResponseKind().(*kmsg.DescribeProducersResponse)
	topics := merge(in.Topics, func(t kmsg.DescribeProducersRequestTopic) (string, []int32) { return t.Topic, t.Partitions })
	for _, m := range topics {
		asked := in.Topics[m.first]
		t := kmsg.NewDescribeProducersResponseTopic()
		t.Topic = asked.Topic
		topic, unknown := s.topicByName(ctx, asked.Topic)
		for _, number := range m.partitions {
			p := kmsg.NewDescribeProducersResponseTopicPartition()
			p.Partition = number
			known, err := []eventlog.Producer(nil), unknown
			if err == nil {
				known, err = s.producersOf(ctx, topic, number)
			}
			if err != nil {
				s.trouble("DescribeProducers", err)
				p.ErrorCode, p.ErrorMessage = codeOf(err)
			}
			if err := r.claimAnswer(ctx, len(known)*producerCost); err != nil {
				return nil
			}
			for _, k := range known {
				a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				a.ProducerID, a.ProducerEpoch, a.LastSequence = k.ID, int32(k.Epoch), k.LastSequence
				a.LastTimestamp = time.Now().Add(-k.Idle).UnixMilli()
				a.CurrentTxnStartOffset, a.CoordinatorEpoch = -1, -1 // no transactions
				p.ActiveProducers = append(p.ActiveProducers, a)
			}
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}

// producerCost estimates the bytes of a producer in an answer, in memory and encoded.
const producerCost = 256

func (s *Server) producersOf(ctx context.Context, topic eventlog.Topic, number int32) ([]eventlog.Producer, error) {
	partition, err := partitionOf(topic, number)
	if err != nil {
		return nil, err
	}
	return s.log.Producers(ctx, partition)
}
