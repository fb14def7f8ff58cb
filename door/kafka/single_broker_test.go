package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
)

// What is expected here is what Apache Kafka 4.2 with one broker answered to the same requests, but
// for mentions, which it answers one by one.

func TestElectionsAreNotNeeded(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 2, nil)
	elect := func(kind int8, version int16, partitions map[string][]int32) *kmsg.ElectLeadersResponse {
		req := kmsg.NewPtrElectLeadersRequest()
		req.Version, req.ElectionType = version, kind
		for _, name := range []string{"t", "none"} {
			if partitions == nil {
				break
			}
			rt := kmsg.NewElectLeadersRequestTopic()
			rt.Topic, rt.Partitions = name, partitions[name]
			req.Topics = append(req.Topics, rt)
		}
		return ask[*kmsg.ElectLeadersResponse](b, req)
	}
	for version := int16(0); version <= 2; version++ {
		for kind := range int8(min(version, 1) + 1) {
			got := elect(kind, version, map[string][]int32{"t": {0, 0, 1, 9}, "none": {0}})
			var codes []int16
			for _, topic := range got.Topics {
				for _, p := range topic.Partitions {
					codes = append(codes, p.ErrorCode)
				}
			}
			not, unknown := kerr.ElectionNotNeeded.Code, kerr.UnknownTopicOrPartition.Code
			if want := []int16{not, not, unknown, unknown}; got.ErrorCode != 0 || !slices.Equal(codes, want) {
				t.Errorf("version %d, kind %d: %d and %v, expected 0 and %v", version, kind, got.ErrorCode, codes, want)
			}
		}
	}
	if all := elect(0, 2, nil); all.ErrorCode != 0 || len(all.Topics) != 0 {
		t.Errorf("all partitions: %+v", all)
	}
	wantCode(t, "election of kind 7", elect(7, 2, nil).ErrorCode, kerr.InvalidRequest)
}

func TestPartitionsMoveOnlyToTheOneBroker(t *testing.T) {
	b := start(t, kafka.Config{NodeID: new(int32(7))})
	b.createTopic("t", 1, nil)
	for _, c := range []struct {
		topic    string
		number   int32
		replicas []int32
		want     *kerr.Error
	}{
		{"t", 0, []int32{7}, nil},
		{"t", 0, nil, kerr.NoReassignmentInProgress},
		{"t", 0, []int32{}, kerr.InvalidReplicaAssignment},
		{"t", 0, []int32{8}, kerr.InvalidReplicaAssignment},
		{"t", 0, []int32{7, 8}, kerr.InvalidReplicaAssignment},
		{"t", 0, make([]int32, 10_000), kerr.InvalidReplicaAssignment},
		{"t", 9, []int32{7}, kerr.UnknownTopicOrPartition},
		{"none", 0, nil, kerr.UnknownTopicOrPartition},
	} {
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.Version = 1
		rt, rp := kmsg.NewAlterPartitionAssignmentsRequestTopic(), kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rt.Topic, rp.Partition, rp.Replicas = c.topic, c.number, c.replicas
		rt.Partitions = append(rt.Partitions, rp, rp)
		req.Topics = append(req.Topics, rt)
		got := ask[*kmsg.AlterPartitionAssignmentsResponse](b, req)
		if len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 || !got.AllowReplicationFactorChange {
			t.Fatalf("%+v: %+v", c, got)
		}
		p := got.Topics[0].Partitions[0]
		wantCode(t, fmt.Sprintf("%s/%d to %.3v", c.topic, c.number, c.replicas), p.ErrorCode, c.want)
		if len(text(p.ErrorMessage)) > 1100 {
			t.Errorf("a text of %d bytes", len(text(p.ErrorMessage)))
		}
		if c.want == nil && strings.Contains(b.said.String(), "failed") {
			t.Errorf("a move that succeeds is logged as a failure: %s", b.said)
		}
	}
}

func TestThereAreNoQuotasTransactionsOrACLs(t *testing.T) {
	b := start(t, kafka.Config{})
	for version := range int16(2) {
		req := kmsg.NewPtrDescribeClientQuotasRequest()
		req.Version = version
		if got := ask[*kmsg.DescribeClientQuotasResponse](b, req); got.ErrorCode != 0 || got.Entries == nil || len(got.Entries) != 0 {
			t.Errorf("quotas, version %d: %+v", version, got) // null entries are an error to Kafka's client
		}
	}
	for version := range int16(3) {
		req := kmsg.NewPtrListTransactionsRequest()
		req.Version, req.StateFilters = version, []string{"Empty", "x", "x", "Dead", "empty"}
		got := ask[*kmsg.ListTransactionsResponse](b, req)
		if got.ErrorCode != 0 || len(got.TransactionStates) != 0 || !slices.Equal(got.UnknownStateFilters, []string{"x", "empty"}) {
			t.Errorf("transactions, version %d: %+v", version, got)
		}
	}
	for version := int16(1); version <= 3; version++ {
		req := kmsg.NewPtrDescribeACLsRequest()
		req.Version, req.ResourceType, req.Operation, req.PermissionType = version, kmsg.ACLResourceTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		got := ask[*kmsg.DescribeACLsResponse](b, req)
		wantCode(t, "ACLs: "+text(got.ErrorMessage), got.ErrorCode, kerr.SecurityDisabled)
	}
}

func TestWhatIsNotSupportedIsToldOncePerClientAndKind(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorType, find.CoordinatorKeys = 4, 1, []string{"x"}
	compact := createRequest("c", 1, 1)
	cleanup, with := "compress", kmsg.NewCreateTopicsRequestTopicConfig()
	with.Name, with.Value = "cleanup.policy", &cleanup
	compact.Topics[0].Configs = append(compact.Topics[0].Configs, with)
	in := produceRequest("t", 0, sealed(t, batch.None, value("v")))
	in.TransactionID = kmsg.StringPtr("x")
	acls := kmsg.NewPtrDescribeACLsRequest()
	acls.Version = 3
	end := kmsg.NewPtrEndTxnRequest()
	end.Version = 1
	old := kmsg.NewPtrCreateTopicsRequest()
	old.Version = 1
	for _, c := range []struct {
		kind string
		reqs []kmsg.Request
	}{
		{"transactions", []kmsg.Request{find, in}},
		{"cleanup.policy", []kmsg.Request{compact}},
		{"replication factor", []kmsg.Request{createRequest("r", 1, 3)}},
		{"ACLs", []kmsg.Request{acls}},
		{"EndTxn", []kmsg.Request{end}},
		{"CreateTopics of this version", []kmsg.Request{old}},
	} {
		for _, clientID := range []string{"one", "two", strings.Repeat("z", 10_000)} {
			line := func() int {
				n := 0
				for line := range strings.Lines(b.said.String()) {
					if strings.Contains(line, "level=WARN") && strings.Contains(line, c.kind) && strings.Contains(line, "client_id="+clientID[:min(len(clientID), 60)]) {
						n++
						if len(line) > 2000 {
							t.Errorf("%s: a line of %d bytes", c.kind, len(line))
						}
					}
				}
				return n
			}
			for range 3 {
				for _, req := range c.reqs {
					w := b.dial()
					w.send(kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, req, 1))
					_, _ = w.tryReceive(req, 1) // or the connection ends, after the line was written
					w.nc.Close()
				}
			}
			if n := line(); n != 1 {
				t.Errorf("%s asked for by %.10s six times has %d lines:\n%s", c.kind, clientID, n, b.said)
			}
		}
	}
}

// A text that holds what a client sent would not fit the two bytes that older versions have for its
// length.
func TestTextsOfAnswersAreShort(t *testing.T) {
	b := start(t, kafka.Config{})
	req := createRequest(strings.Repeat("\x01", 30_000), 1, 3)
	for version := int16(2); version <= 7; version++ {
		req.Version = version
		if got := text(b.create(req).ErrorMessage); len(got) > 1100 {
			t.Errorf("version %d: a text of %d bytes", version, len(got))
		}
	}
}
