package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/apikey"
)

// namesIn returns the names of the elements of a list in an answer.
func namesIn(t *testing.T, w *httptest.ResponseRecorder, list string) (names []string) {
	t.Helper()
	var all map[string][]struct{ Name, Group string }
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil || w.Code != 200 {
		t.Fatalf("%d, %v: %s", w.Code, err, w.Body)
	}
	for _, one := range all[list] {
		names = append(names, one.Name+one.Group)
	}
	return names
}

// A key for one queue does all that the queue needs, with its dead letters and handled messages,
// and nothing to queues whose names begin so.
func TestAKeyForOneQueueReachesItAndNoOther(t *testing.T) {
	door := lock(t, Config{})
	_, root := door.key(t, apikey.Spec{Access: admins})
	_, mailer := door.key(t, apikey.Spec{Access: admins, QueueNames: []string{"mail"}})
	step := func(secret, method, path, body string, want int) *httptest.ResponseRecorder {
		t.Helper()
		w := door.bearer(secret, method, "/v1/queues"+path, body)
		if w.Code != want {
			t.Errorf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, want)
		}
		return w
	}
	for _, other := range []string{"mail2", "mail.eu"} {
		step(root, "POST", "", fmt.Sprintf(`{"name":%q}`, other), 201)
	}
	step(mailer, "POST", "", `{"name":"mail","settings":{"keep_done":true,"priorities":2}}`, 201)
	for range 2 {
		step(mailer, "POST", "/mail/messages", "hello", 200)
	}
	var receipts []string
	for len(receipts) < 2 {
		var claimed struct{ Messages []struct{ Receipt string } }
		w := step(mailer, "POST", "/mail/claim", `{"max":2,"wait_ms":5000}`, 200)
		if err := json.Unmarshal(w.Body.Bytes(), &claimed); err != nil || len(claimed.Messages) == 0 {
			t.Fatalf("%v: %s", err, w.Body)
		}
		for _, m := range claimed.Messages {
			receipts = append(receipts, m.Receipt)
		}
	}
	step(mailer, "POST", "/mail/ack", fmt.Sprintf(`{"receipts":[%q]}`, receipts[0]), 207)
	step(mailer, "POST", "/mail/nack", fmt.Sprintf(`{"receipts":[%q],"reject":true}`, receipts[1]), 207)
	if w := step(mailer, "GET", "/mail/dead", "", 200); !strings.Contains(w.Body.String(), "hello") {
		t.Errorf("the dead letters are %s", w.Body)
	}
	if w := step(mailer, "POST", "/mail/dead/redrive", `{"all":true}`, 200); !strings.Contains(w.Body.String(), `"taken":1`) {
		t.Errorf("redriven: %s", w.Body)
	}
	for _, other := range []string{"/mail2", "/mail.eu"} {
		step(mailer, "GET", other, "", 403)
		step(mailer, "GET", other+"/dead", "", 403)
		step(mailer, "POST", other+"/messages", "hello", 403)
		step(mailer, "POST", other+"/claim", `{}`, 403)
		step(mailer, "DELETE", other, "", 403)
	}
	step(mailer, "POST", "", `{"name":"mail3"}`, 403)
	if got := namesIn(t, step(mailer, "GET", "", "", 200), "queues"); !slices.Equal(got, []string{"mail"}) {
		t.Errorf("it lists %q", got)
	}
	if w := door.bearer(mailer, "GET", "/v1/topics/mail", ""); w.Code != 403 {
		t.Errorf("its topic by itself: %d, want 403", w.Code)
	}
	step(mailer, "DELETE", "/mail", "", 204)
}

func TestAKeyForOneTopicAndOneGroupIsMadeOverHTTP(t *testing.T) {
	door := lock(t, Config{})
	_, root := door.key(t, apikey.Spec{Access: admins})
	if w := door.bearer(root, "POST", "/v1/topics", `{"name":"orders.eu2"}`); w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var made, found keyView
	w := door.bearer(root, "POST", "/v1/keys", `{"name":"one","access":["read"],"topic_names":["orders.eu"],"group_names":["billing"]}`)
	if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code != 201 {
		t.Fatalf("%d, %v: %s", w.Code, err, w.Body)
	}
	w = door.bearer(root, "GET", "/v1/keys/"+made.ID, "")
	if err := json.Unmarshal(w.Body.Bytes(), &found); err != nil || !slices.Equal(found.TopicNames, []string{"orders.eu"}) || !slices.Equal(found.GroupNames, []string{"billing"}) ||
		!slices.Equal(found.QueueNames, []string{"orders.eu"}) || len(found.Topics)+len(found.Groups)+len(found.Queues) > 0 {
		t.Errorf("the key is %s", w.Body)
	}
	for path, want := range map[string]int{"/v1/topics/orders.eu": 200, ordersPage: 200, "/v1/topics/orders.eu2": 403, "/v1/topics/orders.eu2/partitions/0/events": 403, "/v1/topics/users": 403} {
		if w := door.bearer(made.Secret, "GET", path, ""); w.Code != want {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	if got := namesIn(t, door.bearer(made.Secret, "GET", "/v1/topics", ""), "topics"); !slices.Equal(got, []string{"orders.eu"}) {
		t.Errorf("it lists the topics %q", got)
	}
	door.join(t, root, "billing2")
	door.join(t, made.Secret, "billing")
	if w := door.bearer(made.Secret, "POST", "/v1/groups/billing2/members", `{"topics":["orders.eu"]}`); w.Code != 403 {
		t.Errorf("join another group: %d %s, want 403", w.Code, w.Body)
	}
	if got := namesIn(t, door.bearer(made.Secret, "GET", "/v1/groups", ""), "groups"); !slices.Equal(got, []string{"billing"}) {
		t.Errorf("it lists the groups %q", got)
	}
	rules := door.bearer(root, "GET", "/v1/acls?principal=User:one&name=orders.eu&pattern=literal", "")
	if text := rules.Body.String(); !strings.Contains(text, `"prefixed":false`) || !strings.Contains(text, made.ID) {
		t.Errorf("as rules: %s", text)
	}
	for _, body := range []string{
		`{"name":"a","access":["read"],"topic_names":["orders.*"]}`, `{"name":"a","access":["read"],"topic_names":["a"],"all_topics":true,"all_groups":true}`,
		`{"name":"a","access":["read"],"topic_names":["a"],"group_names":["*"]}`, `{"name":"a","access":["metrics"],"topic_names":["a"]}`,
	} {
		if w := door.bearer(root, "POST", "/v1/keys", body); w.Code != 400 {
			t.Errorf("%s: %d %s, want 400", body, w.Code, w.Body)
		}
	}
}

// A key for metrics reads these and nothing else.
func TestAKeyForMetricsMayDoNothingElse(t *testing.T) {
	door := lock(t, Config{})
	_, secret := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Metrics}})
	if w := door.bearer(secret, "GET", "/metrics", ""); w.Code != 200 {
		t.Errorf("/metrics: %d %s", w.Code, w.Body)
	}
	for _, rt := range api {
		method, path, _ := strings.Cut(rt.pattern, " ")
		path, _, _ = strings.Cut(path, "?")
		path = strings.NewReplacer("{topic}", "orders.eu", "{partition}", "0", "{", "", "}", "").Replace(path)
		if w := door.bearer(secret, method, path, ""); rt.needs.access != public && w.Code != 403 {
			t.Errorf("%s: %d %s, want 403", rt.pattern, w.Code, w.Body)
		}
	}
}

// Whether there is an audit or not, only administrators are told, and whoever has a key for it.
func TestTheAuditIsForAdministrators(t *testing.T) {
	door := lock(t, Config{})
	_, root := door.key(t, apikey.Spec{Access: admins})
	_, reader := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read, apikey.Write}})
	_, prefix := door.key(t, apikey.Spec{Access: admins, Topics: []string{"w"}})
	_, named := door.key(t, apikey.Spec{Access: reads, TopicNames: []string{eventlog.AuditTopic}})
	for _, path := range []string{"", "/events", "/partitions/0/events"} {
		for secret, want := range map[string]int{root: 404, named: 404, reader: 403, prefix: 403} { // this log has no audit
			if w := door.bearer(secret, "GET", "/v1/topics/"+eventlog.AuditTopic+path, ""); w.Code != want {
				t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
			}
		}
	}
	if w := door.bearer(reader, "POST", "/v1/groups/g/members", `{"topics":["`+eventlog.AuditTopic+`"]}`); w.Code != 403 {
		t.Errorf("a member of a group: %d %s, want 403", w.Code, w.Body)
	}
	if w := door.bearer(prefix, "PATCH", "/v1/topics/"+eventlog.AuditTopic, `{"config":{"retention.ms":86400000}}`); w.Code != 403 {
		t.Errorf("its settings: %d %s, want 403", w.Code, w.Body)
	}
}
