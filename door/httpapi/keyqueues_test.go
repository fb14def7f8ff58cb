package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/apikey"
)

// Every route that names a queue, and every one to come, is for keys that reach the queue.
func TestQueuesAreForTheirKeys(t *testing.T) {
	door := lock(t, Config{})
	_, root := door.key(t, apikey.Spec{Access: admins})
	const at = "/v1/queues/mail.eu"
	if w := door.bearer(root, "POST", "/v1/queues", `{"name":"mail.eu","settings":{"lease_ms":100}}`); w.Code != 201 {
		t.Fatalf("create: %d %s", w.Code, w.Body)
	}
	type step struct {
		pattern, path, body string
		access              apikey.Access
		want                int // of a key in its rights
	}
	steps := []step{
		{"GET /v1/queues/{queue}", "", "", apikey.Read, 200},
		{"PATCH /v1/queues/{queue}", "", `{"settings":{}}`, apikey.Admin, 200},
		{"POST /v1/queues/{queue}/pause", "/pause", "", apikey.Admin, 204},
		{"POST /v1/queues/{queue}/resume", "/resume", "", apikey.Admin, 204},
		{"POST /v1/queues/{queue}/messages", "/messages", "x", apikey.Write, 200},
		{"POST /v1/queues/{queue}/batch", "/batch", `{"messages":[{"value":1}]}`, apikey.Write, 200},
		{"GET /v1/queues/{queue}/messages", "/messages", "", apikey.Read, 200},
		{"GET /v1/queues/{queue}/messages/{message}", "/messages/1-1", "", apikey.Read, 404},
		{"GET /v1/queues/{queue}/schedules", "/schedules", "", apikey.Read, 200},
		{"PUT /v1/queues/{queue}/schedules/{schedule}", "/schedules/s", `{"cron":"@daily","message":{"value":1}}`, apikey.Admin, 200},
		{"GET /v1/queues/{queue}/schedules/{schedule}", "/schedules/t", "", apikey.Read, 404},
		{"DELETE /v1/queues/{queue}/schedules/{schedule}", "/schedules/s", "", apikey.Admin, 204},
		{"POST /v1/queues/{queue}/claim", "/claim", `{}`, apikey.Read, 200},
		{"POST /v1/queues/{queue}/ack", "/ack", `{"receipts":["a"]}`, apikey.Read, 400},
		{"POST /v1/queues/{queue}/nack", "/nack", `{"receipts":["a"]}`, apikey.Read, 400},
		{"POST /v1/queues/{queue}/extend", "/extend", `{"receipts":["a"]}`, apikey.Read, 400},
		{"GET /v1/queues/{queue}/dead", "/dead", "", apikey.Read, 200},
		{"POST /v1/queues/{queue}/dead/redrive", "/dead/redrive", `{"all":true}`, apikey.Admin, 200},
		{"POST /v1/queues/{queue}/dead/discard", "/dead/discard", `{"all":true}`, apikey.Admin, 200},
		{"POST /v1/queues/{queue}/purge", "/purge", "", apikey.Admin, 204},
		{"DELETE /v1/queues/{queue}", "", "", apikey.Admin, 204}, // and made anew below
	}
	for _, rt := range api {
		pattern, _, _ := strings.Cut(rt.pattern, "?")
		if strings.Contains(pattern, "{queue}") && !slices.ContainsFunc(steps, func(s step) bool { return s.pattern == pattern && s.access == rt.needs.access }) {
			t.Errorf("%s is not tried, or for another access", rt.pattern)
		}
	}
	writes := []apikey.Access{apikey.Write}
	for _, c := range []struct {
		name string
		spec apikey.Spec
		in   bool
	}{
		{"an admin of all", apikey.Spec{Access: admins}, true},
		{"a reader of the queue", apikey.Spec{Access: reads, Queues: []string{"mail."}}, true},
		{"a writer of the queue", apikey.Spec{Access: writes, Queues: []string{"bills", "mail."}}, true},
		{"an admin of the queue", apikey.Spec{Access: admins, Queues: []string{"mail."}}, true},
		{"its topic", apikey.Spec{Access: admins, Topics: []string{"mail."}}, true}, // whose queues begin alike
		{"its topic and another queue", apikey.Spec{Access: admins, Topics: []string{"mail."}, Queues: []string{"bills"}}, false},
		{"another queue", apikey.Spec{Access: admins, Queues: []string{"mail.us", "bills"}}, false},
		{"other topics", apikey.Spec{Access: admins, Topics: []string{"users"}}, false},
		{"all topics, some groups", apikey.Spec{Access: admins, Groups: []string{"mail."}}, false},
	} {
		_, secret := door.key(t, c.spec)
		for _, step := range steps {
			method, _, _ := strings.Cut(step.pattern, " ")
			want := step.want
			if !c.in || !slices.Contains(c.spec.Access, step.access) && !slices.Contains(c.spec.Access, apikey.Admin) {
				want = 403
			}
			if w := door.bearer(secret, method, at+step.path, step.body); w.Code != want {
				t.Errorf("a key for %s, %s: %d %s, want %d", c.name, step.pattern, w.Code, w.Body, want)
			}
		}
		door.bearer(root, "POST", "/v1/queues", `{"name":"mail.eu","settings":{"lease_ms":100}}`)
		var list struct{ Queues []struct{ Name string } }
		if w := door.bearer(secret, "GET", "/v1/queues", ""); w.Code == 200 {
			if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
		}
		if want := c.in && c.spec.Access[0] != apikey.Write; want != (len(list.Queues) == 1) {
			t.Errorf("a key for %s lists %v", c.name, list.Queues)
		}
	}
}

// A key for a queue reaches the queue's messages, and nothing else by way of them.
func TestAQueueKeyReachesNoOtherMessages(t *testing.T) {
	door := lock(t, Config{})
	_, root := door.key(t, apikey.Spec{Access: admins})
	_, mailer := door.key(t, apikey.Spec{Access: admins, Queues: []string{"mail"}})
	if w := door.bearer(mailer, "POST", "/v1/queues", `{"name":"mail"}`); w.Code != 201 {
		t.Fatalf("create its own queue: %d %s", w.Code, w.Body)
	}
	for path, body := range map[string]string{
		"/v1/queues/mail/messages": "hello",
		"/v1/queues/mail/claim":    `{}`,
	} {
		if w := door.bearer(mailer, "POST", path, body); w.Code != 200 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/v1/topics/mail", "/v1/topics/mail/partitions/0/events", "/v1/topics/mail/events", "/metrics"} {
		if w := door.bearer(mailer, "GET", path, ""); w.Code != 403 {
			t.Errorf("%s: %d %s, want 403", path, w.Code, w.Body)
		}
	}
	if w := door.bearer(mailer, "POST", "/v1/topics/mail/events", "x"); w.Code != 403 {
		t.Errorf("publish to the queue's topic: %d %s, want 403", w.Code, w.Body)
	}
	// A queue on a topic that is there opens it.
	for _, body := range []string{`{"name":"mail2","topic":"users"}`, `{"name":"mail2","topic":"orders.eu"}`, `{"name":"mail2","topic":"none"}`, `{"name":"users"}`} {
		if w := door.bearer(mailer, "POST", "/v1/queues", body); w.Code != 403 {
			t.Errorf("%s: %d %s, want 403", body, w.Code, w.Body)
		}
	}
	there, none := door.bearer(mailer, "POST", "/v1/queues", `{"name":"mail2","topic":"users"}`), door.bearer(mailer, "POST", "/v1/queues", `{"name":"mail2","topic":"none"}`)
	body := func(w *httptest.ResponseRecorder) string {
		before, _, _ := strings.Cut(w.Body.String(), `"request_id"`)
		return before
	}
	if strings.ReplaceAll(body(there), "users", "none") != body(none) {
		t.Errorf("the key is told which topics there are: %s, but %s", there.Body, none.Body)
	}
	for _, taken := range []string{"mail3", "mail4.dlt", "mail5.p1", "mail6.done"} {
		if w := door.bearer(root, "POST", "/v1/topics", fmt.Sprintf(`{"name":%q}`, taken)); w.Code != 201 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		name, _, _ := strings.Cut(taken, ".")
		if w := door.bearer(mailer, "POST", "/v1/queues", fmt.Sprintf(`{"name":%q,"settings":{"priorities":2}}`, name)); w.Code != 403 || !strings.Contains(w.Body.String(), taken) {
			t.Errorf("a queue where topic %s is there: %d %s, want 403", taken, w.Code, w.Body)
		}
		if w := door.bearer(root, "POST", "/v1/queues", fmt.Sprintf(`{"name":%q}`, "root-"+name)); w.Code != 201 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	// Nor does one that is set so that it uses one more topic.
	for _, setting := range []string{`"priorities":2`, `"keep_done":true`} {
		taken := map[string]string{`"priorities":2`: "mail.p1", `"keep_done":true`: "mail.done"}[setting]
		if w := door.bearer(root, "POST", "/v1/topics", fmt.Sprintf(`{"name":%q}`, taken)); w.Code != 201 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		body := `{"settings":{` + setting + `}}`
		if w := door.bearer(mailer, "PATCH", "/v1/queues/mail", body); w.Code != 403 || !strings.Contains(w.Body.String(), taken) {
			t.Errorf("%s where topic %s is there: %d %s, want 403", body, taken, w.Code, w.Body)
		}
		if w := door.bearer(mailer, "PATCH", "/v1/queues/mail", `{"settings":{"attempts":3}}`); w.Code != 200 {
			t.Errorf("another setting: %d %s", w.Code, w.Body)
		}
		if w := door.bearer(root, "PATCH", "/v1/queues/mail", body); w.Code != 200 {
			t.Errorf("%s by a key that may: %d %s", body, w.Code, w.Body)
		}
	}
	_, both := door.key(t, apikey.Spec{Access: admins, Queues: []string{"mail"}, Topics: []string{"users"}})
	if w := door.bearer(both, "POST", "/v1/queues", `{"name":"mail7","topic":"users"}`); w.Code != 201 {
		t.Errorf("a queue on a topic of the key: %d %s", w.Code, w.Body)
	}
	// Receipts, letters and ids of another queue are worth nothing here.
	door.bearer(root, "POST", "/v1/queues", `{"name":"bills"}`)
	w := door.bearer(root, "POST", "/v1/queues/bills/messages", "secret")
	var enqueued struct{ ID string }
	_ = json.Unmarshal(w.Body.Bytes(), &enqueued)
	w = door.bearer(root, "POST", "/v1/queues/bills/claim", `{}`)
	var claimed struct{ Messages []struct{ Receipt string } }
	_ = json.Unmarshal(w.Body.Bytes(), &claimed)
	receipt := claimed.Messages[0].Receipt
	for _, verb := range []string{"ack", "nack", "extend"} {
		body := fmt.Sprintf(`{"receipts":[%q]}`, receipt)
		if w := door.bearer(mailer, "POST", "/v1/queues/bills/"+verb, body); w.Code != 403 {
			t.Errorf("%s of a message that another key claimed from another queue: %d %s, want 403", verb, w.Code, w.Body)
		}
		if w := door.bearer(mailer, "POST", "/v1/queues/mail/"+verb, body); w.Code != 409 || !strings.Contains(w.Body.String(), "of another queue") {
			t.Errorf("%s at its own queue with the receipt that another key got from another queue: %d %s, want 409", verb, w.Code, w.Body)
		}
	}
	door.bearer(root, "POST", "/v1/queues/bills/nack", fmt.Sprintf(`{"receipts":[%q],"reject":true}`, receipt))
	w = door.bearer(root, "GET", "/v1/queues/bills/dead", "")
	var dead struct{ Letters []struct{ Letter string } }
	if err := json.Unmarshal(w.Body.Bytes(), &dead); err != nil || len(dead.Letters) != 1 {
		t.Fatalf("%v %s", err, w.Body)
	}
	for path, body := range map[string]string{
		"/v1/queues/mail/dead/redrive": fmt.Sprintf(`{"letters":[%q]}`, dead.Letters[0].Letter),
		"/v1/queues/mail/dead/discard": fmt.Sprintf(`{"letters":[%q]}`, dead.Letters[0].Letter),
	} {
		if w := door.bearer(mailer, "POST", path, body); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"taken":0}` {
			t.Errorf("%s: %d %s, want nothing taken", path, w.Code, w.Body)
		}
	}
	if w := door.bearer(mailer, "GET", "/v1/queues/mail/messages/"+enqueued.ID, ""); w.Code != 404 {
		t.Errorf("a message of another queue: %d %s, want 404", w.Code, w.Body)
	}
	if w := door.bearer(mailer, "GET", "/v1/queues/mail/dead?after="+dead.Letters[0].Letter, ""); strings.Contains(w.Body.String(), "secret") {
		t.Errorf("dead letters of another queue: %s", w.Body)
	}
}

func TestOneKeyDoesNotTakeAllClaimsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{}.With(Limits{Claims: 8}))
		_, root := door.key(t, apikey.Spec{Access: admins})
		_, greedy := door.key(t, apikey.Spec{Access: reads, Queues: []string{"mail"}})
		door.bearer(root, "POST", "/v1/queues", `{"name":"mail"}`)
		answered := make(chan *httptest.ResponseRecorder, 3)
		for range 3 {
			go func() { answered <- door.bearer(greedy, "POST", "/v1/queues/mail/claim", `{"wait_ms":5000}`) }()
		}
		synctest.Wait()
		if w := <-answered; w.Code != 429 || !strings.Contains(w.Body.String(), "too_many_claims") || !strings.Contains(w.Body.String(), `"limit":2`) {
			t.Errorf("a third: %d %s, want 429 with the limit 2", w.Code, w.Body)
		}
		if w := door.bearer(greedy, "POST", "/v1/queues/mail/claim", `{}`); w.Code != 200 {
			t.Errorf("one that does not wait: %d %s", w.Code, w.Body)
		}
		if w := door.bearer(root, "POST", "/v1/queues/mail/claim", `{"wait_ms":1000}`); w.Code != 200 {
			t.Errorf("another key: %d %s", w.Code, w.Body)
		}
		for range 2 {
			if w := <-answered; w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if w := door.bearer(greedy, "POST", "/v1/queues/mail/claim", `{"wait_ms":1}`); w.Code != 200 {
			t.Errorf("afterwards: %d %s", w.Code, w.Body)
		}
	})
}

// A key that is revoked while its claim waits gets no message, and none is claimed for it.
func TestARevokedKeyClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		_, root := door.key(t, apikey.Spec{Access: admins})
		id, secret := door.key(t, apikey.Spec{Access: reads, Queues: []string{"mail"}})
		door.bearer(root, "POST", "/v1/queues", `{"name":"mail"}`)
		answered := make(chan *httptest.ResponseRecorder)
		go func() { answered <- door.bearer(secret, "POST", "/v1/queues/mail/claim", `{"wait_ms":9000}`) }()
		time.Sleep(time.Second)
		if _, err := door.keys.Revoke(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		door.bearer(root, "POST", "/v1/queues/mail/messages", "hello")
		if w := <-answered; w.Code != 401 {
			t.Errorf("%d %s, want 401", w.Code, w.Body)
		}
		if w := door.bearer(root, "POST", "/v1/queues/mail/claim", `{}`); !strings.Contains(w.Body.String(), `"attempt":1`) {
			t.Errorf("the message: %d %s", w.Code, w.Body)
		}
	})
}
