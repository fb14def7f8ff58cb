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

// describeCluster describes the cluster: the brokers on the store.
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
	view := s.view()
	out.ClusterID, out.ControllerID = s.clusterID, view.Brokers()[0].ID
	if in.IncludeClusterAuthorizedOperations {
		out.ClusterAuthorizedOperations = r.clusterOperations()
	}
	for _, known := range view.Brokers() {
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Rack = known.ID, rackOf(known)
		b.Host, b.Port = s.addressOf(r, view, known)
		out.Brokers = append(out.Brokers, b)
	}
	return out
}
