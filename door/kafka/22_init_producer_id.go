package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
)

// initProducerID gives an idempotent producer a unique id. A transactional producer is refused:
// transactions are not supported.
func (s *Server) initProducerID(ctx context.Context, r *request, in *kmsg.InitProducerIDRequest) *kmsg.InitProducerIDResponse {
	out := in.ResponseKind().(*kmsg.InitProducerIDResponse)
	out.ProducerID, out.ProducerEpoch = -1, -1
	if in.TransactionalID != nil {
		err := errTransactions
		if *in.TransactionalID == "" {
			err = deny(kerr.InvalidRequest, "the transactional id is empty; leave it out (null): transactions are not supported")
		}
		s.refused(r, err)
		out.ErrorCode = errorCode(err)
		return out
	}
	if err := r.permitIdempotent(); err != nil {
		out.ErrorCode = errorCode(err)
		return out
	}
	if s.log.ReadOnly() {
		// The only code after which librdkafka gives up (rd_kafka_idemp_check_error); after others
		// it asks twice a second until its messages time out.
		s.refused(r, eventlog.ErrReadOnly)
		out.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return out
	}
	id, err := s.log.NewProducerID(ctx)
	if err != nil {
		s.trouble("InitProducerId", err)
		if out.ErrorCode = errorCode(err); out.ErrorCode == kerr.KafkaStorageError.Code {
			out.ErrorCode = kerr.CoordinatorNotAvailable.Code // every client retries after it
		}
		return out
	}
	out.ProducerID, out.ProducerEpoch = id, 0
	return out
}
