package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// The server is killed after it has given out messages, and before their acks. In the next one a
// repeated claim gets the same messages, their receipts are good, what was acknowledged stays done,
// and what was enqueued is there; a message that came back is told as the next attempt.
func TestClaimsAndAcksSurviveAKillOfTheServer(t *testing.T) {
	binary := build(t)
	for name, store := range durableStores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := start(t, binary, "serve", "--store", store)
			first.must(t, "POST", "/v1/queues", `{"name":"mail","partitions":1,"settings":{"unique":true,"lease_ms":3600000}}`, nil)
			first.must(t, "POST", "/v1/queues/mail/batch", `{"messages":[{"value":"acked"},{"value":"claimed"},{"value":"failed"},{"value":"ready","unique":"u"},{"value":"later","delay_ms":1000}]}`, nil)
			type page struct {
				Messages []struct {
					ID, Receipt, Value string
					Attempt            int
				}
			}
			const claim = `{"max":3,"worker":"w","id":"mine"}`
			var before page
			first.must(t, "POST", "/v1/queues/mail/claim", claim, &before)
			if len(before.Messages) != 3 {
				t.Fatalf("claimed %+v", before)
			}
			answer := func(p *process, verb, receipt, more string) (status int) {
				t.Helper()
				body := fmt.Sprintf(`{"receipts":[%q]%s}`, receipt, more)
				status, text, _, err := p.send("POST", "/v1/queues/mail/"+verb, body, "")
				if err != nil {
					t.Fatal(err)
				}
				if status != http.StatusMultiStatus {
					return status // of the receipt's problem
				}
				var got struct{ Results []struct{ Status int } }
				if err := json.Unmarshal([]byte(text), &got); err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				return got.Results[0].Status
			}
			acked, claimed, failed := before.Messages[0].Receipt, before.Messages[1].Receipt, before.Messages[2].Receipt
			if s := answer(first, "ack", acked, ""); s != http.StatusNoContent {
				t.Fatalf("ack: %d", s)
			}
			if s := answer(first, "nack", failed, `,"delay_ms":0,"error":"refused"`); s != http.StatusNoContent {
				t.Fatalf("nack: %d", s)
			}
			_ = first.cmd.Process.Kill()
			_ = first.cmd.Wait()

			second := start(t, binary, "serve", "--store", store)
			var again page
			second.must(t, "POST", "/v1/queues/mail/claim", claim, &again)
			if len(again.Messages) != 1 || again.Messages[0].Receipt != claimed {
				t.Errorf("the repeated claim got %+v, want the message that it had and that is not answered for", again)
			}
			came := map[string]int{}
			for len(came) < 3 {
				var more page
				second.must(t, "POST", "/v1/queues/mail/claim", `{"max":10,"wait_ms":20000}`, &more)
				if len(more.Messages) == 0 {
					break
				}
				for _, m := range more.Messages {
					came[m.Value] = m.Attempt
				}
			}
			if got, want := fmt.Sprint(came), "map[failed:2 later:1 ready:1]"; got != want {
				t.Errorf("after the kill these came, with their attempts: %s, want %s", got, want)
			}
			if s := answer(second, "ack", claimed, ""); s != http.StatusNoContent {
				t.Errorf("ack with a receipt from before the kill: %d", s)
			}
			for _, stale := range []string{acked, failed} {
				if s := answer(second, "ack", stale, ""); s != http.StatusConflict {
					t.Errorf("a second answer with a receipt from before the kill: %d", s)
				}
			}
			_, body := second.must(t, "POST", "/v1/queues/mail/messages?unique=u", "again", nil)
			var repeated struct{ Repeated bool }
			if err := json.Unmarshal([]byte(body), &repeated); err != nil || !repeated.Repeated {
				t.Errorf("a unique key that was taken before the kill: %s", body)
			}
		})
	}
}
