package kafka_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/apikey"
)

// errorsOf lists the different error codes of an answer, at whatever depth.
func errorsOf(resp kmsg.Response) (codes []int16) {
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).Name == "ErrorCode" {
					codes = append(codes, int16(v.Field(i).Int()))
				} else if v.Type().Field(i).IsExported() {
					walk(v.Field(i))
				}
			}
		}
	}
	walk(reflect.ValueOf(resp))
	codes = slices.DeleteFunc(codes, func(c int16) bool { return c == 0 })
	slices.Sort(codes)
	return slices.Compact(codes)
}

// raw sends a request and returns the bytes of the answer; nil: the connection was closed.
func (w *wire) raw(req kmsg.Request) []byte {
	w.t.Helper()
	w.send(frame(req, 1))
	head := make([]byte, 4)
	if _, err := io.ReadFull(w.nc, head); err != nil {
		return nil
	}
	body := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(w.nc, body); err != nil {
		w.t.Fatal(err)
	}
	return body
}

// To a client that has no right to a topic or a group, it makes no difference whether this exists:
// the answers have the same bytes.
func TestWhatAKeyMayNotSeeItIsNotToldOf(t *testing.T) {
	const hidden, none = "secret.b", "secret.x" // of one length
	g := guard(t, memory.New(), kafka.Config{}, false)
	g.createTopic("orders.a", 1, nil)
	id := g.createTopic(hidden, 2, map[string]string{"retention.ms": "77777"}).ID
	g.mustProduce(hidden, 0, sealed(t, batch.None, value("hidden")))
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 8, hidden, -1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = hidden, []kmsg.OffsetCommitRequestTopicPartition{{}}
	commit.Topics = append(commit.Topics, topic)
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](g.broker, commit).Topics[0].Partitions[0].ErrorCode, nil)
	commit.Group = "orders.g" // a group that the keys may see has an offset of a topic that they may not
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](g.broker, commit).Topics[0].Partitions[0].ErrorCode, nil)
	unknown := [16]byte{9, 9, 9, 9}
	rng := seeded(t)
	sent := func(user, secret string, req kmsg.Request) []byte {
		w := g.enter(user, secret)
		defer w.nc.Close()
		return w.raw(req)
	}

	for name, access := range map[string][]apikey.Access{"reads": {apikey.Read}, "writes": {apikey.Write}, "administers": {apikey.Admin}} {
		_, secret := g.key(apikey.Spec{Name: name, Access: access, Topics: []string{"orders."}})
		offsets := kmsg.NewPtrOffsetFetchRequest()
		offsets.Version, offsets.Group = 7, "orders.g"
		if answer := sent(name, secret, offsets); answer == nil || bytes.Contains(answer, []byte(hidden)) {
			t.Errorf("a key that %s learns of a topic from the offsets of its group: %q", name, answer)
		}
		for _, api := range g.versions() {
			key := kmsg.NameForKey(api.ApiKey)
			for _, version := range differing(rng, api) {
				mention := func(name string, id [16]byte) kmsg.Request {
					req := kmsg.RequestForKey(api.ApiKey)
					kafka.Mentions{Name: name, ID: id, Alone: true, Records: sealed(t, batch.None, value("new"))}.Fill(req, 0, 1)
					req.SetVersion(version)
					return req
				}
				there := sent(name, secret, mention(hidden, id))
				nowhere := sent(name, secret, mention(none, unknown))
				for _, name := range [][2][]byte{{[]byte(hidden), []byte(none)}, {id[:], unknown[:]}, {hexOf(id), hexOf(unknown)}} {
					there = bytes.ReplaceAll(there, name[0], name[1])
				}
				if !bytes.Equal(there, nowhere) {
					t.Errorf("a key that %s learns from %s version %d that something exists:\n%q\n%q", name, key, version, there, nowhere)
				}

				all := kmsg.RequestForKey(api.ApiKey)
				all.SetVersion(version)
				if produce, ok := all.(*kmsg.ProduceRequest); ok {
					produce.Acks = -1 // otherwise there is no answer
				}
				if answer := sent(name, secret, all); bytes.Contains(answer, []byte("secret")) || bytes.Contains(answer, id[:]) {
					t.Errorf("a key that %s learns names from %s version %d: %q", name, key, version, answer)
				}
			}
		}
	}
	if got := listed(t, g.broker, hidden); got != 1 {
		t.Errorf("the hidden topic ends at %d, want 1", got)
	}
	if _, err := g.log.Topic(t.Context(), none); err == nil {
		t.Error("a key made a topic that it may not make")
	}
}

func hexOf(id [16]byte) []byte { return []byte(hex.EncodeToString(id[:])) }

// What a key may do over HTTP it may do over Kafka, and no more.
func TestKeysScopesHoldOverKafka(t *testing.T) {
	alter := func(topic string) kmsg.Request {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Version = 1
		v := "86400000"
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: &v}}
		req.Resources = append(req.Resources, r)
		return req
	}
	describe := func(kind kmsg.ConfigResourceType, name string) kmsg.Request {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version = 4
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name}}
		return req
	}
	more := func(topic string) kmsg.Request {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Version = 3
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = topic, 2
		req.Topics = append(req.Topics, rt)
		return req
	}
	erase := func(topic string) kmsg.Request {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = 2
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 0}}}}
		return req
	}
	drop := func(topic string) kmsg.Request {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version, req.TopicNames = 5, []string{topic}
		return req
	}
	heartbeat := func(group string) kmsg.Request {
		req := kmsg.NewPtrHeartbeatRequest()
		req.Version, req.Group, req.MemberID = 4, group, "m"
		return req
	}
	dropGroup := func(group string) kmsg.Request {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Version, req.Groups = 2, []string{group}
		return req
	}
	committed := func(group, topic string) kmsg.Request {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.Group, req.Topics = 7, group, []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{0}}}
		return req
	}
	commit := func(group, topic string) kmsg.Request {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group, req.Generation = 8, group, -1
		req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{}}}}
		return req
	}
	forget := func(group, topic string) kmsg.Request {
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = group
		req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}
		return req
	}
	describeGroup := func(group string) kmsg.Request {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = 5, []string{group}
		return req
	}
	find := func(group string) kmsg.Request {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorKeys = 4, []string{group}
		return req
	}
	join := func(group string) kmsg.Request {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Version, req.Group, req.SessionTimeoutMillis, req.ProtocolType = 5, group, 10_000, "consumer"
		req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
		return req
	}
	sync := func(group string) kmsg.Request {
		req := kmsg.NewPtrSyncGroupRequest()
		req.Version, req.Group, req.MemberID = 3, group, "m"
		return req
	}
	leave := func(group string) kmsg.Request {
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Version, req.Group, req.MemberID = 2, group, "m"
		return req
	}
	producer := kmsg.NewPtrInitProducerIDRequest()
	producer.Version = 4
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	dirs.Version = 4

	memberIDNeeded := []int16{kerr.MemberIDRequired.Code}
	none, unknownMember, notFound := []int16(nil), []int16{kerr.UnknownMemberID.Code}, []int16{kerr.GroupIDNotFound.Code}
	noTopic, noGroup, noCluster := []int16{kerr.TopicAuthorizationFailed.Code}, []int16{kerr.GroupAuthorizationFailed.Code}, []int16{kerr.ClusterAuthorizationFailed.Code}
	g := guard(t, memory.New(), kafka.Config{NoAutoCreate: true}, false)
	for _, name := range []string{"orders.a", "other"} {
		g.createTopic(name, 1, nil)
	}
	secrets := make(map[string]string)
	for name, access := range map[string]apikey.Access{"reads": apikey.Read, "writes": apikey.Write, "administers": apikey.Admin} {
		_, secrets[name] = g.key(apikey.Spec{Name: name, Access: []apikey.Access{access}, Topics: []string{"orders."}})
	}
	_, secrets["everything"] = g.key(everything("everything"))
	batchOf := func() []byte { return sealed(t, batch.None, value("v")) }
	for _, c := range []struct {
		name                                      string
		req                                       func() kmsg.Request
		reads, writes, administers, mayEverything []int16
	}{
		{"produce", func() kmsg.Request { return produceRequest("orders.a", 0, batchOf()) }, noTopic, none, none, none},
		{"produce to another", func() kmsg.Request { return produceRequest("other", 0, batchOf()) }, noTopic, noTopic, noTopic, none},
		{"fetch", func() kmsg.Request { return fetchRequest("orders.a", 0, 0) }, none, noTopic, none, none},
		{"fetch from another", func() kmsg.Request { return fetchRequest("other", 0, 0) }, noTopic, noTopic, noTopic, none},
		{"metadata", func() kmsg.Request { return metadataRequest("orders.a") }, none, none, none, none},
		{"metadata of another", func() kmsg.Request { return metadataRequest("other") }, noTopic, noTopic, noTopic, none},
		{"list offsets", func() kmsg.Request { return listRequest("orders.a", 0, -1) }, none, none, none, none},
		{"a producer's id", func() kmsg.Request { return producer }, noCluster, none, none, none},
		{"settings", func() kmsg.Request { return describe(kmsg.ConfigResourceTypeTopic, "orders.a") }, none, noTopic, none, none},
		{"settings of the broker", func() kmsg.Request { return describe(kmsg.ConfigResourceTypeBroker, "1") }, noCluster, noCluster, noCluster, none},
		{"log directories", func() kmsg.Request { return dirs }, noCluster, noCluster, noCluster, none},
		{"heartbeat", func() kmsg.Request { return heartbeat("orders.g") }, unknownMember, noGroup, unknownMember, unknownMember},
		{"heartbeat of another", func() kmsg.Request { return heartbeat("g") }, noGroup, noGroup, noGroup, unknownMember},
		{"join", func() kmsg.Request { return join("orders.g") }, memberIDNeeded, noGroup, memberIDNeeded, memberIDNeeded},
		{"join another", func() kmsg.Request { return join("g") }, noGroup, noGroup, noGroup, memberIDNeeded},
		{"sync with another", func() kmsg.Request { return sync("g") }, noGroup, noGroup, noGroup, unknownMember},
		{"leave another", func() kmsg.Request { return leave("g") }, noGroup, noGroup, noGroup, unknownMember},
		{"find a coordinator", func() kmsg.Request { return find("orders.g") }, none, noGroup, none, none},
		{"find another's coordinator", func() kmsg.Request { return find("g") }, noGroup, noGroup, noGroup, none},
		{"describe another group", func() kmsg.Request { return describeGroup("g") }, noGroup, noGroup, noGroup, none},
		{"committed offsets", func() kmsg.Request { return committed("orders.h", "orders.a") }, none, noGroup, none, none},
		{"committed offsets of another topic", func() kmsg.Request { return committed("orders.h", "other") }, noTopic, noGroup, noTopic, none},
		{"committed offsets of another group", func() kmsg.Request { return committed("h", "orders.a") }, noGroup, noGroup, noGroup, none},
		{"commit", func() kmsg.Request { return commit("orders.h", "orders.a") }, none, noGroup, none, none},
		{"commit for another topic", func() kmsg.Request { return commit("orders.h", "other") }, noTopic, noGroup, noTopic, none},
		{"commit for another group", func() kmsg.Request { return commit("h", "orders.a") }, noGroup, noGroup, noGroup, none},
		{"delete offsets", func() kmsg.Request { return forget("orders.h", "orders.a") }, noGroup, noGroup, none, none},
		{"delete offsets of another group", func() kmsg.Request { return forget("h", "orders.a") }, noGroup, noGroup, noGroup, none},
		{"delete a group", func() kmsg.Request { return dropGroup("orders.g") }, noGroup, noGroup, notFound, notFound},
		{"change settings", func() kmsg.Request { return alter("orders.a") }, noTopic, noTopic, none, none},
		{"change settings of another", func() kmsg.Request { return alter("other") }, noTopic, noTopic, noTopic, none},
		{"delete records", func() kmsg.Request { return erase("orders.a") }, noTopic, noTopic, none, none},
		{"create", func() kmsg.Request { return createRequest("orders.new", 1, 1) }, noTopic, noTopic, none, []int16{kerr.TopicAlreadyExists.Code}},
		{"create another", func() kmsg.Request { return createRequest("new", 1, 1) }, noTopic, noTopic, noTopic, none},
		{"more partitions", func() kmsg.Request { return more("orders.a") }, noTopic, noTopic, none, []int16{kerr.InvalidPartitions.Code}},
		{"delete another", func() kmsg.Request { return drop("other") }, noTopic, noTopic, noTopic, none},
		{"delete", func() kmsg.Request { return drop("orders.a") }, noTopic, noTopic, none, []int16{kerr.UnknownTopicOrPartition.Code}},
	} {
		for _, who := range []struct {
			name string
			want []int16
		}{{"reads", c.reads}, {"writes", c.writes}, {"administers", c.administers}, {"everything", c.mayEverything}} {
			req := c.req()
			if got := errorsOf(tells[kmsg.Response](g.enter(who.name, secrets[who.name]), req)); !slices.Equal(got, who.want) {
				t.Errorf("%s, with the key %s: codes %v, want %v", c.name, who.name, got, who.want)
			}
		}
	}
}

// A client that may not create topics does not create them by asking for them.
func TestAskingForATopicNeedsTheRightToCreateIt(t *testing.T) {
	g := guard(t, memory.New(), kafka.Config{}, false)
	_, reads := g.key(apikey.Spec{Name: "reads", Access: []apikey.Access{apikey.Read}, Topics: []string{"orders."}})
	_, admin := g.key(apikey.Spec{Name: "admin", Access: []apikey.Access{apikey.Admin}, Topics: []string{"orders."}})
	asked := metadataRequest("orders.new")
	wantCode(t, "a reader", tells[*kmsg.MetadataResponse](g.enter("reads", reads), asked).Topics[0].ErrorCode, kerr.TopicAuthorizationFailed)
	wantCode(t, "an admin", tells[*kmsg.MetadataResponse](g.enter("admin", admin), asked).Topics[0].ErrorCode, nil)
}

// A name that is refused because of another topic's does not tell this name to a client that may
// not see it.
func TestCollidingNamesAreNotTold(t *testing.T) {
	g := guard(t, memory.New(), kafka.Config{}, false)
	g.createTopic("orders_eu", 1, nil)
	_, admin := g.key(apikey.Spec{Name: "admin", Access: []apikey.Access{apikey.Admin}, Topics: []string{"orders."}})
	_, all := g.key(everything("all"))
	for user, secret := range map[string]string{"admin": admin, "all": all} {
		made := tells[*kmsg.CreateTopicsResponse](g.enter(user, secret), createRequest("orders.eu", 1, 1)).Topics[0]
		wantCode(t, user, made.ErrorCode, kerr.InvalidTopicException)
		if told := strings.Contains(text(made.ErrorMessage), "orders_eu"); told != (user == "all") {
			t.Errorf("%s is told %q", user, text(made.ErrorMessage))
		}
	}
}

// The rights that an answer lists are those of the client.
func TestListedOperationsAreTheClientsOwn(t *testing.T) {
	g := guard(t, memory.New(), kafka.Config{}, false)
	g.createTopic("orders.a", 1, nil)
	_, reads := g.key(apikey.Spec{Name: "reads", Access: []apikey.Access{apikey.Read}, Topics: []string{"orders."}})
	req := metadataRequest("orders.a")
	req.Version, req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = 10, true, true
	got := tells[*kmsg.MetadataResponse](g.enter("reads", reads), req)
	const read, describe, describeConfigs = 1 << 3, 1 << 8, 1 << 10
	if got.Topics[0].AuthorizedOperations != read|describe|describeConfigs || got.AuthorizedOperations != 0 {
		t.Errorf("the topic's are %b, the cluster's %b", got.Topics[0].AuthorizedOperations, got.AuthorizedOperations)
	}
}
