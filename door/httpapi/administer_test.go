package httpapi

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/user"
)

// changes are requests that would give their client every right, or take it from others.
var changes = [][3]string{
	{"POST", "/v1/keys", `{"name": "mine", "access": ["admin"], "all_topics": true, "all_groups": true}`},
	{"POST", "/v1/keys/KEY/rotate", ""},
	{"DELETE", "/v1/keys/KEY", ""},
	{"POST", "/v1/users", `{"name": "mine", "password": "a long password", "iterations": 4096}`},
	{"PUT", "/v1/users/admin/password", `{"password": "another password", "iterations": 4096}`},
	{"DELETE", "/v1/users/admin", ""},
	{"POST", "/v1/acls", `{"principal": "User:*", "effect": "allow", "operation": "all", "resource_type": "cluster"}`},
	{"DELETE", "/v1/acls?principal=User:alice", ""},
	{"PATCH", "/v1/quotas", `{"default_user": true, "limits": {"producer_byte_rate": 1}}`},
	{"DELETE", "/v1/quotas?user=bob", ""},
	{"GET", "/v1/keys", ""}, {"GET", "/v1/keys/KEY", ""}, {"GET", "/v1/users", ""}, {"GET", "/v1/users/admin", ""}, {"GET", "/v1/acls", ""}, {"GET", "/v1/quotas", ""},
}

// Nobody but an administrator sees or changes who may do what, not even whoever may do nearly
// everything; and nothing has changed after it was refused.
func TestOnlyAdministratorsManageAccess(t *testing.T) {
	door := lock(t, Config{SuperUsers: []string{"User:admin"}})
	root, secret := door.key(t, apikey.Spec{Access: admins})
	super := door.user(t, "admin")
	door.rule(t, "alice", "read topic orders.eu")
	if err := door.server.cfg.Quotas.Change(t.Context(), []quota.Change{{Entity: quota.Entity{User: quota.Named("bob")}, Set: map[quota.Kind]float64{quota.ProducerByteRate: 5}}})[0]; err != nil {
		t.Fatal(err)
	}
	all := []string{"orders", "users"}
	clients := map[string]string{"nobody": ""}
	for name, spec := range map[string]apikey.Spec{
		"a reader of everything":             {Access: []apikey.Access{apikey.Read}},
		"a writer of everything":             {Access: []apikey.Access{apikey.Write}},
		"a reader and writer of everything":  {Access: []apikey.Access{apikey.Read, apikey.Write}},
		"an admin of all topics, some group": {Access: admins, Groups: []string{"billing"}},
		"an admin of all topics, some queue": {Access: admins, Queues: []string{"mail"}, AllTopics: true, AllGroups: true},
		"an admin of topics":                 {Access: admins, Topics: all},
		"an admin of topics and all groups":  {Access: admins, Topics: all, AllGroups: true, AllQueues: true},
		"an admin of queues":                 {Access: admins, Queues: []string{"mail"}},
		"an admin of all queues":             {Access: admins, AllQueues: true},
	} {
		spec.Name = "test"
		if len(spec.Topics)+len(spec.Queues) == 0 && !spec.AllQueues {
			spec.AllTopics, spec.AllGroups = true, len(spec.Groups) == 0
		}
		_, made, err := door.keys.Create(t.Context(), spec)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		clients[name] = "Bearer " + made
	}
	for name, rules := range map[string][]string{
		"a user": nil, "a user who may read all": {"read topic *", "read group *"}, "a user of all topics and groups": {"all topic *", "all group *"},
		"a user who may describe the cluster": {"describe cluster kafka-cluster", "describe_configs cluster kafka-cluster"},
		"a user who may create topics":        {"create cluster kafka-cluster", "alter_configs cluster kafka-cluster", "cluster_action cluster kafka-cluster"},
		"a user who is kept from it":          {"all cluster kafka-cluster", "deny alter cluster kafka-cluster"},
	} {
		clients[name] = door.user(t, strings.ReplaceAll(name, " ", "-"))
		door.rule(t, strings.ReplaceAll(name, " ", "-"), rules...)
	}
	before := door.stored(t)
	for name, auth := range clients {
		for _, c := range changes {
			headers := []string{"Content-Type", "application/json"}
			want := 401
			if auth != "" {
				headers, want = append(headers, "Authorization", auth), 403
			}
			if w := door.ask(elsewhere, c[0], strings.ReplaceAll(c[1], "KEY", root), c[2], headers...); w.Code != want || strings.Contains(w.Body.String(), root) {
				t.Errorf("%s, %s %s: %d %s, want %d", name, c[0], c[1], w.Code, w.Body, want)
			}
		}
	}
	if after := door.stored(t); after != before {
		t.Errorf("what was refused changed the store from\n%s\nto\n%s", before, after)
	}
	altering := door.user(t, "altering")
	door.rule(t, "altering", "alter cluster kafka-cluster")
	for name, auth := range map[string]string{"an administrator's key": "Bearer " + secret, "a super user": super, "a user who may alter the cluster": altering} {
		for _, c := range changes[10:] {
			if w := door.as(auth, c[0], strings.ReplaceAll(c[1], "KEY", root), ""); w.Code != 200 {
				t.Errorf("%s, %s %s: %d %s", name, c[0], c[1], w.Code, w.Body)
			}
		}
	}
}

// stored is all that the store has of keys, users, rules and quotas.
func (l *locked) stored(t *testing.T) (text string) {
	t.Helper()
	for _, prefix := range []string{"apikey/", "scram/", "acl/", "quota/"} {
		kvs, err := l.store.List(t.Context(), prefix, "", 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range kvs {
			text += fmt.Sprintf("%s %d %s\n", kv.Key, kv.Version, kv.Value)
		}
	}
	return text
}

// A process without keys, users, rules and quotas says so, and does not fail.
func TestAServerWithoutKeysHasNoneToManage(t *testing.T) {
	door := lock(t, Config{})
	s := door.server
	s.cfg.Keys, s.cfg.Users, s.cfg.ACLs, s.cfg.Quotas = nil, nil, nil, nil
	for _, c := range changes {
		if w := door.ask(hereToo, c[0], c[1], c[2], "Content-Type", "application/json"); w.Code != 404 {
			t.Errorf("%s %s: %d %s", c[0], c[1], w.Code, w.Body)
		}
	}
}

// A user whom ACLs keep from everything else administers with ALTER on the cluster alone, as over
// Kafka; and loses it with the rule.
func TestAnAdministratorIsOneWhileTheRuleStands(t *testing.T) {
	door := lock(t, Config{})
	auth := door.user(t, "ops")
	if w := door.as(auth, "GET", "/v1/acls", ""); w.Code != 403 {
		t.Errorf("without a rule: %d", w.Code)
	}
	door.rule(t, "ops", "alter cluster kafka-cluster")
	if w := door.as(auth, "GET", "/v1/acls", ""); w.Code != 200 {
		t.Errorf("with the rule: %d %s", w.Code, w.Body)
	}
	principal := "User:ops"
	if w := door.as(auth, "DELETE", "/v1/acls?principal="+principal, ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"operation":"alter"`) {
		t.Errorf("it takes its own rule away: %d %s", w.Code, w.Body)
	}
	if left, err := door.acls.List(t.Context(), acl.Filter{Kind: acl.Any, Pattern: acl.Match, Operation: acl.Any, Effect: acl.Any, Principal: &principal}); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if w := door.as(auth, "GET", "/v1/acls", ""); w.Code != 403 {
		t.Errorf("without the rule again: %d", w.Code)
	}
}

// knownAfter is fake time after which every request knows of a change: one of many at the same time
// reads it, and the others wait for that only if what they know is older than recent's patience.
const knownAfter = 6 * time.Second

// Whoever may no longer do something while the body of a request arrives does not do it: a client
// that holds bodies back has no rights in reserve.
func TestRightsThatEndWhileABodyArrivesAreNotUsed(t *testing.T) {
	requests := append([][3]string{{"POST", ordersPublish, "x"}, {"POST", "/v1/topics", `{"name": "mine", "partitions": 1}`}}, changes[:10]...)
	for name, end := range map[string]func(*testing.T, *locked) (auth string, end func() error, want int){
		"a key is revoked": func(t *testing.T, door *locked) (string, func() error, int) {
			id, secret := door.key(t, apikey.Spec{Access: admins})
			return "Bearer " + secret, func() error { _, err := door.keys.Revoke(t.Context(), id); return err }, 401
		},
		"a user is deleted": func(t *testing.T, door *locked) (string, func() error, int) {
			auth := door.user(t, "ops")
			door.rule(t, "ops", "all cluster kafka-cluster", "all topic *")
			return auth, func() error { return door.users.Change(t.Context(), []user.Change{{Name: "ops", Clear: true}})[0] }, 401
		},
		"a rule is deleted": func(t *testing.T, door *locked) (string, func() error, int) {
			auth, principal := door.user(t, "ops"), "User:ops"
			door.rule(t, "ops", "all cluster kafka-cluster", "all topic *")
			all := acl.Filter{Kind: acl.Any, Pattern: acl.Match, Operation: acl.Any, Effect: acl.Any, Principal: &principal}
			return auth, func() error { return door.acls.Delete(t.Context(), []acl.Filter{all})[0].Err }, 403
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				door := lock(t, Config{})
				root, _ := door.key(t, apikey.Spec{Access: admins})
				door.user(t, "admin")
				auth, end, want := end(t, door)
				type held struct {
					what string
					rest func()
					w    *httptest.ResponseRecorder
				}
				var all []held
				var answered sync.WaitGroup
				for _, c := range requests {
					if c[0] == "DELETE" {
						continue // has no body
					}
					body, send := io.Pipe()
					r := httptest.NewRequestWithContext(t.Context(), c[0], "http://127.0.0.1:8080"+strings.ReplaceAll(c[1], "KEY", root), body)
					r.RemoteAddr = elsewhere
					r.Header.Set("Authorization", auth)
					if c[1] != ordersPublish {
						r.Header.Set("Content-Type", "application/json")
					}
					w := httptest.NewRecorder()
					answered.Go(func() {
						door.ServeHTTP(w, r)
						_ = body.Close() // of a body that nobody reads
					})
					all = append(all, held{c[0] + " " + c[1], func() { _, _ = io.WriteString(send, c[2]); _ = send.Close() }, w})
				}
				synctest.Wait()
				if err := end(); err != nil {
					t.Fatal(err)
				}
				before := door.stored(t)
				time.Sleep(knownAfter)
				for _, h := range all {
					h.rest()
				}
				answered.Wait()
				for _, h := range all {
					if h.w.Code != want {
						t.Errorf("%s: %d %s, want %d", h.what, h.w.Code, h.w.Body, want)
					}
				}
				if after := door.stored(t); after != before {
					t.Errorf("the store changed from\n%s\nto\n%s", before, after)
				}
			})
		})
	}
}

// Whoever may no longer do something while a new password waits for its turn does not do it.
func TestRightsThatEndWhileAPasswordWaitsAreNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		id, secret := door.key(t, apikey.Spec{Access: admins})
		door.user(t, "admin")
		for i := range door.server.checks.most {
			if err := door.server.checks.acquire(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		answers := make(chan *httptest.ResponseRecorder)
		for _, c := range [][3]string{changes[3], changes[4]} {
			go func() {
				answers <- door.ask(elsewhere, c[0], c[1], c[2], "Authorization", "Bearer "+secret, "Content-Type", "application/json")
			}()
		}
		synctest.Wait()
		if _, err := door.keys.Revoke(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		before := door.stored(t)
		time.Sleep(knownAfter)
		for i := range door.server.checks.most {
			door.server.checks.release(fmt.Sprint(i))
		}
		for range 2 {
			if w := <-answers; w.Code != 401 {
				t.Errorf("%d %s, want 401", w.Code, w.Body)
			}
		}
		if after := door.stored(t); after != before {
			t.Errorf("the store changed from\n%s\nto\n%s", before, after)
		}
	})
}
