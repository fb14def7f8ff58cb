package httpapi_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/table"
	"github.com/weir-log/weir/use/user"
)

// administered is a door on a store with keys, users, rules and quotas, and the header of an
// administrator's key.
func administered(t testing.TB, store eventlog.Store) (d *door, admin string) {
	t.Helper()
	cfg := managing(store)
	_, secret, err := cfg.Keys.Create(t.Context(), apikey.Spec{Name: "root", Access: []apikey.Access{apikey.Admin}, AllTopics: true, AllGroups: true})
	if err != nil {
		t.Fatal(err)
	}
	return openOn(t, store, cfg), "Authorization: Bearer " + secret
}

// managing is the configuration of a door that manages what is in a store.
func managing(store eventlog.Store) httpapi.Config { return managingIn(everystore.Direct(store)) }

func managingIn(log table.Log) httpapi.Config {
	quiet := slog.New(slog.DiscardHandler)
	return httpapi.Config{Keys: apikey.New(log, quiet), Users: user.New(log, quiet), ACLs: acl.New(log, quiet), Quotas: quota.New(log, quiet)}
}

// keyAnswer is a key in an answer.
type keyAnswer struct {
	ID, Name, State, Secret         string
	Access, Topics, Groups, Queues  []string
	Created, From, Expires, Revoked int64
	AllTopics                       bool `json:"all_topics"`
	AllGroups                       bool `json:"all_groups"`
	AllQueues                       bool `json:"all_queues"`
}

func bearer(secret string) string { return "Authorization: Bearer " + secret }

func TestAKeyIsCreatedRotatedAndRevokedOverHTTP(t *testing.T) {
	store := memory.New()
	d, admin := administered(t, store)
	d.topic("orders.eu", 1)
	d.topic("users", 1)
	var first, second keyAnswer
	expires := time.Now().Add(90 * 24 * time.Hour).UnixMilli()
	made := d.asJSON("POST", "/v1/keys", fmt.Sprintf(`{"name":"shop","access":["write","read"],"topics":["orders."],"groups":["billing","shop"],"expires":%d}`, expires), admin).into(201, &first)
	if made.header.Get("Location") != "/v1/keys/"+first.ID || made.header.Get("Cache-Control") != "no-store" {
		t.Errorf("the headers are %v", made.header)
	}
	if first.State != "good" || !slices.Equal(first.Access, []string{"read", "write"}) || !slices.Equal(first.Groups, []string{"billing", "shop"}) ||
		!slices.Equal(first.Queues, []string{"orders."}) || first.AllTopics || first.Expires != expires {
		t.Errorf("the key is %+v", first)
	}
	use := func(secret string, want int) {
		t.Helper()
		if a := d.do("POST", "/v1/topics/orders.eu/events", "x", bearer(secret)); a.status != want {
			t.Errorf("publish with a key: %d %s, want %d", a.status, a.body, want)
		}
	}
	use(first.Secret, 200)
	d.do("POST", "/v1/topics/users/events", "x", bearer(first.Secret)).refused(403, "forbidden")
	d.do("POST", "/v1/keys/"+first.ID+"/rotate", "", bearer(first.Secret)).refused(403, "forbidden")

	d.do("POST", "/v1/keys/"+first.ID+"/rotate", "", admin).into(201, &second)
	use(first.Secret, 200)
	use(second.Secret, 200)
	d.do("POST", "/v1/topics/users/events", "x", bearer(second.Secret)).refused(403, "forbidden")
	if second.ID == first.ID || second.Secret == first.Secret || second.Name != first.Name || !slices.Equal(second.Groups, first.Groups) || second.Expires < first.Expires {
		t.Errorf("a rotation of %+v made %+v", first, second)
	}
	var listed struct{ Keys []keyAnswer }
	list := d.get("/v1/keys", admin).into(200, &listed)
	one := d.get("/v1/keys/"+second.ID, admin)
	if len(listed.Keys) != 3 || one.status != 200 {
		t.Errorf("%d keys are listed, and one is %d %s", len(listed.Keys), one.status, one.body)
	}
	for i, key := range []keyAnswer{first, second} {
		d.do("DELETE", "/v1/keys/"+key.ID, "", admin).want(204, "")
		d.do("DELETE", "/v1/keys/"+key.ID, "", admin).want(204, "") // twice is once
		use(key.Secret, 401)
		if i == 0 {
			use(second.Secret, 200)
		}
		var now keyAnswer
		if d.get("/v1/keys/"+key.ID, admin).into(200, &now); now.State != "revoked" || now.Revoked == 0 {
			t.Errorf("the revoked key is %+v", now)
		}
		d.do("POST", "/v1/keys/"+key.ID+"/rotate", "", admin).refused(409, "key_ended", "revoked")
	}
	kvs, err := store.List(t.Context(), "", "", 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		for _, secret := range []string{first.Secret[14:], second.Secret[14:]} {
			if strings.Contains(kv.Key+string(kv.Value), secret) || strings.Contains(d.said.String(), secret) || strings.Contains(list.body+one.body, secret) {
				t.Errorf("a secret is in the store, in the log or in a list: %s %s", kv.Key, kv.Value)
			}
		}
	}
	for _, path := range []string{"/v1/keys/none", "/v1/keys/%2F"} {
		d.get(path, admin).refused(404, "unknown_key")
		d.do("DELETE", path, "", admin).refused(404, "unknown_key")
		d.do("POST", path+"/rotate", "", admin).refused(404, "unknown_key")
	}
	d.do("DELETE", "/v1/keys/"+second.Secret, "", admin).refused(400, "token_in_url", "logs")
	for body, word := range map[string]string{
		`{"access":["read"],"all_topics":true,"all_groups":true}`:            "name of an API key",
		`{"name":"a","all_topics":true,"all_groups":true}`:                   "access",
		`{"name":"a","access":["root"],"all_topics":true,"all_groups":true}`: "root",
		`{"name":"a","access":["read"]}`:                                     "number of topics",
		`{"name":"a","access":["read"],"topics":["a"],"all_topics":true}`:    "number of topics",
		`{"name":"a","access":["read"],"topics":["a/*"]}`:                    "it contains '/'",
		`{"name":"a","access":["read"],"topics":["a"],"expires":1}`:          "in the past",
		`{"name":"a\n","access":["read"],"topics":["a"]}`:                    "cannot be printed",
	} {
		d.asJSON("POST", "/v1/keys", body, admin).refused(400, "invalid_request", word)
	}
	for body, word := range map[string]string{
		`{"name":"a","access":["read"],"topics":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 101), ",") + `]}`: "100",
		`{"name":"a","access":["read"],"topic":["a"]}`:                                                           "did you mean topics",
		`{"name":"a","access":"read"}`:                                                                           "array",
		`{"name":"a","expires":"tomorrow"}`:                                                                      "number",
	} {
		d.asJSON("POST", "/v1/keys", body, admin).refused(400, "invalid_json", word)
	}
}

// The first key may be made over HTTP, by whoever may do everything as long as there is none.
func TestTheFirstKeyIsMadeOverHTTP(t *testing.T) {
	store := memory.New()
	d := openOn(t, store, managing(store))
	var key keyAnswer
	d.asJSON("POST", "/v1/keys", `{"name":"root","access":["admin"],"all_topics":true,"all_groups":true}`).into(201, &key)
	d.get("/v1/keys").refused(401, "unauthorized")
	d.get("/v1/keys", bearer(key.Secret)).contains(200, `"name":"root"`)
}

func TestUsersAreManagedOverHTTP(t *testing.T) {
	store := memory.New()
	d, admin := administered(t, store)
	d.topic("orders", 1)
	auth := func(password string) string {
		return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("al/ice:"+password))
	}
	const first, second, at = "correct horse", "battery staple", "/v1/users/al%2Fice"
	made := d.asJSON("POST", "/v1/users", `{"name":"al/ice","password":"`+first+`","iterations":4096}`, admin)
	made.want(201, `{"name":"al/ice","mechanisms":{"SCRAM-SHA-256":4096,"SCRAM-SHA-512":4096}}`)
	if made.header.Get("Location") != at {
		t.Errorf("the location is %q", made.header.Get("Location"))
	}
	d.asJSON("POST", "/v1/users", `{"name":"al/ice","password":"`+second+`","iterations":4096}`, admin).refused(409, "user_exists")
	d.get("/v1/topics/orders", auth(first)).refused(403, "forbidden")
	d.asJSON("PUT", at+"/password", `{"password":"`+second+`","mechanisms":["SCRAM-SHA-512"],"iterations":5000}`, admin).want(204, "")
	d.get("/v1/topics/orders", auth(first)).refused(401, "unauthorized")
	d.get("/v1/topics/orders", auth(second)).refused(403, "forbidden")
	d.get("/v1/users", admin).want(200, `{"users":[{"name":"al/ice","mechanisms":{"SCRAM-SHA-512":5000}}]}`)
	d.get(at, admin).want(200, `{"name":"al/ice","mechanisms":{"SCRAM-SHA-512":5000}}`)
	d.do("DELETE", at, "", admin).want(204, "")
	d.get("/v1/topics/orders", auth(second)).refused(401, "unauthorized")
	d.do("DELETE", at, "", admin).refused(404, "unknown_user")
	d.get(at, admin).refused(404, "unknown_user")
	d.asJSON("PUT", at+"/password", `{"password":"`+second+`","iterations":4096}`, admin).refused(404, "unknown_user")
	for body, word := range map[string]string{
		`{"name":"","password":"a long password"}`:                           "0 bytes",
		`{"name":"bob","password":"short"}`:                                  "8 to 256 bytes",
		`{"name":"bob","password":"a long pässword"}`:                        "ASCII",
		`{"name":"bob","password":"a long password","mechanisms":["PLAIN"]}`: "PLAIN",
	} {
		if a := d.asJSON("POST", "/v1/users", body, admin).refused(400, "invalid_request", word); strings.Contains(a.body, "long p") {
			t.Errorf("the answer shows the password: %s", a.body)
		}
	}
	for _, body := range []string{`{"name":"bob"}`, `{"name":"bob","password":12345678}`, `{"name":"bob","password":"a long password","iterations":1}`, `{"user":"bob"}`} {
		if a := d.asJSON("POST", "/v1/users", body, admin).refused(400, "invalid_json"); strings.Contains(a.body, "12345678") {
			t.Errorf("the answer shows the password: %s", a.body)
		}
	}
	kvs, err := store.List(t.Context(), "", "", 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		if strings.Contains(string(kv.Value), first) || strings.Contains(string(kv.Value), second) {
			t.Errorf("a password is in the store: %s", kv.Value)
		}
	}
	if said := d.said.String(); strings.Contains(said, first) || strings.Contains(said, second) {
		t.Errorf("a password is in the log: %s", said)
	}
}

func TestACLsAreManagedOverHTTP(t *testing.T) {
	d, admin := administered(t, memory.New())
	rule := func(body string) answer { return d.asJSON("POST", "/v1/acls", body, admin) }
	const orders = `{"principal":"User:alice","effect":"allow","operation":"read","resource_type":"topic","name":"orders.","prefixed":true,"host":"*"}`
	rule(`{"principal":"User:alice","effect":"allow","operation":"READ","resource_type":"topic","name":"orders.","prefixed":true}`).want(200, orders)
	rule(orders).want(200, orders) // it exists
	const all = `{"principal":"User:*","effect":"deny","operation":"describe_configs","resource_type":"topic","name":"*","prefixed":false,"host":"10.0.0.1"}`
	rule(strings.Replace(all, `"10.0.0.1"`, `"::ffff:10.0.0.1"`, 1)).want(200, all)
	const cluster = `{"principal":"User:ops","effect":"allow","operation":"alter","resource_type":"cluster","name":"kafka-cluster","prefixed":false,"host":"*"}`
	rule(`{"principal":"User:ops","effect":"allow","operation":"alter","resource_type":"cluster"}`).want(200, cluster)

	acls := func(rules ...string) string { return `{"acls":[` + strings.Join(rules, ",") + `]}` }
	d.get("/v1/acls?principal=User:alice", admin).want(200, acls(orders))
	d.get("/v1/acls?name=orders.eu&principal=User:alice&effect=allow&operation=read&resource_type=topic", admin).want(200, acls(orders))
	d.get("/v1/acls?name=orders.eu&pattern=literal", admin).want(200, acls())
	d.get("/v1/acls?name=orders.&pattern=prefixed", admin).want(200, acls(orders))
	var listed struct {
		ACLs []struct {
			APIKey string `json:"api_key"`
		}
	}
	if d.get("/v1/acls", admin).into(200, &listed); len(listed.ACLs) != 6 || listed.ACLs[2].APIKey != "" || listed.ACLs[3].APIKey == "" {
		t.Errorf("listed are %+v, want three ACLs and three rules of the administrator's key", listed)
	}
	for path, word := range map[string]string{
		"": "neither a principal", "?effect=allow": "neither a principal", "?resource_type=topic": "neither a principal", "?name=orders.&pattern=match": "every name",
		"?principal=User:alice&pattern=some": "prefixed", "?operation=reed&name=a": "describe_configs", "?effect=maybe&name=a": "deny", "?damaged=true&name=a": "leave",
		"?principle=User:alice": "did you mean principal", "?damaged=maybe": "true or false",
	} {
		d.do("DELETE", "/v1/acls"+path, "", admin).refused(400, "invalid_request", word)
	}
	d.do("DELETE", "/v1/acls?name=orders.&principal=User:alice", "", admin).want(200, acls()) // it is prefixed
	d.do("DELETE", "/v1/acls?principal=User:root", "", admin).want(200, acls())               // rules of keys stay
	d.do("DELETE", "/v1/acls?name=orders.&pattern=prefixed", "", admin).want(200, acls(orders))
	d.do("DELETE", "/v1/acls?host=10.0.0.1", "", admin).want(200, acls(all))
	d.do("DELETE", "/v1/acls?principal=User:ops", "", admin).want(200, acls(cluster))
	d.do("DELETE", "/v1/acls?damaged=true", "", admin).want(200, `{"deleted":0}`)
	for body, word := range map[string]string{
		`{"principal":"alice","effect":"allow","operation":"read","resource_type":"topic","name":"a"}`:                       "User:NAME",
		`{"principal":"User:alice","effect":"allow","operation":"read","resource_type":"topic","name":"a","host":"a.b"}`:     "IP address",
		`{"principal":"User:alice","effect":"allow","operation":"read","resource_type":"cluster","name":"mine"}`:             "kafka-cluster",
		`{"principal":"User:alice","effect":"allow","operation":"read","resource_type":"group","name":"` + "a\\u0007" + `"}`: "cannot be printed",
	} {
		rule(body).refused(400, "invalid_request", word)
	}
	for body, word := range map[string]string{
		`{"effect":"allow","operation":"read","resource_type":"topic","name":"a"}`:                        `\"principal\" is missing`,
		`{"principal":"User:a","operation":"read","resource_type":"topic","name":"a"}`:                    `\"effect\" is missing`,
		`{"principal":"User:a","effect":"allow","resource_type":"topic","name":"a"}`:                      `\"operation\" is missing`,
		`{"principal":"User:a","effect":"allow","operation":"read","name":"a"}`:                           `\"resource_type\" is missing`,
		`{"principal":"User:a","effect":"allow","operation":"read","resource_type":"topic"}`:              `\"name\" is missing`,
		`{"principal":"User:a","effect":"perhaps","operation":"read","resource_type":"topic","name":"a"}`: "allow or deny",
		`{"principal":"User:a","effect":"allow","operation":"fly","resource_type":"topic","name":"a"}`:    "idempotent_write",
		`{"principal":"User:a","effect":"allow","operation":"read","resource_type":"queue","name":"a"}`:   "transactional-id",
	} {
		rule(body).refused(400, "invalid_json", word)
	}
}

func TestQuotasAreManagedOverHTTP(t *testing.T) {
	d, admin := administered(t, memory.New())
	change := func(body string) answer { return d.asJSON("PATCH", "/v1/quotas", body, admin) }
	const alice = `{"user":"alice","limits":{"consumer_byte_rate":2000,"producer_byte_rate":1000}}`
	change(alice).want(200, alice)
	const nightly = `{"default_user":true,"client_id":"nightly","limits":{"request_percentage":12.5}}`
	change(nightly).want(200, nightly)
	change(`{"ip":"::ffff:10.0.0.1","limits":{"connection_creation_rate":20}}`).want(200, `{"ip":"10.0.0.1","limits":{"connection_creation_rate":20}}`)
	const left = `{"user":"alice","limits":{"producer_byte_rate":5}}`
	change(`{"user":"alice","limits":{"producer_byte_rate":5,"consumer_byte_rate":null}}`).want(200, left)
	change(`{"user":"alice"}`).want(200, left)
	quotas := func(all ...string) string { return `{"quotas":[` + strings.Join(all, ",") + `]}` }
	d.get("/v1/quotas?user=alice", admin).want(200, quotas(left))
	d.get("/v1/quotas?default_user=true", admin).want(200, quotas(nightly))
	d.get("/v1/quotas?user=bob", admin).want(200, quotas())
	var listed struct {
		Quotas []struct{ Limits map[string]float64 }
	}
	if d.get("/v1/quotas", admin).into(200, &listed); len(listed.Quotas) != 3 {
		t.Errorf("listed are %v", listed)
	}
	d.do("DELETE", "/v1/quotas?client_id=nightly", "", admin).refused(404, "unknown_quota") // it is one of the default user
	d.do("DELETE", "/v1/quotas?client_id=nightly&default_user=true", "", admin).want(204, "")
	d.do("DELETE", "/v1/quotas?user=alice", "", admin).want(204, "")
	d.do("DELETE", "/v1/quotas?user=alice", "", admin).refused(404, "unknown_quota")
	d.do("DELETE", "/v1/quotas?damaged=true", "", admin).want(200, `{"deleted":0}`)
	change(`{"ip":"10.0.0.1","limits":{"connection_creation_rate":null}}`).want(200, `{"ip":"10.0.0.1","limits":{}}`)
	d.get("/v1/quotas", admin).want(200, quotas())
	for path, word := range map[string]string{"": "it is empty", "?user=a&default_user=true": "contradict", "?user=a&ip=10.0.0.1": "cannot be combined", "?damaged=true&user=a": "leave"} {
		d.do("DELETE", "/v1/quotas"+path, "", admin).refused(400, "invalid_request", word)
	}
	for body, word := range map[string]string{
		`{"limits":{"producer_byte_rate":5}}`:                  "it is empty",
		`{"user":"a","limits":{"producer_byte_rate":0}}`:       "greater than 0",
		`{"user":"a","limits":{"producer_byte_rate":0.5}}`:     "whole number",
		`{"user":"a","limits":{"connection_creation_rate":5}}`: "unknown for user a",
		`{"ip":"a","limits":{"connection_creation_rate":5}}`:   "not an IP address",
	} {
		change(body).refused(400, "invalid_request", word)
	}
	for body, word := range map[string]string{
		`{"user":"a","default_user":true,"limits":{}}`:       "contradict",
		`{"default_user":true,"user":"a","limits":{}}`:       "contradict",
		`{"user":"a","limits":{"producer_byte_rat":5}}`:      "did you mean producer_byte_rate",
		`{"user":"a","limits":{"producer_byte_rate":1e999}}`: "too large",
		`{"user":"a","limits":{"producer_byte_rate":"5"}}`:   "number",
		`{"user":"a","limit":{}}`:                            "did you mean limits",
	} {
		change(body).refused(400, "invalid_json", word)
	}
}

// refusing is a store that takes no change of what decides who may do what, or does not say whether
// it took one.
type refusing struct {
	eventlog.Store
	err  error
	done bool // it takes them all the same, and then says of none what became of it
	lost bool
}

func (s *refusing) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if s.lost {
		return nil, eventlog.ErrUnavailable
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *refusing) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, e := range flush {
		for _, p := range e.Puts {
			if name, _, _ := strings.Cut(p.Key, "/"); s.err != nil && slices.Contains([]string{"apikey", "scram", "acl", "quota"}, name) {
				if s.done {
					if _, err := s.Store.Commit(ctx, flush); err != nil {
						return nil, err
					}
					s.lost = true
				}
				return nil, s.err
			}
		}
	}
	return s.Store.Commit(ctx, flush)
}

// What may have happened is never told as not done, and what did not happen not as unknown.
func TestChangesOfAccessTellWhetherTheyHappened(t *testing.T) {
	store := &refusing{Store: memory.New()}
	d, admin := administered(t, store)
	d.asJSON("POST", "/v1/users", `{"name":"alice","password":"a long password","iterations":4096}`, admin).contains(201, "alice")
	d.asJSON("POST", "/v1/acls", `{"principal":"User:alice","effect":"allow","operation":"read","resource_type":"topic","name":"a"}`, admin).contains(200, "alice")
	d.asJSON("PATCH", "/v1/quotas", `{"user":"alice","limits":{"producer_byte_rate":5}}`, admin).contains(200, "alice")
	var key keyAnswer
	d.asJSON("POST", "/v1/keys", `{"name":"shop","access":["read"],"topics":["a"]}`, admin).into(201, &key)
	if said := d.said.String(); strings.Count(said, "rights were changed") != 4 || !strings.Contains(said, key.ID) || !strings.Contains(said, "User:alice") || strings.Contains(said, "a long password") {
		t.Errorf("the log says %s", said)
	}
	const again = "Send the request again: this is safe"
	for _, c := range [][4]string{
		{"POST", "/v1/keys", `{"name":"mail","access":["read"],"topics":["a"]}`, "nobody has its secret"},
		{"POST", "/v1/keys/" + key.ID + "/rotate", "", "nobody has its secret"},
		{"DELETE", "/v1/keys/" + key.ID, "", again},
		{"POST", "/v1/users", `{"name":"bob","password":"a long password","iterations":4096}`, "/v1/users/bob shows"},
		{"PUT", "/v1/users/alice/password", `{"password":"another password","iterations":4096}`, again},
		{"POST", "/v1/acls", `{"principal":"User:bob","effect":"allow","operation":"read","resource_type":"topic","name":"a"}`, again},
		{"PATCH", "/v1/quotas", `{"user":"bob","limits":{"producer_byte_rate":5}}`, again},
		{"DELETE", "/v1/quotas?user=alice", "", again},
		{"DELETE", "/v1/acls?principal=User:alice", "", again},
		{"DELETE", "/v1/users/alice", "", again},
	} {
		d.said.Reset()
		store.err, store.done = eventlog.ErrUnavailable, false
		d.asJSON(c[0], c[1], c[2], admin).refused(503, "unavailable", "Nothing happened")
		store.err, store.done = eventlog.ErrStale, false
		d.asJSON(c[0], c[1], c[2], admin).refused(503, "unavailable", "Nothing happened")
		if strings.Contains(d.said.String(), "rights were changed") {
			t.Errorf("%s %s: nothing happened, and the log says %s", c[0], c[1], d.said)
		}
		store.err, store.done = eventlog.ErrUnsure, true
		d.asJSON(c[0], c[1], c[2], admin).refused(500, "outcome_unknown", c[3])
		if said := d.said.String(); !strings.Contains(said, "rights were changed") || !strings.Contains(said, "unknown=true") {
			t.Errorf("%s %s: the log says %s", c[0], c[1], said)
		}
		store.err, store.lost = nil, false
	}
}

// A store that is full of them refuses more, and nothing of the request happens.
func TestMoreThanAStoreMayHaveIsRefused(t *testing.T) {
	store := memory.New()
	d, admin := administered(t, store)
	d.populate(managing(store), 1000)
	before, err := store.List(t.Context(), "", "", 10_000)
	if err != nil {
		t.Fatal(err)
	}
	d.asJSON("POST", "/v1/keys", `{"name":"shop","access":["read"],"topics":["a"]}`, admin).refused(409, "too_many_keys", "1000")
	d.asJSON("POST", "/v1/users", `{"name":"bob","password":"a long password","iterations":4096}`, admin).refused(409, "too_many_users", "1000")
	d.asJSON("POST", "/v1/acls", `{"principal":"User:bob","effect":"allow","operation":"read","resource_type":"topic","name":"a"}`, admin).refused(409, "too_many_acls", "1000")
	d.asJSON("PATCH", "/v1/quotas", `{"user":"bob","limits":{"producer_byte_rate":5}}`, admin).refused(409, "too_many_quotas", "1000")
	if after, err := store.List(t.Context(), "", "", 10_000); err != nil || len(after) != len(before) {
		t.Errorf("the store had %d keys, and has %d, %v", len(before), len(after), err)
	}
}

// populate makes so many keys in all, users, rules and quotas.
func (d *door) populate(cfg httpapi.Config, n int) {
	d.t.Helper()
	ctx := d.t.Context()
	listed, err := cfg.Keys.List(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	for i := len(listed); i < n; i++ {
		spec := apikey.Spec{Name: fmt.Sprint("key", i), Access: []apikey.Access{apikey.Read}, Topics: []string{"orders.", "invoices."}, Queues: []string{"mail"}}
		if _, _, err := cfg.Keys.Create(ctx, spec); err != nil {
			d.t.Fatal(err)
		}
	}
	c, err := user.FromSalted(user.SHA256, []byte("salt"), make([]byte, 32), user.IterationsMin)
	if err != nil {
		d.t.Fatal(err)
	}
	var users []user.Change
	var rules []acl.Binding
	var quotas []quota.Change
	for i := range n {
		name := fmt.Sprint("user", i)
		users = append(users, user.Change{Name: name, Set: map[user.Mechanism]user.Credential{user.SHA256: c}})
		rules = append(rules, acl.Binding{Principal: "User:many", Host: acl.Everywhere, Rule: acl.Rule{Kind: acl.Topic, Name: name, Operation: acl.Read}})
		quotas = append(quotas, quota.Change{Entity: quota.Entity{User: quota.Named(name)}, Set: map[quota.Kind]float64{quota.ProducerByteRate: 5}})
	}
	for _, errs := range [][]error{cfg.Users.Change(ctx, users), cfg.ACLs.Create(ctx, rules), cfg.Quotas.Change(ctx, quotas)} {
		for _, err := range errs {
			if err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

// administrator makes an administrator's key, and many others: from then on all clients need a key.
// It returns a line for the head of a request. cfg is the door's own, so that the door knows of the
// key at once.
func (d *door) administrator(cfg httpapi.Config) (line string) {
	d.t.Helper()
	key := apikey.Spec{Name: "root", Access: []apikey.Access{apikey.Admin}, AllTopics: true, AllGroups: true}
	_, secret, err := cfg.Keys.Create(d.t.Context(), key)
	if err != nil {
		d.t.Fatal(err)
	}
	d.populate(cfg, 900)
	return "Authorization: Bearer " + secret + "\r\n"
}

// manages reports whether a route is about keys, users, rules or quotas.
func manages(pattern string) bool {
	_, path, _ := strings.Cut(pattern, " ")
	return slices.ContainsFunc([]string{"/v1/keys", "/v1/users", "/v1/acls", "/v1/quotas"}, func(p string) bool { return strings.HasPrefix(path, p) })
}
