package kafka

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handler executes one request and returns its answer. A connection runs one handler at a time, in
// the order of its requests. A nil answer closes the connection.
type handler func(s *Server, ctx context.Context, r *request) kmsg.Response

// starter starts a request as soon as it was read. The function that it returns runs in the
// request's turn: it waits for the outcome, and returns the answer.
type starter func(s *Server, ctx context.Context, r *request) (finish handlerEnd)

type handlerEnd = func(ctx context.Context) kmsg.Response

// api is one kind of request that we serve.
type api struct {
	key      kmsg.Key
	min, max int16 // versions
	answer   handler
	start    starter // instead of answer
	polls    bool    // it may wait for records or members: its context also ends when the server drains
	large    bool    // may be as large as limits.FrameBytes
	opaque   bool    // the body is ignored

	shapes []func() *shape // by version
}

// apis is the table of all APIs that we serve: ApiVersions advertises exactly these. kmsg knows
// from which version on a key is flexible.
//
// Ranges are those of Kafka 4.4, so that clients from 2.1 on work. Only ApiVersions has one version
// less: with version 5 a client says which broker it means (KIP-1242).
func apis() []api {
	return []api{
		{key: kmsg.Produce, min: 3, max: 13, start: (*Server).produce, large: true},
		{key: kmsg.Fetch, min: 4, max: 18, answer: typed((*Server).fetch), polls: true},
		{key: kmsg.ListOffsets, min: 1, max: 11, answer: typed((*Server).listOffsets)},
		{key: kmsg.Metadata, min: 0, max: 13, answer: typed((*Server).metadata)},
		{key: kmsg.OffsetCommit, min: 2, max: 10, answer: typed((*Server).offsetCommit)},
		{key: kmsg.OffsetFetch, min: 1, max: 10, answer: typed((*Server).offsetFetch)},
		{key: kmsg.FindCoordinator, min: 0, max: 6, answer: typed((*Server).findCoordinator)},
		{key: kmsg.JoinGroup, min: 0, max: 9, answer: typed((*Server).joinGroup), polls: true},
		{key: kmsg.Heartbeat, min: 0, max: 4, answer: typed((*Server).heartbeat)},
		{key: kmsg.LeaveGroup, min: 0, max: 5, answer: typed((*Server).leaveGroup)},
		{key: kmsg.SyncGroup, min: 0, max: 5, answer: typed((*Server).syncGroup), polls: true},
		{key: kmsg.DescribeGroups, min: 0, max: 6, answer: typed((*Server).describeGroups)},
		{key: kmsg.ListGroups, min: 0, max: 5, answer: typed((*Server).listGroups)},
		{key: kmsg.SASLHandshake, min: 0, max: 1, answer: typed((*Server).saslHandshake)},
		{key: kmsg.ApiVersions, min: 0, max: 4, answer: typed((*Server).apiVersions)},
		{key: kmsg.CreateTopics, min: 2, max: 7, answer: typed((*Server).createTopics)},
		{key: kmsg.DeleteTopics, min: 1, max: 6, answer: typed((*Server).deleteTopics)},
		{key: kmsg.DeleteRecords, min: 0, max: 2, answer: typed((*Server).deleteRecords)},
		{key: kmsg.InitProducerID, min: 0, max: 5, answer: typed((*Server).initProducerID)},
		{key: kmsg.OffsetForLeaderEpoch, min: 2, max: 4, answer: typed((*Server).offsetForLeaderEpoch)},
		{key: kmsg.DescribeACLs, min: 1, max: 3, answer: typed((*Server).describeACLs)},
		{key: kmsg.CreateACLs, min: 1, max: 3, answer: typed((*Server).createACLs)},
		{key: kmsg.DeleteACLs, min: 1, max: 3, answer: typed((*Server).deleteACLs)},
		{key: kmsg.DescribeConfigs, min: 1, max: 4, answer: typed((*Server).describeConfigs)},
		{key: kmsg.AlterConfigs, min: 0, max: 2, answer: typed((*Server).alterConfigs)},
		{key: kmsg.DescribeLogDirs, min: 1, max: 5, answer: typed((*Server).describeLogDirs)},
		{key: kmsg.SASLAuthenticate, min: 0, max: 2, answer: typed((*Server).saslAuthenticate)},
		{key: kmsg.CreatePartitions, min: 0, max: 3, answer: typed((*Server).createPartitions)},
		{key: kmsg.DeleteGroups, min: 0, max: 3, answer: typed((*Server).deleteGroups)},
		{key: kmsg.ElectLeaders, min: 0, max: 2, answer: typed((*Server).electLeaders)},
		{key: kmsg.IncrementalAlterConfigs, min: 0, max: 1, answer: typed((*Server).incrementalAlterConfigs)},
		{key: kmsg.AlterPartitionAssignments, min: 0, max: 1, answer: typed((*Server).alterPartitionReassignments)},
		{key: kmsg.ListPartitionReassignments, min: 0, max: 0, answer: typed((*Server).listPartitionReassignments)},
		{key: kmsg.OffsetDelete, min: 0, max: 0, answer: typed((*Server).offsetDelete)},
		{key: kmsg.DescribeClientQuotas, min: 0, max: 1, answer: typed((*Server).describeClientQuotas)},
		{key: kmsg.AlterClientQuotas, min: 0, max: 1, answer: typed((*Server).alterClientQuotas)},
		{key: kmsg.DescribeUserSCRAMCredentials, min: 0, max: 0, answer: typed((*Server).describeUserSCRAMCredentials)},
		{key: kmsg.AlterUserSCRAMCredentials, min: 0, max: 0, answer: typed((*Server).alterUserSCRAMCredentials)},
		{key: kmsg.DescribeCluster, min: 0, max: 2, answer: typed((*Server).describeCluster)},
		{key: kmsg.DescribeProducers, min: 0, max: 0, answer: typed((*Server).describeProducers)},
		{key: kmsg.ListTransactions, min: 0, max: 2, answer: typed((*Server).listTransactions)},
		{key: kmsg.ConsumerGroupHeartbeat, min: 0, max: 1, answer: typed((*Server).consumerGroupHeartbeat)},
		{key: kmsg.ConsumerGroupDescribe, min: 0, max: 1, answer: typed((*Server).consumerGroupDescribe)},
		{key: kmsg.ListConfigResources, min: 0, max: 1, answer: typed((*Server).listConfigResources)},
		{key: kmsg.DescribeTopicPartitions, min: 0, max: 0, answer: typed((*Server).describeTopicPartitions)},
		{key: kmsg.ShareGroupHeartbeat, min: 1, max: 1, answer: typed((*Server).shareGroupHeartbeat)},
	}
}

// noReply is returned by a handler if the request asks for no answer.
var noReply kmsg.Response = new(kmsg.ProduceResponse)

// typed makes a handler from a method that takes kmsg's request type.
func typed[In kmsg.Request, Out interface {
	comparable
	kmsg.Response
}](h func(*Server, context.Context, *request, In) Out) handler {
	return func(s *Server, ctx context.Context, r *request) kmsg.Response {
		var none Out
		if out := h(s, ctx, r, r.body.(In)); out != none {
			return out
		}
		return nil
	}
}

// find returns the api that serves a request. As in Kafka, a request of a key or version that is
// not advertised closes the connection, except ApiVersions: a client sends it before it knows what
// is advertised.
func (s *Server) find(h header) (*api, error) {
	a := s.apis[h.key]
	switch {
	case a == nil:
		kind := fmt.Sprintf("API key %d (%s)", h.key, kmsg.NameForKey(h.key))
		return nil, refuseLacking("unknown_key", kind, "the request has %s, which weir does not support", kind)
	case h.version >= a.min && h.version <= a.max:
		return a, nil
	case a.key == kmsg.ApiVersions:
		return &api{key: a.key, answer: (*Server).unsupportedApiVersions, opaque: true}, nil
	default:
		return nil, refuseLacking("unsupported_version", a.key.Name()+" of this version", "%s version %d is not supported; weir supports versions %d to %d", a.key.Name(), h.version, a.min, a.max)
	}
}

// shape returns the shape of the key's requests in a version; it is computed once.
func (a *api) shape(version int16) *shape { return a.shapes[version-a.min]() }

func (a *api) prepare() {
	for v := a.min; v <= a.max; v++ {
		a.shapes = append(a.shapes, sync.OnceValue(func() *shape { return shapeOf(a.key, v) }))
	}
}
