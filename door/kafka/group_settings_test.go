package kafka_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
)

// groupChange is a request to change settings of a group; a value of nil deletes.
func groupChange(group string, values map[string]*string) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for name, value := range values {
		one := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		one.Name, one.Value = name, value
		if value == nil {
			one.Op = kmsg.IncrementalAlterConfigOpDelete
		}
		r.Configs = append(r.Configs, one)
	}
	req.Resources = append(req.Resources, r)
	return req
}

func describeGroupConfig(group string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms = 4, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	req.Resources = append(req.Resources, r)
	return req
}

// configsShown is each setting as an answer has it: its value, and where that and the synonyms are
// from.
func configsShown(r kmsg.DescribeConfigsResponseResource) map[string]string {
	all := make(map[string]string)
	for _, c := range r.Configs {
		all[c.Name] = fmt.Sprint(text(c.Value), " ", c.Source)
		for _, s := range c.ConfigSynonyms {
			all[c.Name] += fmt.Sprint(", ", s.Name, " ", text(s.Value), " ", s.Source)
		}
	}
	return all
}

const (
	ownSession   = "consumer.session.timeout.ms"
	ownHeartbeat = "consumer.heartbeat.interval.ms"
)

func TestSettingsOfAGroupAreKeptAndShown(t *testing.T) {
	store := memory.New()
	b := startOn(t, store, kafka.Config{})
	alter := func(req *kmsg.IncrementalAlterConfigsRequest, want *kerr.Error) {
		t.Helper()
		wantCode(t, "alter", ask[*kmsg.IncrementalAlterConfigsResponse](b, req).Resources[0].ErrorCode, want)
	}
	show := func() map[string]string {
		return configsShown(ask[*kmsg.DescribeConfigsResponse](b, describeGroupConfig("g")).Resources[0])
	}
	listed := func() (names []string) {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.Version, req.ResourceTypes = 1, []int8{int8(kmsg.ConfigResourceTypeGroupConfig)}
		for _, r := range ask[*kmsg.ListConfigResourcesResponse](b, req).ConfigResources {
			names = append(names, r.Name)
		}
		return names
	}
	const byDefault = "45000 DEFAULT_CONFIG, group.consumer.session.timeout.ms 45000 DEFAULT_CONFIG"
	if got := show()[ownSession]; got != byDefault {
		t.Errorf("without settings it shows %q, want %q", got, byDefault)
	}
	dry := groupChange("g", map[string]*string{ownSession: new("50000")})
	dry.ValidateOnly = true
	alter(dry, nil)
	if got := listed(); len(got) != 0 {
		t.Errorf("what was only validated is there: %v", got)
	}
	alter(groupChange("g", map[string]*string{ownSession: new("50000"), ownHeartbeat: new("7000")}), nil)
	b.stop()
	b = startOn(t, store, kafka.Config{})
	if got, want := show()[ownSession], "50000 GROUP_CONFIG, "+ownSession+" 50000 GROUP_CONFIG, group.consumer.session.timeout.ms 45000 DEFAULT_CONFIG"; got != want {
		t.Errorf("it shows %q, want %q", got, want)
	}
	if got := listed(); !slices.Equal(got, []string{"g"}) {
		t.Errorf("the groups with settings are %v", got)
	}
	for name, value := range map[string]string{ownSession: "44999", ownHeartbeat: "15001", "share.auto.offset.reset": "earliest", "consumer.rebalance": ""} {
		alter(groupChange("g", map[string]*string{name: &value}), kerr.InvalidConfig)
	}
	alter(groupChange("", map[string]*string{ownSession: new("50000")}), kerr.InvalidRequest)
	alter(groupChange("g", map[string]*string{ownSession: nil}), nil)
	if got := show()[ownSession]; got != byDefault {
		t.Errorf("after the setting was deleted it shows %q, want %q", got, byDefault)
	}
	alter(groupChange("g", map[string]*string{ownHeartbeat: nil}), nil)
	if got := listed(); len(got) != 0 {
		t.Errorf("without settings the groups are %v", got)
	}
}

// The settings hold at every broker, for members that are there and those that come.
func TestMembersHearTheSettingsOfTheirGroup(t *testing.T) {
	store := memory.New()
	b, other := startOn(t, store, kafka.Config{}), startOn(t, store, kafka.Config{})
	createTopic(t, b)
	one := b.member(t, "one")
	if got := one.join().HeartbeatIntervalMillis; got == 9000 {
		t.Errorf("the interval is %d before anybody has set it", got)
	}
	one.settle(4)
	wantCode(t, "alter", ask[*kmsg.IncrementalAlterConfigsResponse](other, groupChange("g", map[string]*string{ownHeartbeat: new("9000"), ownSession: new("60000")})).Resources[0].ErrorCode, nil)
	for late := time.Now().Add(20 * time.Second); one.send(one.short(), nil).HeartbeatIntervalMillis != 9000; {
		if time.Now().After(late) {
			t.Fatal("the other broker does not obey the setting")
		}
	}
	groups, err := other.log.Get(t.Context(), "group/state/g")
	if err != nil {
		t.Fatal(err)
	}
	if want := `60000`; !strings.Contains(string(groups.Value), want) {
		t.Errorf("the group's state does not say %s: %s", want, groups.Value)
	}
}

func TestSettingsOfAGroupNeedRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		r := rule(t, store, true)
		defer r.stop()
		r.add("alice", "right password")
		w := r.knock()
		wantCode(t, "login", w.scram("alice", "right password").ErrorCode, nil)
		alter := func(want *kerr.Error) {
			t.Helper()
			wantCode(t, "alter", tells[*kmsg.IncrementalAlterConfigsResponse](w, groupChange("g", map[string]*string{ownSession: new("50000")})).Resources[0].ErrorCode, want)
		}
		describe := func(want *kerr.Error) {
			t.Helper()
			wantCode(t, "describe", tells[*kmsg.DescribeConfigsResponse](w, describeGroupConfig("g")).Resources[0].ErrorCode, want)
		}
		alter(kerr.GroupAuthorizationFailed)
		describe(kerr.GroupAuthorizationFailed)
		r.acls = acl.New(everystore.Direct(store), slog.New(slog.DiscardHandler)) // another process
		r.create(acl.Rule{Kind: acl.Group, Name: "g", Operation: acl.DescribeConfigs})
		time.Sleep(2 * time.Second) // fake time: the rules are read again
		alter(kerr.GroupAuthorizationFailed)
		describe(nil)
		r.create(acl.Rule{Kind: acl.Group, Name: "g", Operation: acl.AlterConfigs})
		time.Sleep(2 * time.Second)
		alter(nil)
	})
}
