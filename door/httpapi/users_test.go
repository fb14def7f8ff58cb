package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/user"
)

const password = "a long password"

// user creates a user, and returns the Authorization header of its clients.
func (l *locked) user(t *testing.T, name string) string {
	t.Helper()
	c, err := user.FromPassword(user.SHA256, password, user.IterationsMin)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.users.Change(t.Context(), []user.Change{{Name: name, Set: map[user.Mechanism]user.Credential{user.SHA256: c}}})[0]; err != nil {
		t.Fatal(err)
	}
	return basic(name, password)
}

func basic(name, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

// rule is a stored rule in short: "read topic orders.eu", "deny all group *"; a name that ends with
// … is a prefix.
func (l *locked) rule(t *testing.T, name string, rules ...string) {
	t.Helper()
	for _, text := range rules {
		words := strings.Fields(text)
		b := acl.Binding{Principal: "User:" + name, Host: acl.Everywhere}
		if b.Deny = words[0] == "deny"; b.Deny {
			words = words[1:]
		}
		for b.Operation = acl.All; strings.ToLower(b.Operation.String()) != words[0]; b.Operation++ {
			if b.Operation > acl.IdempotentWrite {
				t.Fatalf("no operation %s", words[0])
			}
		}
		for b.Kind = acl.Topic; b.Kind.String() != words[1]; b.Kind++ {
			if b.Kind > acl.Cluster {
				t.Fatalf("no kind %s", words[1])
			}
		}
		b.Name, b.Prefixed = strings.CutSuffix(words[2], "…")
		if err := l.acls.Create(t.Context(), []acl.Binding{b})[0]; err != nil {
			t.Fatal(err)
		}
	}
}

// as sends a request of a user.
func (l *locked) as(auth, method, path, body string) *httptest.ResponseRecorder {
	headers := []string{"Authorization", auth}
	if body != "" {
		headers = append(headers, "Content-Type", "application/json")
	}
	return l.ask(elsewhere, method, path, body, headers...)
}

// places fills in a route's path.
var places = strings.NewReplacer("{topic}", "orders.eu", "{category}", "orders.eu", "{partition}", "0", "{group}", "billing", "{queue}", "mail", "{projection}", "totals",
	"{stream}", "s", "{member}", "m", "{message}", "0-0", "{schedule}", "s", "{key}", "none", "{user}", "none")

// rulesFor returns the rules that a route needs, in short. With them a user may do what the route
// does to what its path names.
func rulesFor(rt route) (rules []string) {
	add := func(ops []acl.Operation, kind, name string) {
		for _, op := range ops {
			rules = append(rules, strings.ToLower(op.String())+" "+kind+" "+name)
		}
	}
	switch path := rt.pattern; {
	case rt.needs.cluster != nil:
		add(rt.needs.cluster, "cluster", acl.ClusterName)
	case strings.Contains(path, "{topic}"), strings.Contains(path, "{category}"):
		add(rt.needs.topic, "topic", "orders.eu")
	case strings.Contains(path, "{group}"):
		add(rt.needs.group, "group", "billing")
	case strings.Contains(path, "{queue}"):
		add(rt.needs.topic, "topic", "mail")
		add(rt.needs.group, "group", "mail")
	case strings.Contains(path, "{projection}"):
		add(rt.needs.group, "group", "projection.totals.…")
	}
	return rules
}

// Every route, and every one to come, asks for the rules that it needs: without any single one of
// them a user is refused, and with all of them not.
func TestEveryRouteAsksForItsRules(t *testing.T) {
	door, tried := lock(t, Config{}), 0
	nobody := door.user(t, "nobody")
	for i, rt := range api {
		rules := rulesFor(rt)
		if len(rules) == 0 {
			continue
		}
		tried++
		method, path, _ := strings.Cut(places.Replace(strings.Split(rt.pattern, "?")[0]), " ")
		if w := door.as(nobody, method, path, ""); w.Code != 403 {
			t.Errorf("%s without rules: %d %s, want 403", rt.pattern, w.Code, w.Body)
		}
		name := fmt.Sprint("all", i)
		all := door.user(t, name)
		door.rule(t, name, rules...)
		if w := door.as(all, method, path, ""); w.Code == 401 || w.Code == 403 {
			t.Errorf("%s with %q: %d %s", rt.pattern, rules, w.Code, w.Body)
		}
		if len(rules) == 1 || rt.needs.either {
			continue
		}
		for at := range rules {
			name := fmt.Sprint("but", i, ".", at)
			some := door.user(t, name)
			door.rule(t, name, slices.Delete(slices.Clone(rules), at, at+1)...)
			if w := door.as(some, method, path, ""); w.Code != 403 {
				t.Errorf("%s without %q: %d %s, want 403", rt.pattern, rules[at], w.Code, w.Body)
			}
		}
	}
	if tried < 50 {
		t.Errorf("%d routes were tried", tried)
	}
}

func TestUsersMayWhatTheirRulesAllow(t *testing.T) {
	door := lock(t, Config{SuperUsers: []string{"User:admin"}})
	admin := door.user(t, "admin")
	for _, made := range [][2]string{{"/v1/queues", `{"name": "mail"}`}, {"/v1/queues", `{"name": "bills", "topic": "users"}`}, {"/v1/categories", `{"name": "order"}`}} {
		if w := door.as(admin, "POST", made[0], made[1]); w.Code != 201 {
			t.Fatalf("%s: %d %s", made, w.Code, w.Body)
		}
	}
	const (
		orders = "/v1/topics/orders.eu"
		reset  = `{"offsets": [{"topic": "orders.eu", "offset": "earliest"}]}`
		both   = `{"streams": [{"category": "order", "stream": "1", "events": [{"type": "x", "value": 1}]}, {"category": "users", "stream": "1", "events": [{"type": "x", "value": 1}]}]}`
	)
	for i, c := range []struct {
		rules              []string
		method, path, body string
		want               int
	}{
		{[]string{"write topic orders.…"}, "POST", orders + "/events", `1`, 200},
		{[]string{"all topic *", "deny write topic orders.eu"}, "POST", orders + "/events", `1`, 403},
		{[]string{"write topic orders.…"}, "GET", ordersPage, "", 403},
		{[]string{"read topic orders.eu"}, "GET", ordersPage, "", 200},
		{[]string{"read topic orders.eu"}, "GET", usersPage, "", 403},
		{[]string{"read topic orders.eu"}, "GET", "/v1/topics/none/partitions/0/events", "", 403},
		{[]string{"read topic *"}, "GET", "/v1/topics/none/partitions/0/events", "", 404},
		{[]string{"create topic new…"}, "POST", "/v1/topics", `{"name": "new.a"}`, 201},
		{[]string{"create cluster kafka-cluster"}, "POST", "/v1/topics", `{"name": "new.b"}`, 201},
		{[]string{"all topic orders.…"}, "POST", "/v1/topics", `{"name": "new.c"}`, 403},
		{[]string{"alter topic orders.eu"}, "PATCH", orders, `{"partitions": 2}`, 200},
		{[]string{"alter topic orders.eu"}, "PATCH", orders, `{"config": {"retention.ms": "1000000"}}`, 403},
		{[]string{"alter_configs topic orders.eu"}, "PATCH", orders, `{"config": {"retention.ms": "1000000"}}`, 200},
		{[]string{"alter_configs topic orders.eu"}, "PATCH", orders, `{"partitions": 3}`, 403},
		{[]string{"read group g", "read topic orders.eu"}, "POST", "/v1/groups/g/members", `{"topics": ["orders.eu"]}`, 201},
		{[]string{"read group g", "read topic orders.eu"}, "POST", "/v1/groups/g/members", `{"topics": ["orders.eu", "users"]}`, 403},
		{[]string{"read group h", "read topic orders.eu"}, "POST", "/v1/groups/g/members", `{"topics": ["orders.eu"]}`, 403},
		{[]string{"read group h", "read topic orders.eu"}, "PUT", "/v1/groups/h/offsets", reset, 200},
		{[]string{"read group h"}, "PUT", "/v1/groups/h/offsets", reset, 403},
		{[]string{"delete group h"}, "DELETE", "/v1/groups/h", "", 204},
		{[]string{"describe group h"}, "DELETE", "/v1/groups/h", "", 403},
		{[]string{"write topic mail"}, "POST", "/v1/queues/mail/messages", `1`, 200},
		{[]string{"read topic mail"}, "POST", "/v1/queues/mail/claim", `{}`, 403},
		{[]string{"read group mail"}, "POST", "/v1/queues/mail/claim", `{}`, 403},
		{[]string{"read topic mail", "read group mail"}, "POST", "/v1/queues/mail/claim", `{}`, 200},
		{[]string{"read topic bills", "read group bills"}, "POST", "/v1/queues/bills/claim", `{}`, 403}, // its messages are in the topic users
		{[]string{"read topic users", "read group bills"}, "POST", "/v1/queues/bills/claim", `{}`, 200},
		{[]string{"read topic *", "read group *"}, "POST", "/v1/queues/none/claim", `{}`, 404},
		{[]string{"create topic q1…", "alter_configs group q1"}, "POST", "/v1/queues", `{"name": "q1"}`, 201},
		{[]string{"create topic q2…"}, "POST", "/v1/queues", `{"name": "q2"}`, 403},
		{[]string{"read topic q3…", "write topic q3…", "alter_configs group q3"}, "POST", "/v1/queues", `{"name": "q3"}`, 403},
		{[]string{"create topic q4…", "create topic orders.eu", "alter_configs group q4"}, "POST", "/v1/queues", `{"name": "q4", "topic": "orders.eu"}`, 403},
		{[]string{"create topic q5…", "read topic orders.eu", "write topic orders.eu", "alter_configs group q5"}, "POST", "/v1/queues", `{"name": "q5", "topic": "orders.eu"}`, 201},
		{[]string{"create topic invoice"}, "POST", "/v1/categories", `{"name": "invoice"}`, 201},
		{[]string{"write topic order"}, "POST", "/v1/categories/order/streams/1/events", `{"events": [{"type": "x", "value": 1}]}`, 201},
		{[]string{"write topic order"}, "POST", "/v1/categories/append", both, 403},
		{[]string{"write topic order"}, "GET", "/v1/categories/order/streams/1/events", "", 403},
		{[]string{"read topic order"}, "GET", "/v1/categories/order/streams/1/events", "", 200},
		{[]string{"all group projection.…"}, "GET", "/v1/projections/totals", "", 404},
		{[]string{"all group projection.totals"}, "GET", "/v1/projections/totals", "", 403},
		{[]string{"alter cluster kafka-cluster"}, "GET", "/metrics", "", 200},
		{[]string{"all topic *", "all group *", "describe cluster kafka-cluster"}, "GET", "/metrics", "", 403},
	} {
		name := fmt.Sprint("user", i)
		auth := door.user(t, name)
		door.rule(t, name, c.rules...)
		if w := door.as(auth, c.method, c.path, c.body); w.Code != c.want {
			t.Errorf("with %q: %s %s %s: %d %s, want %d", c.rules, c.method, c.path, c.body, w.Code, w.Body, c.want)
		}
	}
	if w := door.as(admin, "DELETE", "/v1/topics/orders.eu", ""); w.Code != 204 {
		t.Errorf("a super user: %d %s", w.Code, w.Body)
	}
}

// Rules name the host of a client, and API keys are not subject to rules.
func TestRulesOfHostsAndOfEverybody(t *testing.T) {
	door := lock(t, Config{})
	auth := door.user(t, "alice")
	_, key := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
	rule := acl.Rule{Kind: acl.Topic, Name: "orders.eu", Operation: acl.Read}
	for _, err := range door.acls.Create(t.Context(), []acl.Binding{{Principal: "User:alice", Host: "192.0.2.7", Rule: rule}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for from, want := range map[string]int{elsewhere: 200, "192.0.2.8:1234": 403, "[::ffff:192.0.2.7]:1": 200} {
		if w := door.ask(from, "GET", ordersPage, "", "Authorization", auth); w.Code != want {
			t.Errorf("from %s: %d, want %d", from, w.Code, want)
		}
	}
	door.rule(t, "*", "deny all topic *")
	if w := door.as(auth, "GET", ordersPage, ""); w.Code != 403 {
		t.Errorf("what everybody is denied: %d", w.Code)
	}
	if w := door.as("Bearer "+key, "GET", ordersPage, ""); w.Code != 200 {
		t.Errorf("a key, when every user is denied: %d", w.Code)
	}
}

// Lists have what a user may describe, and no more; so have the answers that mention other
// resources.
func TestListsShowWhatAUserMayDescribe(t *testing.T) {
	door := lock(t, Config{SuperUsers: []string{"User:admin"}})
	admin := door.user(t, "admin")
	for _, made := range [][2]string{{"/v1/queues", `{"name": "mail"}`}, {"/v1/queues", `{"name": "bills", "topic": "users"}`}, {"/v1/categories", `{"name": "order"}`}, {"/v1/groups/g/members", `{"topics": ["orders.eu", "users"]}`}} {
		if w := door.as(admin, "POST", made[0], made[1]); w.Code != 201 {
			t.Fatalf("%s: %d %s", made, w.Code, w.Body)
		}
	}
	for name, categories := range map[string][]string{"totals": {"order"}, "everything": nil} {
		if _, err := door.categories.EnsureProjection(t.Context(), name, 1, categories); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct {
		rules     []string
		path      string
		has, lack []string
	}{
		{nil, "/v1/topics", []string{`"topics":[]`}, nil},
		{nil, "/v1/groups", []string{`"groups":[]`}, nil},
		{nil, "/v1/queues", []string{`"queues":[]`}, nil},
		{nil, "/v1/categories", []string{`"categories":[]`}, nil},
		{nil, "/v1/projections", []string{`"projections":[]`}, nil},
		{[]string{"write topic orders.…"}, "/v1/topics", []string{"orders.eu"}, []string{"users", "config"}},
		{[]string{"describe_configs topic *", "describe topic users"}, "/v1/topics", []string{"users", "config"}, []string{"orders.eu"}},
		{[]string{"describe topic users"}, "/v1/topics/users", []string{"holds"}, []string{"config", "settings"}},
		{[]string{"describe topic users", "describe_configs topic users"}, "/v1/topics/users", []string{"config", "settings"}, nil},
		{[]string{"describe group g"}, "/v1/groups", []string{`"g"`}, nil},
		{[]string{"describe cluster kafka-cluster"}, "/v1/groups", []string{`"g"`}, nil},
		{[]string{"describe group g", "describe topic users"}, "/v1/groups/g", []string{"users"}, []string{"orders.eu"}},
		{[]string{"describe topic *", "describe group bills"}, "/v1/queues", []string{"bills"}, []string{`"mail"`}},
		{[]string{"describe topic mail", "describe group *"}, "/v1/queues", []string{`"mail"`}, []string{"bills"}},
		{[]string{"read topic order"}, "/v1/categories", []string{"order"}, nil},
		{[]string{"describe group projection.totals.…"}, "/v1/projections", []string{"totals"}, []string{"everything"}},
		{[]string{"describe group projection.…"}, "/v1/projections/totals", []string{`"categories":[]`}, []string{"order"}},
		{[]string{"describe group projection.…", "describe topic order"}, "/v1/projections/totals", []string{`"categories":["order"]`}, nil},
		{[]string{"describe group projection.…"}, "/v1/projections/everything", nil, []string{"categories"}},
	} {
		name := fmt.Sprint("user", i)
		auth := door.user(t, name)
		door.rule(t, name, c.rules...)
		w := door.as(auth, "GET", c.path, "")
		if w.Code != 200 {
			t.Errorf("with %q: %s: %d %s", c.rules, c.path, w.Code, w.Body)
		}
		for _, has := range c.has {
			if !strings.Contains(w.Body.String(), has) {
				t.Errorf("with %q: %s lacks %s: %s", c.rules, c.path, has, w.Body)
			}
		}
		for _, lacks := range c.lack {
			if strings.Contains(w.Body.String(), lacks) {
				t.Errorf("with %q: %s has %s: %s", c.rules, c.path, lacks, w.Body)
			}
		}
	}
}

// What a user may not see it is not told of: an answer is the same whether or not there is such a
// thing.
func TestWhatAUserMayNotSeeItIsNotToldOf(t *testing.T) {
	door := lock(t, Config{SuperUsers: []string{"User:admin"}})
	admin, auth := door.user(t, "admin"), door.user(t, "alice")
	for _, made := range [][2]string{{"/v1/topics", `{"name": "xa"}`}, {"/v1/queues", `{"name": "xc", "topic": "xa"}`}, {"/v1/categories", `{"name": "xd"}`}, {"/v1/groups/xb/members", `{"topics": ["xa"]}`}} {
		if w := door.as(admin, "POST", made[0], made[1]); w.Code != 201 {
			t.Fatalf("%s: %d %s", made, w.Code, w.Body)
		}
	}
	door.rule(t, "alice", "alter_configs group n…") // to create queues, but on no topic
	answer := func(method, path, body string) string {
		w := door.as(auth, method, path, body)
		var p map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("%s %s: %s", method, path, w.Body)
		}
		delete(p, "request_id")
		return fmt.Sprint(w.Code, p)
	}
	asked := 0
	compare := func(method, path, body string, there, not string) {
		t.Helper()
		asked++
		swap := strings.NewReplacer("XX", there)
		a := strings.ReplaceAll(answer(method, swap.Replace(path), swap.Replace(body)), there, "XX")
		swap = strings.NewReplacer("XX", not)
		b := strings.ReplaceAll(answer(method, swap.Replace(path), swap.Replace(body)), not, "XX")
		if a != b || !strings.HasPrefix(a, "403") {
			t.Errorf("%s %s %s: if there is one\n%s\nif there is none\n%s", method, path, body, a, b)
		}
	}
	for _, rt := range api {
		method, path, _ := strings.Cut(strings.Split(rt.pattern, "?")[0], " ")
		for place, there := range map[string]string{"{topic}": "xa", "{group}": "xb", "{queue}": "xc", "{category}": "xd"} {
			if strings.Contains(path, place) {
				compare(method, places.Replace(strings.ReplaceAll(path, place, "XX")), "", there, "zz")
			}
		}
	}
	compare("POST", "/v1/topics", `{"name": "XX"}`, "xa", "zz")
	compare("POST", "/v1/categories", `{"name": "XX"}`, "xd", "zz")
	compare("POST", "/v1/queues", `{"name": "XX"}`, "xc", "zz")
	compare("POST", "/v1/queues", `{"name": "nq", "topic": "XX"}`, "xa", "zz")
	compare("POST", "/v1/categories/append", `{"streams": [{"category": "XX", "stream": "1", "events": [{"type": "x", "value": 1}]}]}`, "xd", "zz")
	if asked < 50 {
		t.Errorf("%d answers were compared", asked)
	}
}

func TestBadLoginsTellNothing(t *testing.T) {
	door := lock(t, Config{})
	auth := door.user(t, "alice")
	door.rule(t, "alice", "read topic orders.eu")
	if w := door.as(auth, "GET", ordersPage, ""); w.Code != 200 {
		t.Fatalf("the user: %d %s", w.Code, w.Body)
	}
	var first string
	for name, bad := range map[string]string{
		"a wrong password":       basic("alice", "a wrong password"),
		"no password":            basic("alice", ""),
		"an unknown user":        basic("bob", password),
		"a user that nobody is":  basic("*", password),
		"a name of 64 KiB":       basic(strings.Repeat("a", 64<<10), password),
		"a password of 64 KiB":   basic("alice", strings.Repeat("a", 64<<10)),
		"a name that is no text": basic("al\x00ice", password),
		"no colon":               "Basic " + base64.StdEncoding.EncodeToString([]byte("alice")),
		"no base64":              "Basic alice:secret",
		"nothing":                "Basic",
		"no token":               "Bearer " + strings.Repeat("e", 100),
		"a name as a key":        "Bearer alice",
	} {
		w := door.as(bad, "GET", ordersPage, "")
		var p problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 401 || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
		}
		if p.RequestID = ""; first == "" {
			first = fmt.Sprint(p)
		}
		if fmt.Sprint(p) != first {
			t.Errorf("%s is told\n%v\nothers\n%v", name, p, first)
		}
	}
	if w := door.ask(elsewhere, "GET", ordersPage, "", "Authorization", auth, "Authorization", auth); w.Code != 401 {
		t.Errorf("two headers: %d", w.Code)
	}
	if w := door.as("Digest "+auth, "GET", ordersPage, ""); w.Code != 401 {
		t.Errorf("another scheme: %d", w.Code)
	}
	if said := door.said.String(); strings.Contains(said, "wrong password\"") || strings.Contains(said, password) || !strings.Contains(said, "request refused") {
		t.Errorf("the log has %s", said)
	}
}

// Once there is a user, nobody is served who does not say who it is, and that stays so.
func TestFirstUserShutsTheDoorForGood(t *testing.T) {
	for name, insecure := range map[string]bool{"by default": false, "with --insecure": true} {
		t.Run(name, func(t *testing.T) {
			door := lock(t, Config{Insecure: insecure})
			if w := door.ask(hereToo, "GET", ordersPage, ""); w.Code != 200 {
				t.Fatalf("before there is a user: %d", w.Code)
			}
			door.user(t, "alice")
			if w := door.ask(hereToo, "GET", ordersPage, ""); w.Code != 401 {
				t.Errorf("with a user: %d, want 401", w.Code)
			}
			if err := door.users.Change(t.Context(), []user.Change{{Name: "alice", Clear: true}})[0]; err != nil {
				t.Fatal(err)
			}
			if w := door.ask(hereToo, "GET", ordersPage, ""); w.Code != 401 {
				t.Errorf("after the last user was deleted: %d, want 401", w.Code)
			}
		})
	}
}

// What comes after a user was deleted, or lost its right, reaches none of its streams and waiting
// requests; a stream without events ends, too.
func TestUserThatIsDeletedOrLosesARightGetsNothingMore(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, door *locked)
		want int // of a request that waits
		next int // of the next request
	}{
		"deleted": {func(t *testing.T, door *locked) {
			if err := door.users.Change(t.Context(), []user.Change{{Name: "alice", Clear: true}})[0]; err != nil {
				t.Fatal(err)
			}
		}, 401, 401},
		"a new credential": {func(t *testing.T, door *locked) { door.user(t, "alice") }, 401, 200},
		"without its rule": {func(t *testing.T, door *locked) { door.rule(t, "alice", "deny read topic orders.eu") }, 403, 403},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				door := lock(t, Config{})
				auth := door.user(t, "alice")
				door.rule(t, "alice", "all topic *", "all group *")
				_, writer := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Write}})
				joined := door.as(auth, "POST", "/v1/groups/g/members", `{"topics":["orders.eu"]}`)
				if joined.Code != 201 {
					t.Fatalf("join: %d %s", joined.Code, joined.Body)
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				r := httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:8080/v1/topics/orders.eu/events", nil)
				r.Header.Set("Accept", "text/event-stream")
				r.Header.Set("Authorization", auth)
				w, ended := httptest.NewRecorder(), make(chan struct{})
				go func() {
					defer close(ended)
					door.ServeHTTP(w, r)
				}()
				answers := make(chan *httptest.ResponseRecorder)
				polls := []string{ordersPage + "?offset=0&wait_ms=9000", joined.Header().Get("Location") + "/events?wait_ms=9000"}
				for _, poll := range polls {
					go func() { answers <- door.as(auth, "GET", poll, "") }()
				}
				synctest.Wait()
				c.end(t, door)
				if w := door.as(auth, "GET", ordersPage, ""); w.Code != c.next { // from then on this process knows
					t.Errorf("the next request: %d, want %d", w.Code, c.next)
				}
				if w := door.as("Bearer "+writer, "POST", ordersPublish, "secret"); w.Code != 200 {
					t.Fatalf("publish: %d %s", w.Code, w.Body)
				}
				for range polls {
					if w := <-answers; w.Code != c.want || strings.Contains(w.Body.String(), "secret") {
						t.Errorf("a request that waited: %d %s, want %d", w.Code, w.Body, c.want)
					}
				}
				synctest.Wait()
				select {
				case <-ended:
				default:
					t.Error("the stream goes on")
					leave()
					<-ended
				}
				if strings.Contains(w.Body.String(), "secret") {
					t.Errorf("the stream had %s", w.Body)
				}
			})
		})
	}
}

// What another process changes holds within 2 s: users and rules.
func TestChangesOfAnotherProcessHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		elsewhere := &locked{users: user.New(everystore.Direct(door.store), slog.New(slog.DiscardHandler)), acls: acl.New(everystore.Direct(door.store), slog.New(slog.DiscardHandler))}
		auth := door.user(t, "alice")
		check := func(when string, want int) {
			t.Helper()
			if w := door.as(auth, "GET", ordersPage, ""); w.Code != want {
				t.Errorf("%s: %d, want %d", when, w.Code, want)
			}
		}
		check("without a rule", 403)
		elsewhere.rule(t, "alice", "read topic orders.eu")
		time.Sleep(2 * time.Second)
		check("with a rule", 200)
		elsewhere.rule(t, "alice", "deny read topic *")
		time.Sleep(2 * time.Second)
		check("with a rule that forbids it", 403)
		if err := elsewhere.users.Change(t.Context(), []user.Change{{Name: "alice", Clear: true}})[0]; err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		check("without the user", 401)
	})
}

// A stream to which nothing comes ends within 10 s, as docs/security.md says.
func TestIdleStreamOfADeletedUserEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		auth := door.user(t, "alice")
		door.rule(t, "alice", "all topic *")
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		r := httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:8080/v1/topics/orders.eu/events", nil)
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Authorization", auth)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			door.ServeHTTP(httptest.NewRecorder(), r)
		}()
		synctest.Wait()
		if err := door.users.Change(t.Context(), []user.Change{{Name: "alice", Clear: true}})[0]; err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("it goes on")
			leave()
			<-ended
		}
	})
}

// Many wrong passwords from one network delay neither those of other networks, nor clients whose
// password is known, nor API keys. More than a few of them do not even wait.
func TestWrongPasswordsDelayNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		known, other := door.user(t, "known"), door.user(t, "other")
		for _, name := range []string{"known", "other"} {
			door.rule(t, name, "read topic orders.eu")
		}
		_, key := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
		if w := door.as(known, "GET", ordersPage, ""); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		checks := door.server.checks
		for range checks.most { // as many checks as run at a time have begun
			if err := checks.acquire(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		const attacker = "203.0.113.1:1"
		answers := make(chan int, 1000)
		for i := range 1000 {
			go func() {
				answers <- door.ask(attacker, "GET", ordersPage, "", "Authorization", basic("known", fmt.Sprintf("wrong%05d", i))).Code
			}()
		}
		synctest.Wait()
		for range 1000 - loginsFromMax {
			if code := <-answers; code != 429 {
				t.Fatalf("a wrong password beyond the limit: %d, want 429", code)
			}
		}
		if w := door.as(known, "GET", ordersPage, ""); w.Code != 200 {
			t.Errorf("a client whose password is known: %d %s", w.Code, w.Body)
		}
		if w := door.as("Bearer "+key, "GET", ordersPage, ""); w.Code != 200 {
			t.Errorf("an API key: %d %s", w.Code, w.Body)
		}
		served := make(chan int)
		go func() {
			served <- door.ask("198.51.100.1:1", "GET", ordersPage, "", "Authorization", other).Code
		}()
		synctest.Wait()
		door.server.checks.mu.Lock()
		before := len(checks.waiting)
		door.server.checks.mu.Unlock()
		if before != loginsFromMax+1 {
			t.Errorf("%d passwords wait, want %d", before, loginsFromMax+1)
		}
		checks.release("")
		if code := <-served; code != 200 {
			t.Errorf("a password of another network: %d", code)
		}
		for range checks.most - 1 {
			checks.release("")
		}
		for range loginsFromMax {
			if code := <-answers; code != 401 {
				t.Errorf("a wrong password: %d, want 401", code)
			}
		}
	})
}

// A password waits for its turn for loginWait at most.
func TestPasswordThatCannotBeCheckedIsToldToTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		auth := door.user(t, "alice")
		for range door.server.checks.most {
			if err := door.server.checks.acquire(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if w := door.as(auth, "GET", ordersPage, ""); w.Code != 503 || w.Header().Get("Weir-Applied") != "no" || time.Since(began) != loginWait {
			t.Errorf("after %v: %d %v %s", time.Since(began), w.Code, w.Header(), w.Body)
		}
	})
}

// A client is the user whom its certificate names, if TLS has verified it. A header with
// credentials counts more.
func TestCertificatesMakeUsers(t *testing.T) {
	door := lock(t, Config{TLS: &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven}})
	other := door.user(t, "other")
	door.rule(t, "CN=billing,O=Example", "read topic orders.eu")
	door.rule(t, "other", "read topic users")
	valid := time.Hour
	ask := func(subject pkix.Name, verified bool, path string, headers ...string) int {
		t.Helper()
		raw, err := asn1.Marshal(subject.ToRDNSequence())
		if err != nil {
			t.Fatal(err)
		}
		shown := &x509.Certificate{RawSubject: raw, NotAfter: time.Now().Add(valid)}
		r := httptest.NewRequest("GET", "https://127.0.0.1:8080"+path, nil)
		r.RemoteAddr, r.TLS = hereToo, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{shown}}
		if verified {
			r.TLS.VerifiedChains = [][]*x509.Certificate{{shown}}
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		door.ServeHTTP(w, r)
		return w.Code
	}
	billing := pkix.Name{CommonName: "billing", Organization: []string{"Example"}}
	for what, c := range map[string][2]int{
		"the user":                  {ask(billing, true, ordersPage), 200},
		"what it may not":           {ask(billing, true, usersPage), 403},
		"another user":              {ask(pkix.Name{CommonName: "billing"}, true, ordersPage), 403},
		"a certificate of nobody":   {ask(billing, false, ordersPage), 401},
		"a subject without a name":  {ask(pkix.Name{}, true, ordersPage), 401},
		"a subject of 64 KiB":       {ask(pkix.Name{CommonName: strings.Repeat("a", 64<<10)}, true, ordersPage), 401},
		"credentials beside it":     {ask(billing, true, usersPage, "Authorization", other), 200},
		"bad credentials beside it": {ask(billing, true, ordersPage, "Authorization", basic("other", "wrong password")), 401},
		"nothing, here":             {door.ask(hereToo, "GET", ordersPage, "").Code, 401},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d, want %d", what, c[0], c[1])
		}
	}
	valid = -time.Second // it has expired since the client connected
	if got := ask(billing, true, ordersPage); got != 401 {
		t.Errorf("an expired certificate: %d, want 401", got)
	}
}
