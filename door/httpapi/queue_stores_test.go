package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
)

// A worker acknowledges as many messages as one call takes. Among them are receipts that are
// repeated, foreign and forged: each has its own result, and a second call changes nothing.
func TestTheMostAcksOfOneCallHaveAResultEach(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.queue("mail", `"window":10000,"lease_ms":3600000`)
		d.queue("bills", ``)
		d.enqueued("/v1/queues/bills/messages", "other")
		foreign := d.claim("bills", `{}`).Messages[0].Receipt
		const most, messages = 10_000, 9_997
		d.do("POST", "/v1/queues/mail/batch", strings.Repeat("{\"value\":1}\n", messages), "Content-Type: application/x-ndjson").into(200, &struct{}{})
		var receipts []string
		for len(receipts) < messages {
			got := d.claim("mail", `{"max":1000,"wait_ms":10000}`).Messages
			if len(got) == 0 {
				t.Fatalf("%d messages are claimed, and no more come", len(receipts))
			}
			for _, m := range got {
				receipts = append(receipts, m.Receipt)
			}
		}
		forged := receipts[1][:len(receipts[1])-8] + "00000000"
		all := append([]string{forged, foreign, receipts[5]}, receipts...)
		if len(all) != most {
			t.Fatalf("%d receipts", len(all))
		}
		for call, again := range []bool{false, true} {
			got := d.answerFor("mail", "ack", "", all...)
			if len(got) != most {
				t.Fatalf("call %d: %d results for %d receipts", call, len(got), most)
			}
			for i, r := range got {
				want, kind := 204, ""
				if i < 2 || again { // forged, of the other queue, or acknowledged before
					want, kind = 409, "urn:weir:problem:stale_receipt"
				}
				if r.Status != want || r.Problem.Type != kind || r.Problem.Done != (again && i != 1) {
					t.Fatalf("call %d, receipt %d: %+v, want %d", call, i, r, want)
				}
			}
		}
		var described struct {
			Counts struct{ Ready, Claimed, Waiting int }
		}
		if d.get("/v1/queues/mail").into(200, &described); described.Counts.Ready+described.Counts.Claimed+described.Counts.Waiting != 0 {
			t.Errorf("after all acks: %+v", described)
		}
		if got := d.claim("mail", `{"max":10}`).Messages; len(got) != 0 {
			t.Errorf("after all acks %d messages are claimed", len(got))
		}
		if got := d.answerFor("bills", "ack", "", foreign); got[0].Status != 204 {
			t.Errorf("the receipt of the other queue: %+v", got)
		}
	})
}

// Dead letters are listed page by page, and go back one, some and all; what goes back is claimed as
// new, with the id that it had.
func TestDeadLettersAreBrowsedAndGoBackOneSomeAndAll(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.queue("mail", `"attempts":1`)
		ids := map[string]string{}
		for i := range 7 {
			value := fmt.Sprint(i)
			ids[value] = d.enqueued("/v1/queues/mail/messages?key=k", value, "Weir-Header: a=b")
		}
		for claimed := 0; claimed < len(ids); {
			got := d.claim("mail", `{"max":10,"worker":"w1","wait_ms":10000}`).Messages
			for _, m := range got {
				if r := d.answerFor("mail", "nack", `,"error":"refused"`, m.Receipt); r[0].Status != 204 {
					t.Fatalf("nack: %+v", r)
				}
			}
			claimed += len(got)
		}
		type letter struct {
			Letter, ID, Reason, Error, Worker, Value, Key string
			Attempts                                      int
			Headers                                       []struct{ Name, Value string }
		}
		browse := func() (letters []letter) {
			for after := ""; ; {
				var page struct{ Letters []letter }
				d.get("/v1/queues/mail/dead?max=3"+after).into(200, &page)
				if len(page.Letters) == 0 {
					return letters
				}
				letters = append(letters, page.Letters...)
				after = "&after=" + page.Letters[len(page.Letters)-1].Letter
			}
		}
		letters := browse()
		if len(letters) != len(ids) {
			t.Fatalf("%d letters: %+v", len(letters), letters)
		}
		for _, l := range letters {
			if l.ID != ids[l.Value] || l.Reason != "attempts" || l.Error != "refused" || l.Worker != "w1" || l.Attempts != 1 || l.Key != "k" || l.Headers[0].Name != "a" {
				t.Errorf("%+v", l)
			}
		}
		redrive := func(body, want string) {
			t.Helper()
			d.asJSON("POST", "/v1/queues/mail/dead/redrive", body).want(200, want)
		}
		redrive(fmt.Sprintf(`{"letters":[%q]}`, letters[3].Letter), `{"taken":1}`)
		redrive(fmt.Sprintf(`{"letters":[%q,%q,%q]}`, letters[0].Letter, letters[3].Letter, letters[6].Letter), `{"taken":2}`)
		if left := browse(); len(left) != 4 {
			t.Errorf("%d letters are left, want 4", len(left))
		}
		redrive(`{"all":true,"per_second":1000}`, `{"taken":4}`)
		redrive(`{"all":true}`, `{"taken":0}`)
		back := map[string]bool{}
		for len(back) < len(ids) {
			got := d.claim("mail", `{"max":10,"wait_ms":10000}`).Messages
			if len(got) == 0 {
				t.Fatalf("these came back: %v", back)
			}
			for _, m := range got {
				if back[m.Value] || m.ID != ids[m.Value] || m.Attempt != 1 {
					t.Errorf("redriven: %+v, which came already: %v", m, back[m.Value])
				}
				back[m.Value] = true
			}
		}
	})
}

// A queue that keeps its finished messages lists them, and says of each when it was done.
func TestFinishedMessagesAreListedAndSayWhen(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.queue("mail", `"keep_done":true`)
		ids := map[string]string{}
		for i := range 7 {
			value := fmt.Sprint(i)
			ids[value] = d.enqueued("/v1/queues/mail/messages", value)
		}
		ms := d.claim("mail", `{"max":7,"worker":"w1","wait_ms":10000}`).Messages
		if len(ms) != 7 {
			t.Fatalf("claimed %+v", ms)
		}
		const apart = 4 * time.Second // the clocks of the store and of the test, at most; on S3 a process knows the store's only about so exactly
		from := time.Now().Add(-apart).UnixMilli()
		for _, m := range ms[:5] {
			d.answerFor("mail", "ack", "", m.Receipt)
		}
		to := time.Now().Add(apart).UnixMilli()
		type view struct {
			ID, State, Worker, Value string
			Attempt                  int
			DoneAt                   int64 `json:"done_at"`
		}
		check := func(v view, value string) {
			t.Helper()
			if v.ID != ids[value] || v.State != "done" || v.Worker != "w1" || v.Attempt != 1 || v.DoneAt < from || v.DoneAt > to {
				t.Errorf("a finished message: %+v", v)
			}
		}
		listed := 0
		for next := ""; ; {
			var page struct {
				Messages []view
				Next     string
			}
			d.get("/v1/queues/mail/messages?state=done&max=2"+next).into(200, &page)
			for _, v := range page.Messages {
				check(v, v.Value)
			}
			if listed += len(page.Messages); page.Next == "" {
				break
			}
			next = "&from=" + page.Next
		}
		if listed != 5 {
			t.Errorf("%d finished messages are listed, want 5", listed)
		}
		var found view
		d.get("/v1/queues/mail/messages/"+ms[0].ID).into(200, &found)
		check(found, ms[0].Value)
		d.get("/v1/queues/mail/messages/"+ms[6].ID).into(200, &found)
		if found.State != "claimed" {
			t.Errorf("a claimed message: %+v", found)
		}
	})
}
