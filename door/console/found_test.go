package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/apikey"
)

func wantIn(t *testing.T, p page, texts ...string) {
	t.Helper()
	plain := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(p.text, " ")
	plain = strings.Join(strings.Fields(plain), " ")
	for _, text := range texts {
		if !strings.Contains(plain, text) {
			t.Errorf("the page has no %q: %s", text, plain)
		}
	}
}

// A click on a correlation or causation id leads to all events of the category that have it.
func TestEventsOfOneProcessAreFoundInAllPartitions(t *testing.T) {
	s := serve(t)
	s.fill()
	for i := range 8 {
		s.api("POST", fmt.Sprintf("/v1/categories/accounts/streams/other-%d/events", i), `{"events": [{"type": "Seen", "value": {"n": "found-`+fmt.Sprint(i)+`"}, "metadata": {"correlation-id": "c-1"}}]}`)
	}
	s.api("POST", "/v1/categories/accounts/streams/foreign/events", `{"events": [{"type": "Seen", "value": "not this one", "metadata": {"correlation-id": "c-10"}}]}`)
	b := s.browser()
	link := regexp.MustCompile(`href="([^"]+)">correlation-id: c-1`).FindStringSubmatch(b.get("/console/streams/accounts/acc-1").text)
	if link == nil {
		t.Fatal("the id is no link")
	}
	found := b.get(strings.ReplaceAll(link[1], "&amp;", "&"))
	if n := strings.Count(found.text, "<tr id="); n != 9 {
		t.Errorf("%d events have the id, want 9: %s", n, found.text)
	}
	for i := range 8 {
		wantIn(t, found, fmt.Sprintf("found-%d", i))
	}
	opened := regexp.MustCompile(`id ([A-Z0-9]{26})`).FindAllStringSubmatch(b.get("/console/streams/accounts/acc-1").text, -1)[1][1]
	s.api("POST", "/v1/categories/accounts/streams/caused/events", `{"events": [{"type": "Seen", "value": "x", "metadata": {"causation-id": "`+opened+`"}}]}`)
	cause := regexp.MustCompile(`href="([^"]+)">its cause`).FindStringSubmatch(b.get("/console/streams/accounts/caused").text)
	if cause == nil {
		t.Fatal("no link leads to the cause")
	}
	if found := b.get(strings.ReplaceAll(cause[1], "&amp;", "&")); strings.Count(found.text, "<tr id=") != 1 || !strings.Contains(found.text, "Ada") {
		t.Errorf("the cause is %s", found.text)
	}
	if wrong := b.get("/console/topics/accounts/messages?partition=all"); wrong.status != http.StatusBadRequest {
		t.Errorf("all partitions without a filter: %d", wrong.status)
	}
	for _, bad := range []string{"in=9", "in=x", "in=0&from=x", "from=5", "time=2026-01-01"} {
		if wrong := b.get("/console/topics/accounts/messages?partition=all&text=x&" + bad); wrong.status != http.StatusBadRequest {
			t.Errorf("%s: %d", bad, wrong.status)
		}
	}
}

// A search over several partitions goes on where its page ended.
func TestASearchInAllPartitionsGoesOn(t *testing.T) {
	s := serve(t)
	s.api("POST", "/v1/topics", `{"name": "many", "partitions": 3}`)
	for p := range 3 {
		var events []string
		for i := range 40 {
			events = append(events, fmt.Sprintf(`{"partition": %d, "value": "needle %d/%d"}`, p, p, i))
		}
		s.api("POST", "/v1/topics/many/batch", `{"events": [`+strings.Join(events, ",")+`]}`)
	}
	b, at, seen := s.browser(), "/console/topics/many/messages?partition=all&text=needle", map[string]bool{}
	for pages := 0; at != ""; pages++ {
		if pages == 5 {
			t.Fatal("the search has no end")
		}
		p := b.get(at)
		for _, m := range regexp.MustCompile(`<summary>(needle [0-9/]+)</summary>`).FindAllStringSubmatch(p.text, -1) {
			if seen[m[1]] {
				t.Errorf("%s is found twice", m[1])
			}
			seen[m[1]] = true
		}
		next := regexp.MustCompile(`href="(\?partition=all[^"]+)">Search on`).FindStringSubmatch(p.text)
		if at = ""; next != nil {
			at = "/console/topics/many/messages" + strings.ReplaceAll(next[1], "&amp;", "&")
		}
	}
	if len(seen) != 120 {
		t.Errorf("%d events are found, want 120", len(seen))
	}
}

func TestASweepThatTookTimeGoesOn(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	letters := s.letters()
	p := b.get("/console/queues/mails/dead?doing=redrive&until=" + letters[0])
	if !strings.Contains(p.text, `name="until" value="`+letters[0]+`"`) || strings.Contains(b.get("/console/queues/mails/dead?doing=purge&until=1-1").text, `name="until"`) {
		t.Errorf("the form does not go on: %s", p.text)
	}
	if p := b.post("/console/queues/mails/redrive", "all", "1", "until", letters[0]); p.status != http.StatusSeeOther || len(s.letters()) != 1 {
		t.Errorf("%d, and %d letters are left, want the one after those of the sweep", p.status, len(s.letters()))
	}
}

func TestAMessageShowsItsValueAndItsDeadLetter(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	ids := regexp.MustCompile(`"id":"([^"]+)"`).FindAllStringSubmatch(s.api("GET", "/v1/queues/mails/messages?state=ready", ""), -1)
	wantIn(t, b.get("/console/queues/mails/find?id="+ids[0][1]), "ready", "user2@example.org", "Key k2")
	dead := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(s.api("GET", "/v1/queues/mails/dead", ""))
	link := regexp.MustCompile(`href="([^"]+dead/one[^"]+)"`).FindStringSubmatch(b.get("/console/queues/mails/find?id=" + dead[1]).text)
	if link == nil {
		t.Fatal("no link leads to the dead letter")
	}
	wantIn(t, b.get(strings.ReplaceAll(link[1], "&amp;", "&")), "550 mailbox unavailable", "user0@example.org")
}

func TestALimitThatIsNotSetCanBeSet(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	for _, name := range []string{"rate", "concurrency", "ttl_ms", "delays_ms"} {
		if p := b.get("/console/queues/mails"); !strings.Contains(p.text, `name="setting" value="`+name+`"`) {
			t.Errorf("the page has no field for %s", name)
		}
	}
	b.post("/console/queues/mails/settings", "setting", "rate", "value", "5")
	wantIn(t, b.get("/console/queues/mails"), "The setting rate was changed.")
	if got := s.api("GET", "/v1/queues/mails", ""); !strings.Contains(got, `"rate":5`) {
		t.Errorf("the queue has %s", got)
	}
}

func TestThePlotOfAGroupIsForThoseWhoMaySeeIt(t *testing.T) {
	s := serve(t)
	s.fill()
	s.plot()
	b := s.browser()
	for !strings.Contains(b.get("/console/history?group=billing").text, `"lag":[100]`) {
	}
	for !strings.Contains(b.get("/console/history").text, `"dead":[2`) {
	}
	_, secret, err := s.keys.Create(t.Context(), apikey.Spec{Name: "other", Access: []apikey.Access{"read"}, Topics: []string{"others."}})
	if err != nil {
		t.Fatal(err)
	}
	other := s.browser()
	other.login(secret)
	if p := other.get("/console/history?group=billing"); p.status != http.StatusForbidden {
		t.Errorf("who may not see the group gets its plot: %d %s", p.status, p.text)
	}
}

func TestDeadLettersAreTakenByWhatTheyHave(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	if p := b.get("/console/queues/mails/dead?search=user1"); !strings.Contains(p.text, "Redrive all that have this") || !strings.Contains(p.text, "Discard all that have this") {
		t.Errorf("a search offers nothing: %s", p.text)
	}
	if p := b.post("/console/queues/mails/discard", "found", "1", "search", "user1"); p.status != http.StatusBadRequest {
		t.Errorf("discarded without the queue's name: %d", p.status)
	}
	if p := b.post("/console/queues/mails/redrive", "found", "1", "search", ""); p.status != http.StatusBadRequest {
		t.Errorf("redriven without a text: %d", p.status)
	}
	if p := b.post("/console/queues/mails/redrive", "found", "1", "search", "user1"); p.status != http.StatusSeeOther {
		t.Errorf("%d %s", p.status, p.text)
	}
	wantIn(t, b.get("/console/queues/mails/dead"), "1 dead letters were redriven, of 2 that were looked at.", "user0@example.org")
	if p := b.post("/console/queues/mails/discard", "found", "1", "search", "user0", "really", "mails"); p.status != http.StatusSeeOther || len(s.letters()) != 0 {
		t.Errorf("%d, and %d letters are left", p.status, len(s.letters()))
	}
}

func TestValuesAreShownAsTheReaderWants(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	at := "/console/topics/orders/messages?partition=0&from=119"
	wantIn(t, b.get(at), `{ &#34;order&#34;: 119 }`)
	wantIn(t, b.get(at+"&as=text"), `{&#34;order&#34;: 119}`)
	wantIn(t, b.get(at+"&as=hex"), "00000000 7b 22 6f 72 64 65 72")
	wantIn(t, b.get("/console/topics/orders/messages?partition=0&text=nowhere"), "100 % of the partition")
}

func TestAStreamShowsItsNewestSnapshot(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	if p := b.get("/console/streams/accounts/acc-1?snapshot=newest"); p.status != http.StatusNotFound {
		t.Errorf("there is none yet: %d", p.status)
	}
	s.api("PUT", "/v1/categories/accounts/streams/acc-1/snapshot", `{"version": 2, "value": {"balance": 100}}`)
	wantIn(t, b.get("/console/streams/accounts/acc-1?snapshot=newest"), "Snapshot at version 2", "balance", "Deposited")
}

func TestTopicsShowWhatTheyHoldAndWhoReadsThem(t *testing.T) {
	s := serve(t)
	s.fill()
	s.api("POST", "/v1/queues/mails/messages?delay_ms=3600000", `later`)
	s.plot()
	b := s.browser()
	var list page
	for list = b.get("/console/topics"); !strings.Contains(list.text, ">120<") || !strings.Contains(list.text, ">100<"); list = b.get("/console/topics") {
	}
	wantIn(t, list, "orders 2 120", "– 100")
	wantIn(t, b.get("/console/topics/orders"), "Who reads it Group Lag billing 100")
	wantIn(t, b.get("/console/topics/mails"), "None is known")
	wantIn(t, b.get("/console/queues/mails"), "1 delayed")
	_, secret := s.key("read")
	o := s.browser()
	o.login(secret)
	wantIn(t, o.get("/console/topics"), "orders 2 120")
}

// After the store was restored the overview says so.
func TestTheOverviewTellsOfARestoredStore(t *testing.T) {
	store := memory.New()
	s := serveOn(t, store)
	restore := store.Backup()
	s.fill()
	s.plot()
	b := s.browser()
	if p := b.get("/"); strings.Contains(p.text, "leader epoch") {
		t.Error("it says so before")
	}
	restore(false)
	for !strings.Contains(b.get("/").text, "A leader epoch began at") {
	}
}
