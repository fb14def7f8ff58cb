package httpapi

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/group"
)

// bearer asks with a key, as JSON.
func (l *locked) bearer(secret, method, target, body string) *httptest.ResponseRecorder {
	return l.ask(elsewhere, method, target, body, "Authorization", "Bearer "+secret, "Content-Type", "application/json")
}

func (l *locked) join(t *testing.T, secret, group string) (location string) {
	t.Helper()
	w := l.bearer(secret, "POST", "/v1/groups/"+group+"/members", `{"topics":["orders.eu"]}`)
	if w.Code != 201 {
		t.Fatalf("join: %d %s", w.Code, w.Body)
	}
	return w.Header().Get("Location")
}

var (
	reads  = []apikey.Access{apikey.Read}
	admins = []apikey.Access{apikey.Admin}
)

// Every route that names a group, and every one to come, is for keys that reach the group.
func TestGroupsAreForTheirKeys(t *testing.T) {
	door := lock(t, Config{})
	_, root := door.key(t, apikey.Spec{Access: admins})
	for group, path := range map[string]string{"orders.report": "orders.report", "orders./ü": "orders.%2F%C3%BC"} {
		member := door.join(t, root, path)
		at := "/v1/groups/" + path
		type step struct {
			pattern, path, body string
			admin               bool
			want                int // of a key in its rights
		}
		steps := []step{
			{"GET /v1/groups/{group}", at, "", false, 200},
			{"GET /v1/groups/{group}/offsets", at + "/offsets", "", false, 200},
			{"GET /v1/groups/{group}/members/{member}/events", member + "/events", "", false, 200},
			{"POST /v1/groups/{group}/members/{member}/commit", member + "/commit", `{"offsets":[{"topic":"orders.eu","partition":0,"offset":0}]}`, false, 204},
			{"POST /v1/groups/{group}/members", at + "/members", `{"topics":["orders.eu"]}`, false, 201},
			{"DELETE /v1/groups/{group}/members/{member}", "", "", false, 204}, // of one that joins for it
			{"PUT /v1/groups/{group}/offsets", at + "/offsets", `{"offsets":[{"topic":"orders.eu","offset":"latest"}]}`, true, 409},
			{"DELETE /v1/groups/{group}", at, "", true, 409},
		}
		for _, rt := range api {
			pattern, _, _ := strings.Cut(rt.pattern, "?")
			if strings.Contains(pattern, "{group}") && !slices.ContainsFunc(steps, func(s step) bool { return s.pattern == pattern }) {
				t.Errorf("%s is not tried", rt.pattern)
			}
		}
		for _, c := range []struct {
			name string
			spec apikey.Spec
			in   bool
		}{
			{"all topics and groups", apikey.Spec{Access: reads}, true},
			{"groups as its topics", apikey.Spec{Access: reads, Topics: []string{"orders."}}, true},
			{"groups of its own", apikey.Spec{Access: reads, Topics: []string{"orders.eu"}, Groups: []string{"billing.", "orders."}}, true},
			{"all topics, some groups", apikey.Spec{Access: reads, Groups: []string{"orders."}}, true},
			{"an admin of them", apikey.Spec{Access: admins, Topics: []string{"orders."}}, true},
			{"an admin", apikey.Spec{Access: admins}, true},
			{"other topics", apikey.Spec{Access: reads, Topics: []string{"users"}}, false},
			{"these topics and other groups", apikey.Spec{Access: reads, Topics: []string{"orders."}, Groups: []string{"billing."}}, false},
			{"all topics and other groups", apikey.Spec{Access: reads, Groups: []string{"orders.reports"}}, false},
			{"an admin of other groups", apikey.Spec{Access: admins, Groups: []string{"billing."}}, false},
			{"an admin of other topics", apikey.Spec{Access: admins, Topics: []string{"users"}}, false},
			{"a writer of them", apikey.Spec{Access: []apikey.Access{apikey.Write}, Groups: []string{"orders."}}, false},
		} {
			_, secret := door.key(t, c.spec)
			for _, step := range steps {
				method, _, _ := strings.Cut(step.pattern, " ")
				if step.path == "" {
					step.path = door.join(t, root, path)
				}
				want := step.want
				if !c.in || step.admin && !slices.Contains(c.spec.Access, apikey.Admin) {
					want = 403
				}
				w := door.bearer(secret, method, step.path, step.body)
				if w.Code != want {
					t.Errorf("a key for %s, %s, group %s: %d %s, want %d", c.name, step.pattern, group, w.Code, w.Body, want)
				}
				for _, guest := range []string{w.Header().Get("Location"), step.path} {
					if strings.Contains(guest, "/members/") && !strings.HasPrefix(guest, member) {
						door.bearer(root, "DELETE", guest, "")
					}
				}
			}
			var list struct{ Groups []struct{ Name string } }
			if w := door.bearer(secret, "GET", "/v1/groups", ""); w.Code == 200 {
				if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
					t.Fatalf("%v: %s", err, w.Body)
				}
			}
			seen := false
			for _, g := range list.Groups {
				seen = seen || g.Name == group
			}
			if seen != c.in {
				t.Errorf("a key for %s: group %s is in its list: %v, want %v", c.name, group, seen, c.in)
			}
			if c.in != (len(list.Groups) > 0) {
				t.Errorf("a key for %s lists %v", c.name, list.Groups)
			}
		}
		door.bearer(root, "DELETE", member, "")
		_, local := door.key(t, apikey.Spec{Access: admins, Topics: []string{"orders."}})
		if w := door.bearer(local, "PUT", at+"/offsets", `{"offsets":[{"topic":"users","offset":"latest"}]}`); w.Code != 403 {
			t.Errorf("reset in a topic of others: %d %s, want 403", w.Code, w.Body)
		}
		if w := door.bearer(local, "PUT", at+"/offsets", `{"offsets":[{"topic":"orders.eu","offset":"latest"}]}`); w.Code != 200 {
			t.Errorf("reset: %d %s", w.Code, w.Body)
		}
		if w := door.bearer(local, "DELETE", at, ""); w.Code != 204 {
			t.Errorf("delete: %d %s", w.Code, w.Body)
		}
	}
}

// A group may read topics that are not for everybody who may look at the group.
func TestGroupShowsNoTopicsOfOthers(t *testing.T) {
	door := lock(t, Config{})
	_, root := door.key(t, apikey.Spec{Access: admins})
	_, reader := door.key(t, apikey.Spec{Access: reads, Topics: []string{"orders."}})
	w := door.bearer(root, "POST", "/v1/groups/orders.all/members", `{"topics":["orders.eu","users"]}`)
	if w.Code != 201 {
		t.Fatalf("join: %d %s", w.Code, w.Body)
	}
	member := w.Header().Get("Location")
	if w := door.bearer(root, "POST", member+"/commit", `{"offsets":[{"topic":"orders.eu","partition":0,"offset":0},{"topic":"users","partition":0,"offset":0}]}`); w.Code != 204 {
		t.Fatalf("commit: %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/v1/groups/orders.all", "/v1/groups/orders.all/offsets"} {
		if w := door.bearer(root, "GET", path, ""); !strings.Contains(w.Body.String(), "orders.eu") || !strings.Contains(w.Body.String(), "users") {
			t.Errorf("%s shows an admin %d %s", path, w.Code, w.Body)
		}
		if w := door.bearer(reader, "GET", path, ""); !strings.Contains(w.Body.String(), "orders.eu") || strings.Contains(w.Body.String(), "users") {
			t.Errorf("%s shows %d %s", path, w.Code, w.Body)
		}
	}
	if w := door.bearer(reader, "GET", member+"/events", ""); w.Code != 403 {
		t.Errorf("events of the member: %d %s, want 403", w.Code, w.Body)
	}
}

func TestKeyLeavesSeatsToOthers(t *testing.T) {
	door := lock(t, Config{}.With(Limits{Members: 8}))
	id, greedy := door.key(t, apikey.Spec{Access: reads})
	_, other := door.key(t, apikey.Spec{Access: reads})
	for range 5 { // what is refused counts for no key
		if w := door.bearer(greedy, "POST", "/v1/groups/g/members", `{"topics":["a/b"]}`); w.Code != 400 {
			t.Fatalf("%d %s, want 400", w.Code, w.Body)
		}
	}
	got := make(chan *httptest.ResponseRecorder, 20)
	var joining sync.WaitGroup
	for range cap(got) {
		joining.Go(func() { got <- door.bearer(greedy, "POST", "/v1/groups/g/members", `{"topics":["orders.eu"]}`) })
	}
	joining.Wait()
	close(got)
	var mine []string
	for w := range got {
		if w.Code == 201 {
			mine = append(mine, w.Header().Get("Location"))
			continue
		}
		var p problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 429 || p.Type != problemPrefix+"too_many_members" || p.Limit != 2 ||
			!strings.Contains(p.Detail, id) || !strings.Contains(p.Detail, "has 2 members") || !strings.Contains(p.Detail, "2 of the 8") {
			t.Errorf("a member too many: %d %s %v", w.Code, w.Body, err)
		}
	}
	if len(mine) != 2 {
		t.Fatalf("of 8 members one key has %d, want 2", len(mine))
	}
	door.join(t, other, "g")
	door.join(t, other, "h")
	if w := door.bearer(greedy, "DELETE", mine[0], ""); w.Code != 204 {
		t.Fatalf("leave: %d %s", w.Code, w.Body)
	}
	door.join(t, greedy, "g")
	if w := door.bearer(greedy, "POST", "/v1/groups/h/members", `{"topics":["orders.eu"]}`); w.Code != 429 {
		t.Errorf("again one too many: %d %s, want 429", w.Code, w.Body)
	}
}

// Without keys all clients count as one, without a limit per key.
func TestSeatsWithoutKeys(t *testing.T) {
	door := lock(t, Config{}.With(Limits{Members: 4}))
	for range 4 {
		if w := door.ask(hereToo, "POST", "/v1/groups/g/members", `{"topics":["orders.eu"]}`, "Content-Type", "application/json"); w.Code != 201 {
			t.Fatalf("join: %d %s", w.Code, w.Body)
		}
	}
	if w := door.ask(hereToo, "POST", "/v1/groups/g/members", `{"topics":["orders.eu"]}`, "Content-Type", "application/json"); w.Code != 503 {
		t.Errorf("a member too many: %d %s, want 503", w.Code, w.Body)
	}
}

// Whoever holds a key that got out cannot keep a partition with a long session.
func TestRevokedKeyLosesItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		revoked, first := door.key(t, apikey.Spec{Access: reads})
		_, second := door.key(t, apikey.Spec{Access: reads})
		_, writer := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Write}})
		if w := door.bearer(writer, "POST", ordersPublish, "hello"); w.Code != 200 {
			t.Fatalf("publish: %d %s", w.Code, w.Body)
		}
		w := door.bearer(first, "POST", "/v1/groups/g/members", `{"topics":["orders.eu"],"session_ms":1800000}`)
		if got := door.bearer(first, "GET", w.Header().Get("Location")+"/events", ""); !strings.Contains(got.Body.String(), "hello") {
			t.Fatalf("the first gets %d %s", got.Code, got.Body)
		}
		w = door.bearer(second, "POST", "/v1/groups/g/members", `{"topics":["orders.eu"],"session_ms":1800000}`)
		member := w.Header().Get("Location")
		time.Sleep(time.Minute)
		if got := door.bearer(second, "GET", member+"/events", ""); strings.Contains(got.Body.String(), "hello") {
			t.Fatalf("the second gets what the first works on: %s", got.Body)
		}
		if _, err := door.keys.Revoke(t.Context(), revoked); err != nil {
			t.Fatal(err)
		}
		time.Sleep(keyCheckEvery)
		if got := door.bearer(second, "GET", member+"/events?wait_ms=5000", ""); !strings.Contains(got.Body.String(), "hello") {
			t.Errorf("with the key of the first revoked the second gets %d %s", got.Code, got.Body)
		}
	})
}

// A client goes on with its member when it has a new key, and the old one can be revoked.
func TestRotationKeepsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{}.With(Limits{Members: 8}))
		revoked, first := door.key(t, apikey.Spec{Access: reads})
		_, second := door.key(t, apikey.Spec{Access: reads})
		members := []string{door.join(t, first, "g"), door.join(t, first, "g")}
		use := func(secret string) {
			for _, m := range members {
				if w := door.bearer(secret, "POST", m+"/commit", `{}`); w.Code != 204 {
					t.Errorf("a member is used with key %.13s: %d %s", secret, w.Code, w.Body)
				}
			}
		}
		use(second)
		if w := door.bearer(second, "POST", "/v1/groups/g/members", `{"topics":["orders.eu"]}`); w.Code != 429 {
			t.Errorf("the members count for the second key now: %d %s, want 429", w.Code, w.Body)
		}
		taken := door.join(t, first, "g")
		if w := door.bearer(second, "POST", taken+"/commit", `{}`); w.Code != 204 {
			t.Errorf("a member above the limit: %d %s", w.Code, w.Body)
		}
		if _, err := door.keys.Revoke(t.Context(), revoked); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * keyCheckEvery)
		synctest.Wait()
		use(second)
		if w := door.bearer(second, "POST", taken+"/commit", `{}`); w.Code != 404 {
			t.Errorf("a member that stayed with the first key: %d %s, want 404", w.Code, w.Body)
		}
	})
}

// Who joined before there were keys is not known any more once there is one.
func TestMembersWithoutAKeyLeaveOnceThereIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{Insecure: true})
		w := door.ask(hereToo, "POST", "/v1/groups/g/members", `{"topics":["orders.eu"]}`, "Content-Type", "application/json")
		member := w.Header().Get("Location")
		time.Sleep(2 * keyCheckEvery)
		synctest.Wait()
		if w := door.ask(hereToo, "POST", member+"/commit", `{}`, "Content-Type", "application/json"); w.Code != 204 {
			t.Errorf("without keys: %d %s, want 204", w.Code, w.Body)
		}
		_, secret := door.key(t, apikey.Spec{Access: reads})
		time.Sleep(2 * keyCheckEvery)
		synctest.Wait()
		if w := door.bearer(secret, "POST", member+"/commit", `{}`); w.Code != 404 {
			t.Errorf("with a first key: %d %s, want 404", w.Code, w.Body)
		}
	})
}

// A group counts for the client that made it, whoever uses it later.
func TestAGroupIsItsMakers(t *testing.T) {
	door := lock(t, Config{})
	maker, secret := door.key(t, apikey.Spec{Access: admins})
	_, other := door.key(t, apikey.Spec{Access: admins})
	const reset = `{"offsets":[{"topic":"orders.eu","offset":"latest"}]}`
	if w := door.bearer(secret, "PUT", "/v1/groups/orders.reset/offsets", reset); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	door.join(t, secret, "orders.joined")
	door.join(t, other, "orders.joined")
	door.join(t, other, "orders.reset")
	for _, name := range []string{"orders.reset", "orders.joined"} {
		kvs, err := door.store.Get(t.Context(), []string{group.StateKey(name)}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if value := string(kvs[0].Value); !strings.Contains(value, `"made_by":"`+maker+`"`) {
			t.Errorf("%s, which %s made: %s", name, maker, value)
		}
	}
}
