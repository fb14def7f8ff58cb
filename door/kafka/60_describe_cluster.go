package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kinds of endpoints that a client may ask for (KIP-919).
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

// describeCluster describes the cluster: one broker.
func (s *Server) describeCluster(_ context.Context, r *request, in *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	out := in.ResponseKind().(*kmsg.DescribeClusterResponse)
	if in.Version >= 1 && in.EndpointType != endpointBrokers {
		err := deny(kerr.UnsupportedEndpointType, "endpoint type %d is not supported; use 1 (brokers)", in.EndpointType)
		if in.EndpointType == endpointControllers {
			err = deny(kerr.MismatchedEndpointType, "this is the port of a broker; weir has no controllers")
		}
		out.ErrorCode, out.ErrorMessage = codeOf(err)
		return out
	}
	out.ClusterID, out.ControllerID = s.clusterID, s.cfg.NodeID
	if in.IncludeClusterAuthorizedOperations {
		out.ClusterAuthorizedOperations = r.clusterOperations()
	}
	b := kmsg.NewDescribeClusterResponseBroker()
	b.NodeID = s.cfg.NodeID
	b.Host, b.Port = s.broker(r)
	out.Brokers = append(out.Brokers, b)
	return out
}
