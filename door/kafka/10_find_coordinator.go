package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
)

// Kinds of coordinators.
const (
	coordinatesGroup       = 0
	coordinatesTransaction = 1
)

// errNoTransactionCoordinator answers a transactional producer's first request. The code decides
// whether its user is told the text: Kafka's own client shows it after any code but
// TRANSACTIONAL_ID_AUTHORIZATION_FAILED (TransactionManager.FindCoordinatorHandler); librdkafka
// shows it after that code and after CLUSTER_AUTHORIZATION_FAILED, and retries for ever after most
// others (rd_kafka_txn_handle_FindCoordinator). docs/kafka.md lists what each client shows.
var errNoTransactionCoordinator = lacking("transactions", kerr.ClusterAuthorizationFailed, noTransactions)

// findCoordinator returns the broker that coordinates a group.
func (s *Server) findCoordinator(ctx context.Context, r *request, in *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
	out := in.ResponseKind().(*kmsg.FindCoordinatorResponse)
	keys := in.CoordinatorKeys
	if in.Version < 4 {
		keys = []string{in.CoordinatorKey}
	}
	view := s.view()
	mentions := make(map[string]bool)
	for _, key := range keys {
		if !first(mentions, key) {
			continue
		}
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port = key, -1, -1
		if err := checkCoordinates(r, in.CoordinatorType, key); err != nil {
			s.refused(r, err)
			c.ErrorCode, c.ErrorMessage = codeOf(err)
		} else {
			s.openOffsetsTopic(ctx, r)
			found := view.Coordinator(key)
			c.NodeID = found.ID
			c.Host, c.Port = s.addressOf(r, view, found)
		}
		out.Coordinators = append(out.Coordinators, c)
	}
	if in.Version < 4 {
		c := out.Coordinators[0]
		out.ErrorCode, out.ErrorMessage = c.ErrorCode, c.ErrorMessage
		out.NodeID, out.Host, out.Port = c.NodeID, c.Host, c.Port
	}
	return out
}

func checkCoordinates(r *request, kind int8, key string) error {
	switch kind {
	case coordinatesGroup:
		return r.permit(acl.Describe, acl.Group, key)
	case coordinatesTransaction:
		return errNoTransactionCoordinator
	default:
		return deny(kerr.InvalidRequest, "coordinators of type %d are not supported", kind)
	}
}
