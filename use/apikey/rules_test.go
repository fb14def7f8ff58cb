package apikey

import (
	"log/slog"
	"testing"

	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
)

// Whoever asks for a single operation gets the answer that May and MayGroup give to those who ask
// for an access.
func TestRulesSayWhatTheKeySays(t *testing.T) {
	keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
	topicNeeds := map[acl.Operation]Access{acl.Read: Read, acl.DescribeConfigs: Read, acl.Write: Write, acl.Create: Admin, acl.Delete: Admin, acl.Alter: Admin, acl.AlterConfigs: Admin}
	groupNeeds := map[acl.Operation]Access{acl.Read: Read, acl.Describe: Read, acl.Delete: Admin}
	clusterNeeds := map[acl.Operation]Access{acl.Describe: Read, acl.Create: Admin}
	checked := 0
	for _, access := range [][]Access{{Read}, {Write}, {Admin}, {Read, Write}} {
		for _, scope := range []Spec{
			{AllTopics: true, AllGroups: true},
			{AllTopics: true, AllGroups: true, Queues: []string{"q"}},
			{AllTopics: true, Groups: []string{"g"}},
			{Topics: []string{"a", "orders."}},
			{Topics: []string{"a"}, AllGroups: true},
			{Queues: []string{"q"}},
			{TopicNames: []string{"a"}, Topics: []string{"orders."}, GroupNames: []string{"g1"}},
			{Topics: []string{"weir."}},
			{Topics: []string{"weir.audit"}},
			{TopicNames: []string{"weir.audit"}},
		} {
			scope.Name, scope.Access = "k", access
			_, secret, err := keys.Create(t.Context(), scope)
			check(t, err)
			id, err := keys.Check(t.Context(), secret)
			check(t, err)
			rules := id.Rules()
			for _, name := range []string{"a", "ab", "orders.eu", "orders", "g1", "g12", "x", "*", "q", "weir.audit", "weir.auditor"} {
				for op, need := range topicNeeds {
					if got, want := rules.May(op, acl.Topic, name), id.May(need, name); got != want {
						t.Errorf("%+v: %s on topic %s: the rules say %v, the key %v", scope, op, name, got, want)
					}
				}
				for op, need := range groupNeeds {
					if got, want := rules.May(op, acl.Group, name), id.MayGroup(need, name); got != want {
						t.Errorf("%+v: %s on group %s: the rules say %v, the key %v", scope, op, name, got, want)
					}
				}
				if got, want := rules.May(acl.Describe, acl.Topic, name), id.May(Read, name) || id.May(Write, name); got != want {
					t.Errorf("%+v: DESCRIBE on topic %s: the rules say %v, the key %v", scope, name, got, want)
				}
				checked++
			}
			for op, need := range clusterNeeds {
				if got, want := rules.May(op, acl.Cluster, acl.ClusterName), id.May(need, ""); got != want {
					t.Errorf("%+v: %s on the cluster: the rules say %v, the key %v", scope, op, got, want)
				}
			}
			for _, op := range []acl.Operation{acl.Alter, acl.AlterConfigs} {
				if got, want := rules.May(op, acl.Cluster, acl.ClusterName), id.Administers(); got != want {
					t.Errorf("%+v: %s on the cluster: the rules say %v, the key %v", scope, op, got, want)
				}
			}
		}
	}
	if checked == 0 {
		t.Error("nothing was checked")
	}
}
