package kafka_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/user"
)

// ruled is a broker with users and rules.
type ruled struct {
	*population
	acls *acl.ACLs
}

func rule(t *testing.T, store eventlog.Store, fake bool) *ruled {
	quiet := slog.New(slog.DiscardHandler)
	users, acls := user.New(everystore.Direct(store), quiet), acl.New(everystore.Direct(store), quiet)
	return &ruled{&population{guard(t, store, kafka.Config{Users: users, ACLs: acls, SuperUsers: []string{"User:admin"}}, fake), users}, acls}
}

// create stores rules about alice.
func (r *ruled) create(rules ...acl.Rule) {
	r.t.Helper()
	for _, one := range rules {
		if err := r.acls.Create(r.t.Context(), []acl.Binding{{Principal: "User:alice", Host: acl.Everywhere, Rule: one}})[0]; err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *ruled) as(name string, opts ...kgo.Opt) *kgo.Client {
	auth := scram.Auth{User: name, Pass: "right password"}
	return r.client(append([]kgo.Opt{kgo.SeedBrokers(r.door), kgo.SASL(auth.AsSha256Mechanism())}, opts...)...)
}

// KIP-140 with kadm as the administrator's client: alice gains rights by rules, and loses them.
func TestUserGainsAndLosesRightsByACLs(t *testing.T) {
	everystore.Run(t, func(t *testing.T, open func(*testing.T) eventlog.Store) {
		r := rule(t, open(t), false)
		defer r.stop()
		r.createTopic("orders", 1, nil)
		r.createTopic("hidden", 1, nil)
		r.add("admin", "right password")
		r.add("alice", "right password")
		admin := kadm.NewClient(r.as("admin"))
		produce := func() error {
			cl := r.as("alice", kgo.RecordRetries(0))
			defer cl.Close()
			return cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("one")}).FirstErr()
		}
		if produce() == nil {
			t.Fatal("alice may produce without a rule")
		}
		builder := func(ops ...kadm.ACLOperation) *kadm.ACLBuilder {
			return kadm.NewACLs().Allow("User:alice").AllowHosts("*").Topics("orders").Operations(ops...).ResourcePatternType(kadm.ACLPatternLiteral)
		}
		created, err := admin.CreateACLs(t.Context(), builder(kadm.OpRead, kadm.OpWrite).Groups("billing"))
		if err != nil || len(created) != 4 {
			t.Fatal(created, err)
		}
		for _, c := range created {
			if c.Err != nil {
				t.Fatal(c)
			}
		}
		if err := produce(); err != nil {
			t.Fatal(err)
		}
		alice := r.as("alice", kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if got := alice.PollFetches(t.Context()); got.Err() != nil || got.NumRecords() != 1 {
			t.Fatal(got.Errors(), got.NumRecords())
		}
		topics, err := kadm.NewClient(alice).ListTopics(t.Context())
		if err != nil || !topics.Has("orders") || topics.Has("hidden") {
			t.Errorf("alice sees %v: %v", topics.Names(), err)
		}
		find := kadm.NewACLs().Allow("User:alice").AllowHosts().Topics().Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny)
		described, err := admin.DescribeACLs(t.Context(), find)
		if err != nil || len(described) != 1 || len(described[0].Described) != 2 {
			t.Fatal(described, err)
		}
		alice.Close()
		deleted, err := admin.DeleteACLs(t.Context(), builder(kadm.OpWrite))
		if err != nil || len(deleted) != 1 || deleted[0].Err != nil || len(deleted[0].Deleted) != 1 {
			t.Fatal(deleted, err)
		}
		if produce() == nil {
			t.Error("alice may produce without the rule")
		}
		left, err := r.acls.List(t.Context(), acl.Filter{Kind: acl.Any, Pattern: acl.AnyPattern, Operation: acl.Any, Effect: acl.Any})
		if err != nil || len(left) != 3 {
			t.Errorf("left are %v: %v", left, err)
		}
	})
}

// A connection that is open gets and loses rights within 2 s, also when another process changes the
// rules.
func TestACLsHoldOnOpenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		r := rule(t, store, true)
		defer r.stop()
		for _, topic := range []string{"a", "ab", "abc", "b"} {
			r.createTopic(topic, 1, nil)
		}
		r.add("alice", "right password")
		w := r.knock()
		wantCode(t, "login", w.scram("alice", "right password").ErrorCode, nil)
		produce := func(topic string, want *kerr.Error) {
			t.Helper()
			out := tells[*kmsg.ProduceResponse](w, produceRequest(topic, 0, sealed(t, batch.None, value("v"))))
			wantCode(t, "produce to "+topic, out.Topics[0].Partitions[0].ErrorCode, want)
		}
		sees := func(want int) {
			t.Helper()
			all := kmsg.NewPtrMetadataRequest()
			all.Version = 12
			if got := tells[*kmsg.MetadataResponse](w, all); len(got.Topics) != want {
				t.Errorf("alice sees %d topics, want %d", len(got.Topics), want)
			}
		}
		produce("a", kerr.TopicAuthorizationFailed)
		sees(0)
		r.acls = acl.New(everystore.Direct(store), slog.New(slog.DiscardHandler)) // another process
		r.create(acl.Rule{Kind: acl.Topic, Name: "a", Prefixed: true, Operation: acl.Write})
		r.create(acl.Rule{Kind: acl.Topic, Name: "abc", Operation: acl.All, Deny: true})
		time.Sleep(2 * time.Second)
		produce("a", nil)
		produce("ab", nil)
		produce("abc", kerr.TopicAuthorizationFailed)
		produce("b", kerr.TopicAuthorizationFailed)
		sees(2)
		name := "a"
		gone := r.acls.Delete(t.Context(), []acl.Filter{{Kind: acl.Topic, Name: &name, Pattern: acl.Prefixed, Operation: acl.Any, Effect: acl.Any}})
		if gone[0].Err != nil || len(gone[0].Rules) != 1 {
			t.Fatal(gone)
		}
		time.Sleep(2 * time.Second)
		produce("a", kerr.TopicAuthorizationFailed)
		sees(0)
	})
}

func TestBadACLsAreRefused(t *testing.T) {
	r := rule(t, memory.New(), false)
	defer r.stop()
	good := kmsg.CreateACLsRequestCreation{
		ResourceType: kmsg.ACLResourceTypeTopic, ResourceName: "t", ResourcePatternType: kmsg.ACLResourcePatternTypeLiteral,
		Principal: "User:alice", Host: "*", Operation: kmsg.ACLOperationRead, PermissionType: kmsg.ACLPermissionTypeAllow,
	}
	req := kmsg.NewPtrCreateACLsRequest()
	req.Version = 3
	for _, change := range []func(c *kmsg.CreateACLsRequestCreation){
		func(c *kmsg.CreateACLsRequestCreation) { c.ResourceName = "" },
		func(c *kmsg.CreateACLsRequestCreation) { c.ResourceType = kmsg.ACLResourceTypeAny },
		func(c *kmsg.CreateACLsRequestCreation) { c.ResourceType = kmsg.ACLResourceTypeCluster },
		func(c *kmsg.CreateACLsRequestCreation) { c.ResourcePatternType = kmsg.ACLResourcePatternTypeMatch },
		func(c *kmsg.CreateACLsRequestCreation) { c.ResourcePatternType = kmsg.ACLResourcePatternTypeAny },
		func(c *kmsg.CreateACLsRequestCreation) { c.Principal = "alice" },
		func(c *kmsg.CreateACLsRequestCreation) { c.Principal = "User:" },
		func(c *kmsg.CreateACLsRequestCreation) { c.Host = "db.internal" },
		func(c *kmsg.CreateACLsRequestCreation) { c.Operation = kmsg.ACLOperationAny },
		func(c *kmsg.CreateACLsRequestCreation) { c.Operation = 99 },
		func(c *kmsg.CreateACLsRequestCreation) { c.PermissionType = kmsg.ACLPermissionTypeAny },
	} {
		bad := good
		change(&bad)
		req.Creations = append(req.Creations, bad)
	}
	req.Creations = append(req.Creations, good, good)
	for i, result := range ask[*kmsg.CreateACLsResponse](r.broker, req).Results {
		want := kerr.InvalidRequest
		if i >= len(req.Creations)-2 {
			want = nil
		}
		wantCode(t, req.Creations[i].Principal+": "+text(result.ErrorMessage), result.ErrorCode, want)
	}
	remove := kmsg.NewPtrDeleteACLsRequest()
	remove.Version = 3
	any := kmsg.DeleteACLsRequestFilter{ResourceType: 1, ResourcePatternType: 1, Operation: 1, PermissionType: 1}
	unknown := any
	unknown.Operation = 0
	remove.Filters = append(remove.Filters, unknown, any, any)
	got := ask[*kmsg.DeleteACLsResponse](r.broker, remove).Results
	wantCode(t, "an unknown filter", got[0].ErrorCode, kerr.InvalidRequest)
	if len(got[1].MatchingACLs) != 1 || len(got[2].MatchingACLs) != 1 {
		t.Errorf("deleted are %+v", got)
	}
}

// Users without rights can neither list nor change rules.
func TestOnlyAdministratorsAlterACLs(t *testing.T) {
	r := rule(t, memory.New(), false)
	defer r.stop()
	r.add("alice", "right password")
	w := r.knock()
	wantCode(t, "login", w.scram("alice", "right password").ErrorCode, nil)
	create, remove, describe := kmsg.NewPtrCreateACLsRequest(), kmsg.NewPtrDeleteACLsRequest(), kmsg.NewPtrDescribeACLsRequest()
	create.Version, remove.Version, describe.Version = 3, 3, 3
	create.Creations = append(create.Creations, kmsg.NewCreateACLsRequestCreation())
	remove.Filters = append(remove.Filters, kmsg.NewDeleteACLsRequestFilter())
	wantCode(t, "create", tells[*kmsg.CreateACLsResponse](w, create).Results[0].ErrorCode, kerr.ClusterAuthorizationFailed)
	wantCode(t, "delete", tells[*kmsg.DeleteACLsResponse](w, remove).Results[0].ErrorCode, kerr.ClusterAuthorizationFailed)
	wantCode(t, "describe", tells[*kmsg.DescribeACLsResponse](w, describe).ErrorCode, kerr.ClusterAuthorizationFailed)
}
