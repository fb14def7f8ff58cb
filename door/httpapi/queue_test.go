package httpapi_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// message is a message as a claim gives it.
type message struct {
	ID, Receipt, Value string
	ValueB64           string `json:"value_b64"`
	Key                *string
	Headers            []struct{ Name, Value string }
	Attempt            int
	Until, Timestamp   int64
}

type results []struct {
	Status  int
	Problem struct {
		Type string
		Done bool
	}
}

// queue makes a queue with settings, as JSON.
func (d *door) queue(name, settings string) {
	d.t.Helper()
	body := fmt.Sprintf(`{"name":%q,"partitions":1,"settings":{%s}}`, name, settings)
	if a := d.asJSON("POST", "/v1/queues", body); a.status != 201 || a.header.Get("Location") != "/v1/queues/"+name {
		d.t.Fatalf("create queue %s: %d %s", name, a.status, a.body)
	}
}

// enqueued enqueues one message and returns its id.
func (d *door) enqueued(path, value string, headers ...string) string {
	d.t.Helper()
	var at struct{ ID string }
	d.do("POST", path, value, headers...).into(200, &at)
	return at.ID
}

func (a answer) into(status int, v any) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%d %s, want %d", a.status, a.body, status)
	}
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
	return a
}

func (d *door) claim(queue, body string) (got struct {
	Messages []message
	Acks     results
}) {
	d.t.Helper()
	d.asJSON("POST", "/v1/queues/"+queue+"/claim", body).into(200, &got)
	return got
}

// answerFor sends receipts, and returns what became of each. The answer to one receipt that is
// refused is its problem.
func (d *door) answerFor(queue, verb, more string, receipts ...string) results {
	d.t.Helper()
	list, err := json.Marshal(receipts)
	if err != nil {
		d.t.Fatal(err)
	}
	answer := d.asJSON("POST", "/v1/queues/"+queue+"/"+verb, fmt.Sprintf(`{"receipts":%s%s}`, list, more))
	if len(receipts) == 1 && answer.status != 207 {
		one := make(results, 1)
		answer.into(answer.status, &one[0].Problem)
		one[0].Status = answer.status
		return one
	}
	var got struct {
		Results results
		Failed  int
	}
	answer.into(207, &got)
	failed := 0
	for _, r := range got.Results {
		if r.Status != 204 {
			failed++
		}
	}
	if got.Failed != failed {
		d.t.Errorf("%s: %d failed, the answer says: %s", verb, failed, answer.body)
	}
	return got.Results
}

// Another process purges the queue while a claim waits that has acknowledged: the claim goes on,
// and its answer has the results of the acks.
func TestAClaimThatAcknowledgedGoesOnAfterAPurge(t *testing.T) {
	store := memory.New()
	d, other := openOn(t, store, httpapi.Config{}), openOn(t, store, httpapi.Config{})
	d.queue("mail", "")
	id := d.enqueued("/v1/queues/mail/messages", "a")
	receipt := d.claim("mail", `{}`).Messages[0].Receipt
	answered := make(chan answer)
	go func() {
		answered <- d.asJSON("POST", "/v1/queues/mail/claim", fmt.Sprintf(`{"ack":[%q],"wait_ms":60000}`, receipt))
	}()
	for found := (struct{ State string }{}); found.State != "done"; {
		other.get("/v1/queues/mail/messages/"+id).into(200, &found)
	}
	if a := other.do("POST", "/v1/queues/mail/purge", ""); a.status != 204 {
		t.Fatalf("purge: %d %s", a.status, a.body)
	}
	other.enqueued("/v1/queues/mail/messages", "b")
	var got struct {
		Messages []message
		Acks     results
	}
	a := <-answered
	a.into(200, &got)
	if len(got.Messages) != 1 || got.Messages[0].Value != "b" || len(got.Acks) != 1 || got.Acks[0].Status != 204 {
		t.Errorf("the claim that waited: %s", a.body)
	}
}

// A client that looks at the status alone learns that its one receipt is refused.
func TestTheAnswerToOneReceiptIsItsProblem(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.queue("mail", "")
	d.queue("bills", "")
	for range 3 {
		d.enqueued("/v1/queues/mail/messages", "a")
	}
	ms := d.claim("mail", `{"max":3}`).Messages
	for i, verb := range []string{"ack", "nack", "extend"} {
		path, mine := "/v1/queues/mail/"+verb, ms[i].Receipt
		d.asJSON("POST", path, `{"receipts":["nonsense"]}`).refused(400, "bad_receipt")
		d.asJSON("POST", "/v1/queues/bills/"+verb, fmt.Sprintf(`{"receipts":[%q]}`, mine)).refused(409, "stale_receipt")
		d.asJSON("POST", path, fmt.Sprintf(`{"receipts":[%q]}`, mine)).want(207, `{"failed":0,"results":[{"status":204}]}`)
		d.answerFor("mail", "ack", "", mine)
		d.asJSON("POST", path, fmt.Sprintf(`{"receipts":[%q]}`, mine)).refused(409, "stale_receipt")
		if got := d.answerFor("mail", verb, "", mine, "nonsense"); got[0].Status != 409 || got[1].Status != 400 {
			t.Errorf("%s of several receipts: %+v", verb, got)
		}
	}
	d.asJSON("POST", "/v1/queues/mail/ack", fmt.Sprintf(`{"receipts":[%q]}`, ms[0].Receipt)).refused(409, "stale_receipt", `"done":true`)
}

func TestAQueueIsCreatedDescribedAlteredAndDeleted(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.asJSON("POST", "/v1/queues", `{"name":"mail"}`)
		type view struct {
			Name, Topic string
			Settings    json.RawMessage
			Counts      json.RawMessage
		}
		var v view
		d.get("/v1/queues/mail").into(200, &v)
		defaults := `{"lease_ms":30000,"attempts":10,"backoff_ms":1000,"backoff_max_ms":300000,"drop_expired":false,"key_order":false,"keep_done":false,"window":2000,"paused":false,"unique":false,"priorities":1}`
		if v.Topic != "mail" || !same(string(v.Settings), defaults) || !same(string(v.Counts), `{"ready":0,"claimed":0,"waiting":0,"delayed":0,"dead":0,"oldest_ms":0}`) {
			t.Errorf("a new queue: %+v", v)
		}
		d.asJSON("POST", "/v1/queues", `{"name":"mail"}`).refused(409, "queue_exists")
		all := `{"lease_ms":1000,"attempts":-1,"backoff_ms":1,"backoff_max_ms":2,"delays_ms":[0,5],"ttl_ms":60000,"drop_expired":true,"key_order":true,"keep_done":true,"window":5,"paused":true,"unique":true,"concurrency":3,"rate":0.5,"priorities":2}`
		d.asJSON("PATCH", "/v1/queues/mail", `{"settings":`+all+`}`).into(200, &v)
		if !same(string(v.Settings), all) {
			t.Errorf("altered: %s", v.Settings)
		}
		back := `{"lease_ms":null,"attempts":null,"backoff_ms":null,"backoff_max_ms":null,"delays_ms":null,"ttl_ms":null,"drop_expired":null,"key_order":null,"keep_done":null,"window":null,"paused":null,"unique":null,"concurrency":null,"rate":null,"priorities":2}`
		d.asJSON("PATCH", "/v1/queues/mail", `{"settings":`+back+`}`).into(200, &v)
		if want := strings.Replace(defaults, `"priorities":1`, `"priorities":2`, 1); !same(string(v.Settings), want) {
			t.Errorf("back to the defaults: %s, want %s", v.Settings, want)
		}
		var list struct{ Queues []view }
		if d.get("/v1/queues").into(200, &list); len(list.Queues) != 1 || list.Queues[0].Name != "mail" || list.Queues[0].Counts != nil {
			t.Errorf("the list: %+v", list)
		}
		d.do("POST", "/v1/queues/mail/pause", "").want(204, "")
		d.enqueued("/v1/queues/mail/messages", "a")
		if got := d.claim("mail", `{}`); len(got.Messages) != 0 {
			t.Errorf("a paused queue gives out %v", got)
		}
		d.do("POST", "/v1/queues/mail/resume", "").want(204, "")
		if got := d.claim("mail", `{}`); len(got.Messages) != 1 {
			t.Errorf("a resumed queue gives out %v", got)
		}
		d.enqueued("/v1/queues/mail/messages", "b")
		d.do("POST", "/v1/queues/mail/purge", "").want(204, "")
		if got := d.claim("mail", `{}`); len(got.Messages) != 0 {
			t.Errorf("a purged queue gives out %v", got)
		}
		d.do("DELETE", "/v1/queues/mail", "").want(204, "")
		for _, path := range []string{"/v1/queues/mail", "/v1/queues/mail/dead", "/v1/queues/mail/messages/1-1"} {
			d.get(path).refused(404, "unknown_queue")
		}
		d.do("DELETE", "/v1/queues/mail", "").refused(404, "unknown_queue")
		d.do("POST", "/v1/queues/mail/messages", "x").refused(404, "unknown_queue")
		d.asJSON("POST", "/v1/queues/mail/claim", `{}`).refused(404, "unknown_queue")
		d.get("/v1/topics/mail").into(200, &struct{}{}) // its topic may have other readers
	})
}

func TestMessagesAreEnqueuedClaimedAndAnsweredFor(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.queue("mail", `"attempts":2,"delays_ms":[0],"unique":true,"priorities":2`)
		id := d.enqueued("/v1/queues/mail/messages?key=k", "hello", "Weir-Header: a=b")
		var many struct {
			Messages []struct {
				ID       string
				Repeated bool
			}
		}
		d.asJSON("POST", "/v1/queues/mail/batch", `{"messages":[{"value":{"n":1.0},"unique":"u"},{"value_b64":"/w==","key_b64":"/w==","headers":[{"name":"h","value":"v"}]},
			{"value":"again","unique":"u"},{"value":"urgent","priority":1},{"value":"later","delay_ms":86400000},{"value":"past","at":1}]}`).into(200, &many)
		if len(many.Messages) != 6 || !many.Messages[2].Repeated || many.Messages[2].ID != many.Messages[0].ID || many.Messages[1].Repeated {
			t.Fatalf("enqueued %+v", many)
		}
		d.do("POST", "/v1/queues/mail/batch", "{\"value\":\"line\"}\n\n{\"value\":null}\n", "Content-Type: application/x-ndjson").into(200, &many)

		first := d.claim("mail", `{"max":2,"lease_ms":60000,"worker":"w1"}`).Messages
		if len(first) != 2 || first[0].Value != "urgent" || first[1].ID != id || first[1].Value != "hello" || *first[1].Key != "k" || first[1].Headers[0].Name != "a" ||
			first[1].Attempt != 1 || first[1].Until < time.Now().Add(50*time.Second).UnixMilli() || first[1].Timestamp == 0 {
			t.Fatalf("claimed %+v", first)
		}
		var peeked struct {
			Messages []struct {
				ID, State, Worker, Value string
				Attempt                  int
			}
		}
		d.get("/v1/queues/mail/messages?max=2").into(200, &peeked)
		if m := peeked.Messages; len(m) != 2 || m[0].ID != id || m[0].State != "claimed" || m[0].Worker != "w1" || m[0].Value != "hello" || m[1].State != "ready" || m[1].Attempt != 0 {
			t.Errorf("peeked at %+v", peeked)
		}
		for state, want := range map[string]string{"claimed": "urgent hello ", "delayed": "later ", "done": ""} {
			values, from := "", ""
			for {
				var page struct {
					Messages []struct{ State, Value string }
					Next     string
				}
				d.get("/v1/queues/mail/messages?max=1&state="+state+from).into(200, &page)
				for _, m := range page.Messages {
					if values += m.Value + " "; m.State != state {
						t.Errorf("listed by %s: %+v", state, m)
					}
				}
				if page.Next == "" {
					break
				}
				from = "&from=" + page.Next
			}
			if have, want := strings.Fields(values), strings.Fields(want); len(have) != len(want) || len(want) > 0 && !strings.Contains(values, want[0]) {
				t.Errorf("messages that are %s: %q, want %q", state, have, want)
			}
		}
		for _, refused := range []string{"state=dead", "state=", "from=x", "from=99999-0"} {
			d.get("/v1/queues/mail/messages?"+refused).refused(400, "invalid_request")
		}
		var found struct {
			State, Worker, Error string
			Attempt              int
		}
		if d.get("/v1/queues/mail/messages/"+id).into(200, &found); found.State != "claimed" || found.Worker != "w1" || found.Attempt != 1 {
			t.Errorf("a claimed message: %+v", found)
		}
		if got := d.answerFor("mail", "extend", `,"lease_ms":120000`, first[0].Receipt); got[0].Status != 204 {
			t.Errorf("extend: %+v", got)
		}
		more := d.claim("mail", fmt.Sprintf(`{"max":10,"ack":[%q,"nonsense",%q]}`, first[0].Receipt, first[0].Receipt))
		if a := more.Acks; len(a) != 3 || a[0].Status != 204 || a[1].Status != 400 || a[1].Problem.Type != "urn:weir:problem:bad_receipt" || a[2].Status != 204 {
			t.Errorf("acks of a claim: %+v", a)
		}
		var values []string
		for _, m := range more.Messages {
			if m.ValueB64 != "" {
				raw, _ := base64.StdEncoding.DecodeString(m.ValueB64)
				m.Value = fmt.Sprintf("%x", raw)
			}
			values = append(values, m.Value)
		}
		if got := strings.Join(values, " "); got != `{"n":1.0} ff past line ` {
			t.Errorf("claimed the rest: %q", got)
		}
		if got := d.answerFor("mail", "nack", `,"error":"no such address","reject":true`, more.Messages[0].Receipt, first[1].Receipt); got[0].Status != 204 || got[1].Status != 204 {
			t.Errorf("nack: %+v", got)
		}
		if got := d.answerFor("mail", "nack", `,"delay_ms":0`, more.Messages[1].Receipt); got[0].Status != 204 {
			t.Errorf("nack: %+v", got)
		}
		again := d.claim("mail", `{"wait_ms":10000}`).Messages
		if len(again) != 1 || again[0].ID != more.Messages[1].ID || again[0].Attempt != 2 {
			t.Fatalf("after a nack: %+v", again)
		}
		if got := d.answerFor("mail", "ack", "", more.Messages[1].Receipt, again[0].Receipt); got[0].Status != 409 || got[0].Problem.Type != "urn:weir:problem:stale_receipt" || got[0].Problem.Done || got[1].Status != 204 {
			t.Errorf("an older receipt, and the younger: %+v", got)
		}

		var dead struct {
			Letters []struct {
				Letter, ID, Reason, Error, Worker, Value string
				Attempts                                 int
			}
		}
		d.get("/v1/queues/mail/dead").into(200, &dead)
		if len(dead.Letters) != 2 || dead.Letters[0].Reason != "rejected" || dead.Letters[0].Error != "no such address" || dead.Letters[0].Attempts != 1 {
			t.Fatalf("dead letters: %+v", dead)
		}
		if d.get("/v1/queues/mail/messages/"+id).into(200, &found); found.State != "dead" || found.Error != "no such address" {
			t.Errorf("a dead message: %+v", found)
		}
		d.asJSON("POST", "/v1/queues/mail/dead/redrive", fmt.Sprintf(`{"letters":[%q,"999-1"]}`, dead.Letters[0].Letter)).want(200, `{"taken":1}`)
		d.asJSON("POST", "/v1/queues/mail/dead/redrive", fmt.Sprintf(`{"letters":[%q]}`, dead.Letters[0].Letter)).want(200, `{"taken":0}`)
		if back := d.claim("mail", `{}`).Messages; len(back) != 1 || back[0].ID != dead.Letters[0].ID || back[0].Attempt != 1 {
			t.Errorf("redriven: %+v", back)
		}
		d.asJSON("POST", "/v1/queues/mail/dead/discard", `{"all":true}`).want(200, `{"taken":1}`)
		d.get("/v1/queues/mail/dead").want(200, `{"letters":[]}`)
		d.get("/v1/queues/mail/messages/"+many.Messages[0].ID).into(200, &found)
	})
}

func TestRedriveOfAllKeepsToItsRateAndGoesOn(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.queue("mail", ``)
		for i := range 30 {
			d.enqueued("/v1/queues/mail/messages", fmt.Sprint(i))
		}
		for _, m := range d.claim("mail", `{"max":30}`).Messages {
			d.answerFor("mail", "nack", `,"reject":true`, m.Receipt)
		}
		began := time.Now()
		var done struct {
			Taken int
			Until string
		}
		d.asJSON("POST", "/v1/queues/mail/dead/redrive", `{"all":true,"per_second":2}`).into(200, &done)
		if took := time.Since(began); done.Taken != 20 || done.Until == "" || took < 9*time.Second || took > 11*time.Second {
			t.Fatalf("%+v after %v, want 20 after 10 s, and more", done, took)
		}
		d.asJSON("POST", "/v1/queues/mail/dead/redrive", fmt.Sprintf(`{"all":true,"per_second":1000,"until":%q}`, done.Until)).want(200, `{"taken":10}`)
	})
}

// A request for many letters has one page of them in memory at a time, and takes its turn with
// those who list them.
func TestLettersAreTakenAPageAtATime(t *testing.T) {
	for _, asked := range []struct{ verb, which string }{{"redrive", "named"}, {"discard", "named"}, {"redrive", "all"}, {"discard", "all"}} {
		bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
			d.queue("mail", ``)
			const messages = 6
			for range messages {
				d.enqueued("/v1/queues/mail/messages", strings.Repeat("m", 1_000_000))
			}
			var letters []string
			for len(letters) < messages {
				for _, m := range d.claim("mail", `{"max":6}`).Messages {
					d.answerFor("mail", "nack", `,"reject":true`, m.Receipt)
				}
				var dead struct{ Letters []struct{ Letter string } }
				path := "/v1/queues/mail/dead"
				if n := len(letters); n > 0 {
					path += "?after=" + letters[n-1]
				}
				d.get(path).into(200, &dead)
				for _, l := range dead.Letters {
					letters = append(letters, l.Letter)
				}
			}
			release, err := d.server.TakePages(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			body := fmt.Sprintf(`{"letters":["999-1","%s","999-2"]}`, strings.Join(letters, `","`))
			if asked.which == "all" {
				body = `{"all":true}`
			}
			taken := make(chan answer, 1)
			go func() { taken <- d.asJSON("POST", "/v1/queues/mail/dead/"+asked.verb, body) }()
			synctest.Wait()
			if len(taken) > 0 {
				t.Errorf("%s %s without a turn", asked.verb, asked.which)
			}
			release()
			(<-taken).want(200, `{"taken":6}`)
			if a := d.get("/v1/queues/mail/dead"); !same(a.body, `{"letters":[]}`) {
				t.Errorf("letters are left: %.200s", a.body)
			}
		})
	}
}

func TestAClaimOverHTTPWaitsForAMessage(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.queue("mail", ``)
		time.AfterFunc(20*time.Second, func() { d.enqueued("/v1/queues/mail/messages", "a") })
		began := time.Now()
		got := d.claim("mail", `{"wait_ms":60000}`).Messages
		if len(got) != 1 || time.Since(began) > 21*time.Second {
			t.Fatalf("%v after %v", got, time.Since(began))
		}
		d.answerFor("mail", "ack", "", got[0].Receipt)
		began = time.Now()
		if got := d.claim("mail", `{"wait_ms":3000000}`).Messages; len(got) != 0 || time.Since(began) < 59*time.Second || time.Since(began) > 61*time.Second {
			t.Fatalf("%v after %v, want nothing after 60 s", got, time.Since(began))
		}
	})
}

func TestStoppingEndsClaimsThatWait(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.queue("mail", ``)
		time.AfterFunc(time.Second, d.cancel)
		began := time.Now()
		if got := d.claim("mail", `{"wait_ms":60000}`).Messages; len(got) != 0 || time.Since(began) > 2*time.Second {
			t.Fatalf("%v after %v", got, time.Since(began))
		}
	})
}

// A claim that nobody waits for any more gives its message to the next.
func TestAClaimWhoseClientIsGoneKeepsNothing(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.queue("mail", ``)
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "POST", "http://"+d.addr+"/v1/queues/mail/claim", strings.NewReader(`{"wait_ms":60000}`))
		r.Header.Set("Content-Type", "application/json")
		time.AfterFunc(time.Second, cancel)
		if response, err := d.client.Do(r); err == nil {
			t.Fatalf("it was answered: %v", response.Status)
		}
		time.Sleep(time.Second)
		d.enqueued("/v1/queues/mail/messages", "a")
		if got := d.claim("mail", `{}`).Messages; len(got) != 1 || got[0].Attempt != 1 {
			t.Errorf("claimed %+v", got)
		}
	})
}

// However many workers do not take their answers, these have the room that they may.
func TestClaimsShareTheRoomOfAnswers(t *testing.T) {
	d := open(t, httpapi.Config{}.With(httpapi.Limits{FetchBytes: 1 << 20}))
	d.queue("mail", `"window":10000`)
	value := strings.Repeat("x", 100<<10)
	for range 20 {
		d.enqueued("/v1/queues/mail/messages", value)
	}
	seen := 0
	for seen < 20 {
		got := d.claim("mail", `{"max":1000}`).Messages
		if len(got) > 3 {
			t.Fatalf("one answer has %d messages of 100 KiB, of 1 MiB for all answers", len(got))
		}
		for _, m := range got {
			if m.Attempt != 1 {
				t.Errorf("attempt %d of a message that nobody had", m.Attempt)
			}
		}
		seen += len(got)
	}
}

func TestQueuesThatMayNotBe(t *testing.T) {
	d := openOn(t, memory.New(), httpapi.Config{})
	d.queue(strings.Repeat("q", 244), ``)
	for body, words := range map[string]string{
		`{}`:             `\"name\" is missing`,
		`{"name":""}`:    `\"name\" is missing`,
		`{"name":"a/b"}`: "a-z", `{"name":"` + strings.Repeat("q", 245) + `"}`: "244",
		`{"name":"q","topic":""}`:                                      "it is empty",
		`{"name":"q","partitions":0}`:                                  "from 1 to 10000",
		`{"name":"q","size":1}`:                                        "size",
		`{"name":"q","settings":{"lease":1}}`:                          "lease_ms",
		`{"name":"q","settings":{"lease_ms":0}}`:                       "from 100 to 43200000",
		`{"name":"q","settings":{"lease_ms":-1}}`:                      "from 100 to 43200000",
		`{"name":"q","settings":{"lease_ms":31536000000}}`:             "from 100 to 43200000",
		`{"name":"q","settings":{"attempts":0}}`:                       "-1 for no limit",
		`{"name":"q","settings":{"delays_ms":[-1]}}`:                   "from 0",
		`{"name":"q","settings":{"rate":0}}`:                           "above 0",
		`{"name":"q","settings":{"rate":1e300}}`:                       "above 0",
		`{"name":"q","settings":{"paused":"yes"}}`:                     "true or false",
		`{"name":"q","settings":{"priorities":9}}`:                     "from 1 to 8",
		`{"name":"q","settings":{"backoff_ms":10,"backoff_max_ms":5}}`: "backoff_max",
	} {
		if a := d.asJSON("POST", "/v1/queues", body); a.status != 400 || !strings.Contains(a.body, words) {
			t.Errorf("%.80s: %d %s\nwant 400 and %q", body, a.status, a.body, words)
		}
	}
	if a := d.get("/v1/topics"); strings.Contains(a.body, `"name":"q"`) {
		t.Errorf("a queue that may not be left topics: %s", a.body)
	}
	d.queue("mail", `"priorities":3`)
	d.asJSON("PATCH", "/v1/queues/mail", `{"settings":{"priorities":2}}`).refused(400, "invalid_request", "that number can only be raised")
	d.asJSON("PATCH", "/v1/queues/mail", `{"name":"other"}`).refused(400, "invalid_json")
}

func TestBadRequestsOfWorkersChangeNothing(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.queue("mail", ``)
		d.queue("bills", ``)
		for path, words := range map[string]string{
			"messages?delay_ms=-1":                  "whole number",
			"messages?delay_ms=9223372036854775807": "from 0 to",
			"messages?at=253402300799999":           "in the future", // the year 9999
			"messages?at=1e3":                       "whole number",
			"messages?delay_ms=1&at=253370764800":   "not both",
			"messages?priority=1":                   "levels 0 to 0",
			"messages?unique=u":                     "does not accept unique keys",
			"messages?unique=":                      "unique is empty",
			"messages?partition=1":                  "partition",
		} {
			if a := d.do("POST", "/v1/queues/mail/"+path, "x"); a.status != 400 || !strings.Contains(a.body, words) {
				t.Errorf("%s: %d %s, want 400 and %q", path, a.status, a.body, words)
			}
		}
		d.do("POST", "/v1/queues/mail/messages", "x", "Idempotency-Key: k").refused(400, "invalid_request", "unique")
		d.do("POST", "/v1/queues/mail/messages", strings.Repeat("x", 16<<20+1)).refused(413, "too_large")
		d.do("POST", "/v1/queues/mail/messages", strings.Repeat("x", 2<<20)).refused(413, "too_large")
		d.asJSON("PATCH", "/v1/queues/mail", `{"settings":{"unique":true}}`)
		d.asJSON("POST", "/v1/queues/mail/batch", `{"messages":[{"value":"a"},{"value":"b","unique":"`+strings.Repeat("u", 1<<20)+`"}]}`).refused(400, "invalid_request", "512")
		d.asJSON("POST", "/v1/queues/mail/batch", `{"messages":[{"value":"a"},{"key":"b"}]}`).refused(400, "invalid_json", "no value")
		d.asJSON("POST", "/v1/queues/mail/batch", `{"messages":[]}`).refused(400, "invalid_request")
		d.asJSON("POST", "/v1/queues/mail/batch", `{"messages":[`+strings.Repeat(`{"value":1},`, 10_000)+`{"value":1}]}`).refused(413, "too_large", "10000")
		d.do("POST", "/v1/queues/mail/batch", `x`).refused(415, "unsupported_media_type")
		for body, words := range map[string]string{
			`{"lease_ms":0}`: "from 100", `{"lease_ms":-1}`: "from 100", `{"lease_ms":31536000000}`: "43200000",
			`{"max":0}`: "from 1", `{"wait_ms":-1}`: "from 0", `{"workers":"w"}`: "worker", `{"worker":"` + strings.Repeat("w", 257) + `"}`: "256", `[]`: "an object",
		} {
			if a := d.asJSON("POST", "/v1/queues/mail/claim", body); a.status != 400 || !strings.Contains(a.body, words) {
				t.Errorf("%s: %d %s, want 400 and %q", body, a.status, a.body, words)
			}
		}
		if got := d.claim("mail", `{"max":100}`).Messages; len(got) != 0 {
			t.Fatalf("what was refused is there: %+v", got)
		}

		d.enqueued("/v1/queues/mail/messages", "a")
		d.enqueued("/v1/queues/mail/messages", "")
		ms := d.claim("mail", `{"max":9999999}`).Messages
		if len(ms) != 2 || ms[1].Value != "" {
			t.Fatalf("claimed %+v", ms)
		}
		for _, verb := range []string{"ack", "nack", "extend"} {
			d.asJSON("POST", "/v1/queues/mail/"+verb, `{}`).refused(400, "invalid_json", "receipts")
			d.asJSON("POST", "/v1/queues/mail/"+verb, `{"receipts":[1]}`).refused(400, "invalid_json", "a string")
			d.asJSON("POST", "/v1/queues/mail/"+verb, `{"receipts":["a"],"all":true}`).refused(400, "invalid_json", "all")
			d.asJSON("POST", "/v1/queues/mail/"+verb, `{"receipts":[`+strings.Repeat(`"a",`, 100_000)+`"a"]}`).refused(413, "too_large", "10000")
			forged := strings.Split(ms[0].Receipt, ".")
			forged[4] = "00000000"
			got := d.answerFor("mail", verb, "", strings.Join(forged, "."), "", strings.Repeat("x", 300), "a.b.c.d.e")
			if got[0].Status != 409 || got[1].Status != 400 || got[2].Status != 400 || got[3].Status/100 != 4 {
				t.Errorf("%s with forged receipts: %+v", verb, got)
			}
			if got := d.answerFor("bills", verb, "", ms[0].Receipt); got[0].Status != 409 {
				t.Errorf("%s at another queue: %+v", verb, got)
			}
		}
		d.asJSON("POST", "/v1/queues/mail/extend", fmt.Sprintf(`{"receipts":[%q],"lease_ms":0}`, ms[0].Receipt)).refused(400, "invalid_json", "from 100")
		d.asJSON("POST", "/v1/queues/mail/nack", fmt.Sprintf(`{"receipts":[%q],"error":%q}`, ms[0].Receipt, strings.Repeat("e", 65<<10))).refused(400, "invalid_json", "65536")
		for body, words := range map[string]string{`{}`: "say which", `{"all":false}`: "say which", `{"all":true,"letters":["1-1"]}`: "say which", `{"letters":["x"]}`: "1017",
			`{"letters":["1-1","1-2"],"replaced_by":"1-3"}`: "a single dead letter", `{"all":true,"replaced_by":"1-3"}`: "a single dead letter", `{"letters":["1-1"],"replaced_by":"0-0"}`: "the id of no message",
			`{"letters":["1-1"],"per_second":1}`: "can only be given with", `{"all":true,"per_second":0}`: "above 0"} {
			for _, verb := range []string{"redrive", "discard"} {
				if a := d.asJSON("POST", "/v1/queues/mail/dead/"+verb, body); a.status != 400 || !strings.Contains(a.body, words) {
					t.Errorf("%s %s: %d %s, want 400 and %q", verb, body, a.status, a.body, words)
				}
			}
		}
		d.get("/v1/queues/mail/dead?max=0").refused(400, "invalid_request")
		d.get("/v1/queues/mail/dead?after=x").refused(400, "invalid_request")
		d.get("/v1/queues/mail/messages/x").refused(400, "invalid_request")
		d.get("/v1/queues/mail/messages/9-9999999").refused(404, "unknown_message")
		d.get("/v1/queues/a%2Fb").refused(400, "invalid_request")
		d.do("POST", "/v1/queues/mail/purge", "all").refused(400, "invalid_request")
		if got := d.answerFor("mail", "ack", "", ms[0].Receipt, ms[1].Receipt); got[0].Status != 204 || got[1].Status != 204 {
			t.Errorf("after all that the receipts are good: %+v", got)
		}
	})
}

func TestNobodyTouchesWhatQueuesKeepDelayedMessagesIn(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.asJSON("POST", "/v1/topics", `{"name":"__weir_later","partitions":1}`).refused(400, "invalid_request", "__weir_")
	d.topic("__weir_later", 1)
	d.asJSON("PATCH", "/v1/topics/__weir_later", `{"config":{"retention.ms":"1000"}}`).refused(400, "invalid_request", "__weir_")
	d.asJSON("PATCH", "/v1/topics/__weir_later", `{"partitions":400}`).refused(400, "invalid_request", "__weir_")
	d.do("DELETE", "/v1/topics/__weir_later", "").refused(400, "invalid_request", "__weir_")
	d.do("POST", "/v1/topics/__weir_later/events", "v").refused(400, "invalid_request", "internal")
	d.asJSON("POST", "/v1/topics/__weir_later/batch", `{"events":[{"value":"v"}]}`).refused(400, "invalid_request", "internal")
}
