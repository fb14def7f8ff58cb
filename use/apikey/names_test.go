package apikey

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
)

// made is a key that was created, as a server knows it.
func made(t *testing.T, keys *Keys, s Spec) Identity {
	t.Helper()
	s.Name = "k"
	_, secret, err := keys.Create(t.Context(), s)
	check(t, err)
	id, err := keys.Check(t.Context(), secret)
	check(t, err)
	return id
}

// A name is for one topic, group or queue, and a prefix for all that begin so.
func TestANameIsNoPrefix(t *testing.T) {
	keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
	id := made(t, keys, Spec{Access: []Access{Read}, Topics: []string{"orders."}, TopicNames: []string{"mail"}, GroupNames: []string{"billing"}, QueueNames: []string{"jobs"}})
	rules := id.Rules()
	for name, want := range map[string][3]bool{ // topic, group, queue
		"mail": {true, false, false}, "orders.": {true, false, false}, "orders.eu": {true, false, false},
		"billing": {false, true, false}, "jobs": {false, false, true},
		"mail2": {}, "mail.dlt": {}, "mai": {}, "": {}, "orders": {}, "billing2": {}, "jobs2": {}, "jobs.dlt": {},
	} {
		if got := [3]bool{id.May(Read, name), id.MayGroup(Read, name), id.MayQueue(Read, name)}; got != want {
			t.Errorf("%q: it may read a topic, a group, a queue of this name: %v, want %v", name, got, want)
		}
		if topic, group := rules.May(acl.Read, acl.Topic, name), rules.May(acl.Read, acl.Group, name); topic != want[0] || group != want[1] {
			t.Errorf("%q: the rules say %v of a topic and %v of a group, want %v", name, topic, group, want)
		}
	}
	for _, r := range rules {
		if r.Prefixed != (r.Name == "orders.") {
			t.Errorf("a rule is %+v", r)
		}
	}
}

func TestNamesOfTopicsAreThoseOfGroupsAndQueuesUnlessSaid(t *testing.T) {
	keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
	for _, c := range []struct {
		spec                 Spec
		group, queue, others bool
	}{
		{Spec{TopicNames: []string{"mail"}}, true, true, false},
		{Spec{TopicNames: []string{"mail"}, GroupNames: []string{"g"}}, false, true, false},
		{Spec{TopicNames: []string{"mail"}, QueueNames: []string{"q"}}, true, false, false},
		{Spec{QueueNames: []string{"mail"}}, false, true, false},
		{Spec{Topics: []string{"mail"}}, true, true, true},
	} {
		c.spec.Access = []Access{Read}
		id := made(t, keys, c.spec)
		if id.MayGroup(Read, "mail") != c.group || id.MayQueue(Read, "mail") != c.queue || id.MayGroup(Read, "mail2") != c.others || id.MayQueue(Read, "mail2") != c.others {
			t.Errorf("%+v: the key is %+v", c.spec, id.key)
		}
	}
}

// What is listed for a key begins with one of these; none is listed twice.
func TestPrefixesOfWhatAKeyIsFor(t *testing.T) {
	id := Identity{Key{Groups: []string{"bc", "a", ""}, GroupNames: []string{"ab", "b", "bcd", ""}, QueueNames: []string{"mail"}}}
	if got := id.GroupPrefixes(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("groups: %q", got)
	}
	if got := id.QueuePrefixes(); !slices.Equal(got, []string{"mail"}) {
		t.Errorf("queues: %q", got)
	}
}

// A key in the store stays what it is. A version that knows only prefixes refuses a key with names:
// it does not take them for prefixes.
func TestNamesAreKeptWhereOlderVersionsDoNotTakeThemForPrefixes(t *testing.T) {
	store := memory.New()
	keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	older := func(id string) error { // as decode was
		var s struct {
			ID        string    `json:"id"`
			Name      string    `json:"name"`
			Access    []Access  `json:"access"`
			Created   time.Time `json:"created"`
			From      time.Time `json:"from,omitzero"`
			Expires   time.Time `json:"expires,omitzero"`
			Revoked   time.Time `json:"revoked,omitzero"`
			Topics    []string  `json:"topics,omitempty"`
			Groups    []string  `json:"groups,omitempty"`
			AllTopics bool      `json:"all_topics,omitempty"`
			AllGroups bool      `json:"all_groups,omitempty"`
			Queues    []string  `json:"queues,omitempty"`
			AllQueues bool      `json:"all_queues,omitempty"`
			SHA256    string    `json:"sha256"`
		}
		kvs, err := store.List(t.Context(), statePrefix+id, "", 1)
		check(t, err)
		if len(kvs) != 1 {
			t.Fatalf("key %s is not in the store", id)
		}
		d := json.NewDecoder(bytes.NewReader(kvs[0].Value))
		d.DisallowUnknownFields()
		return d.Decode(&s)
	}
	for _, c := range []struct {
		spec    Spec
		refused bool
	}{
		{Spec{Topics: []string{"mail"}}, false}, {Spec{AllQueues: true}, false},
		{Spec{TopicNames: []string{"mail"}}, true}, {Spec{Topics: []string{"mail"}, GroupNames: []string{"g"}}, true}, {Spec{QueueNames: []string{"mail"}}, true},
	} {
		c.spec.Access = []Access{Read}
		if err := older(made(t, keys, c.spec).ID()); (err != nil) != c.refused {
			t.Errorf("%+v: an older version says %v", c.spec, err)
		}
	}
	secret := "weir_aaaaaaaa_" + strings.Repeat("a", randomLength)
	value := fmt.Sprintf(`{"id":"aaaaaaaa","name":"a","access":["read"],"topics":["mail"],"groups":["mail"],"queues":["mail"],"created":"2026-01-31T08:00:00Z","sha256":"%x"}`, sha256.Sum256([]byte(secret)))
	_, err := store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: statePrefix + "aaaaaaaa", Version: 1, Value: []byte(value)}}}})
	check(t, err)
	id, err := New(everystore.Direct(store), slog.New(slog.DiscardHandler)).Check(t.Context(), secret)
	check(t, err)
	if !id.May(Read, "mail2") || !id.MayGroup(Read, "mail2") || !id.MayQueue(Read, "mail2") {
		t.Errorf("an old key's prefixes are none: %+v", id.key)
	}
}

// A key for metrics alone may do nothing else, also when it was read from the store.
func TestAKeyForMetricsAlone(t *testing.T) {
	keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
	id := made(t, keys, Spec{Access: []Access{Metrics}})
	if !id.MayMetrics() {
		t.Error("it may not read metrics")
	}
	for _, a := range []Access{Read, Write, Admin} {
		if id.Has(a) || id.May(a, "") || id.May(a, "orders") || id.MayGroup(a, "orders") || id.MayQueue(a, "orders") || id.Administers() {
			t.Errorf("it has the access %s to something: %+v", a, id.key)
		}
	}
	if rules := id.Rules(); len(rules) > 0 || id.key.AllTopics || id.key.AllGroups || id.key.AllQueues {
		t.Errorf("its rules are %+v, and the key is %+v", rules, id.key)
	}
	for name, c := range map[string]struct {
		spec Spec
		want bool
	}{
		"an admin of all":           {Spec{Access: []Access{Admin}, AllTopics: true, AllGroups: true}, true},
		"an admin of some topics":   {Spec{Access: []Access{Admin}, Topics: []string{"orders."}}, false},
		"a reader of all":           {Spec{Access: []Access{Read, Write}, AllTopics: true, AllGroups: true}, false},
		"a reader who may see them": {Spec{Access: []Access{Read, Metrics}, Topics: []string{"orders."}}, true},
	} {
		if id := made(t, keys, c.spec); id.MayMetrics() != c.want {
			t.Errorf("%s reads metrics: %v, want %v", name, !c.want, c.want)
		}
	}
}

// The audit says what else only administrators see.
func TestTheAuditIsForAdministratorsAndForWhoeverIsGivenIt(t *testing.T) {
	keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
	for name, c := range map[string]struct {
		spec Spec
		want bool
	}{
		"a reader of all":                     {Spec{Access: []Access{Read, Write}, AllTopics: true, AllGroups: true}, false},
		"a reader of all that begins so":      {Spec{Access: []Access{Read}, Topics: []string{"weir."}}, false},
		"an admin of all that begins so":      {Spec{Access: []Access{Admin}, Topics: []string{"w"}}, false},
		"an admin of all topics, some groups": {Spec{Access: []Access{Admin}, AllTopics: true, Groups: []string{"g"}}, false},
		"an admin of all, but some queues":    {Spec{Access: []Access{Admin}, AllTopics: true, AllGroups: true, Queues: []string{"q"}}, false},
		"an administrator":                    {Spec{Access: []Access{Admin}, AllTopics: true, AllGroups: true}, true},
		"a reader of the audit":               {Spec{Access: []Access{Read}, TopicNames: []string{eventlog.AuditTopic}}, true},
		"a reader of its whole name":          {Spec{Access: []Access{Read}, Topics: []string{eventlog.AuditTopic}}, true},
	} {
		id := made(t, keys, c.spec)
		rules := id.Rules()
		if id.May(Read, eventlog.AuditTopic) != c.want || rules.May(acl.Read, acl.Topic, eventlog.AuditTopic) != c.want || rules.May(acl.Describe, acl.Topic, eventlog.AuditTopic) != c.want {
			t.Errorf("%s: the key says %v, and the rules %+v; want %v", name, id.May(Read, eventlog.AuditTopic), rules, c.want)
		}
		if other := "weir.other"; id.May(Read, other) != rules.May(acl.Read, acl.Topic, other) || id.key.AllTopics && !id.May(Read, other) {
			t.Errorf("%s: another topic: %v, and the rules %+v", name, id.May(Read, other), rules)
		}
	}
}
