package console_test

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/apikey"
)

// all are the pages that are read only.
var all = []string{
	"/", "/console/topics", "/console/topics/orders", "/console/topics/orders/messages", "/console/groups", "/console/groups/billing", "/console/queues",
	"/console/queues/mails", "/console/queues/mails/messages", "/console/queues/mails/messages?state=delayed", "/console/queues/mails/dead", "/console/streams",
	"/console/streams/accounts", "/console/streams/accounts/acc-1", "/console/tagged/accounts?tag=owner:ada", "/console/projections",
	"/console/access", "/console/access/users", "/console/access/rules", "/console/access/quotas", "/console/access/audit", "/console/login",
}

func TestEachPageShowsWhatThereIs(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	for path, has := range map[string]string{
		"/": "mails", "/console/topics": "orders", "/console/topics/orders": "retention.ms", "/console/topics/orders/messages": "&#34;order&#34;: 119", "/console/groups": "billing",
		"/console/groups/billing": "100", "/console/queues": "mails", "/console/queues/mails": "30 8 * * MON-FRI", "/console/queues/mails/messages": "user2@example.org",
		"/console/queues/mails/dead": "550 mailbox unavailable", "/console/streams": "accounts", "/console/streams/accounts": "acc-1", "/console/streams/accounts/acc-1": "correlation-id: c-1",
		"/console/tagged/accounts?tag=owner:ada": "Opened", "/console/projections": "No projections",
		"/console/access": "The first one ends that, for good", "/console/access/users": "No users", "/console/access/rules": "No rules", "/console/access/quotas": "No quotas", "/console/access/audit": "queue.create",
	} {
		p := b.get(path)
		if p.status != http.StatusOK || !strings.Contains(p.text, has) {
			t.Errorf("%s: %d, lacks %q", path, p.status, has)
		}
		if csp := p.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'self'") {
			t.Errorf("%s has the policy %q", path, csp)
		}
		if strings.Contains(p.text, "<script>") || regexp.MustCompile(`\son[a-z]+="`).MatchString(p.text) || strings.Contains(p.text, " style=") {
			t.Errorf("%s has inline script or style, which its policy forbids", path)
		}
	}
}

func TestEachPageOfAnEmptyStoreIsShown(t *testing.T) {
	b := serve(t).browser()
	for _, path := range []string{"/", "/console/topics", "/console/groups", "/console/queues", "/console/streams", "/console/projections", "/console/access", "/console/access/users", "/console/access/rules",
		"/console/access/quotas", "/console/access/audit", "/console/history"} {
		if p := b.get(path); p.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, p.status, p.text)
		}
	}
	for _, path := range []string{"/console/topics/no", "/console/queues/no", "/console/streams/no", "/console/nothing"} {
		if p := b.get(path); p.status != http.StatusNotFound || !strings.Contains(p.text, "<h1>") {
			t.Errorf("%s: %d %s", path, p.status, p.text)
		}
	}
}

// firstPageMost is what a browser loads before it shows something useful, scripts and plots
// included.
const firstPageMost = 300_000

func TestTheFirstPageIsSmall(t *testing.T) {
	b := serve(t).browser()
	p := b.get("/")
	size := len(p.text)
	for _, m := range regexp.MustCompile(`(?:src|href)="(/console/assets/[^"]+)"`).FindAllStringSubmatch(p.text, -1) {
		a := b.get(m[1])
		if a.status != http.StatusOK || !strings.Contains(a.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d, %q", m[1], a.status, a.header.Get("Cache-Control"))
		}
		size += len(a.text)
	}
	if size > firstPageMost || size < 50_000 {
		t.Errorf("the first page has %d bytes; at most %d, with scripts and styles", size, firstPageMost)
	}
	if strings.Contains(p.text, "http://") || strings.Contains(p.text, "https://") {
		t.Error("the page names another host")
	}
}

func TestAPageNeedsALoginOnceThereAreKeys(t *testing.T) {
	s := serve(t)
	s.fill()
	_, reader := s.key(apikey.Read)
	b := s.browser()
	if p := b.get("/console/topics"); p.status != http.StatusSeeOther || p.location != "/console/login?next=%2Fconsole%2Ftopics" {
		t.Fatalf("without a login: %d, to %q", p.status, p.location)
	}
	if p := b.post("/console/login", "key", "weir_nonsense"); p.status != http.StatusUnauthorized || !strings.Contains(p.text, "not valid") {
		t.Fatalf("a login with a wrong key: %d %s", p.status, p.text)
	}
	if p := b.post("/console/login", "key", reader, "next", "https://elsewhere.example/"); p.location != "/" {
		t.Fatalf("the login leads to %q", p.location)
	}
	if p := b.get("/console/topics"); p.status != http.StatusOK {
		t.Fatalf("after the login: %d", p.status)
	}
	if p := b.post("/console/logout"); p.status != http.StatusSeeOther {
		t.Fatalf("logout: %d", p.status)
	}
	if p := b.get("/console/topics"); p.status != http.StatusSeeOther {
		t.Fatalf("after the logout: %d", p.status)
	}
}

func TestALoginLeadsToAPageOfTheConsole(t *testing.T) {
	s := serve(t)
	_, reader := s.key(apikey.Read)
	b := s.browser()
	for next, want := range map[string]string{
		"/console/topics?prefix=a.b":    "/console/topics?prefix=a.b",
		"/console/topics/a%2Fb":         "/console/topics/a%2Fb",
		"/console/groups/~..":           "/console/groups/~..",
		"/console/queues/../topics":     "/console/topics",
		"/console/queues/%2e%2E/topics": "/console/topics",
		"":                              "/",
		"/console/../v1/topics":         "/",
		"/console/%2e%2E/v1/topics":     "/",
		"/console/.%2e/v1/topics":       "/",
		"/console/.\t./v1/topics":       "/",
		"//elsewhere.example/console/":  "/",
		`/\elsewhere.example/`:          "/",
	} {
		if p := b.post("/console/login", "key", reader, "next", next); p.location != want {
			t.Errorf("a login for %q leads to %q, want %q", next, p.location, want)
		}
	}
}

func TestWhoMayOnlyReadSeesNoButtonAndChangesNothing(t *testing.T) {
	s := serve(t)
	s.fill()
	letters := s.letters()
	reader, admin := s.browser(), s.browser()
	_, readKey := s.key(apikey.Read)
	adminID, adminKey := s.key(apikey.Read, apikey.Write, apikey.Admin)
	reader.login(readKey)
	admin.login(adminKey)
	form := regexp.MustCompile(`<form[^>]* method="post" action="([^"]+)"`)
	for _, path := range all[:len(all)-1] {
		buttons := 0
		for _, m := range form.FindAllStringSubmatch(reader.get(path).text, -1) {
			if m[1] != "/console/logout" {
				t.Errorf("%s shows a reader the form %s", path, m[1])
			}
		}
		for _, m := range form.FindAllStringSubmatch(admin.get(path).text, -1) {
			if m[1] != "/console/logout" {
				buttons++
			}
		}
		if buttons == 0 && (path == "/console/topics/orders" || path == "/console/queues/mails" || path == "/console/queues/mails/dead" || strings.HasPrefix(path, "/console/access") && path != "/console/access/audit") {
			t.Errorf("%s shows an administrator no form", path)
		}
	}
	for _, change := range [][]string{
		{"/console/topics/orders/publish", "value", "x"}, {"/console/topics/orders/delete", "really", "orders"}, {"/console/queues/mails/pause"},
		{"/console/queues/mails/purge", "really", "mails"}, {"/console/queues/mails/redrive", "all", "1"}, {"/console/queues/mails/edit", "letter", letters[0], "value", "x"},
		{"/console/groups/billing/reset", "topic", "orders", "confirm", "yes", "offset", "0:0"}, {"/console/topics", "name", "new"},
		{"/console/access/keys", "name", "mine", "access", "admin", "all_topics", "1", "all_groups", "1"}, {"/console/access/keys/" + adminID.ID + "/rotate"}, {"/console/access/keys/" + adminID.ID + "/revoke"},
		{"/console/access/users", "name", "mine", "password", "a long password"}, {"/console/access/users/mine/password", "password", "a long password"}, {"/console/access/users/mine/delete"},
		{"/console/access/rules", "user", "*", "effect", "allow", "operation", "all", "kind", "cluster"}, {"/console/access/quotas", "default_user", "1", "producer_byte_rate", "1"},
		{"/console/access/rules/delete", "principal", "User:a", "host", "*", "effect", "deny", "operation", "all", "kind", "topic", "name", "a"}, {"/console/access/quotas/delete", "user", "a"},
	} {
		if p := reader.post(change[0], change[1:]...); p.status != http.StatusForbidden {
			t.Errorf("%s: %d for a reader", change[0], p.status)
		}
	}
}

func TestAFormOfAnotherSiteIsRefused(t *testing.T) {
	s := serve(t)
	s.fill()
	b, other := s.browser(), s.browser()
	b.get("/")
	stolen := tokenField.FindStringSubmatch(other.get("/console/login").text)[1] // of another session
	for _, token := range []string{"", "x", stolen} {
		if p := b.postToken("/console/queues/mails/pause", token); p.status != http.StatusForbidden || !strings.Contains(p.text, "nothing was changed") {
			t.Errorf("with the token %q: %d", token, p.status)
		}
	}
	if p := b.post("/console/queues/mails/pause"); p.status != http.StatusSeeOther {
		t.Errorf("with the session's token: %d %s", p.status, p.text)
	}
}

func TestASessionGoesOnAtAnotherProcessAndEndsWithItsKey(t *testing.T) {
	one := serve(t)
	key, secret := one.key(apikey.Read)
	two := serveOn(t, one.store)
	b := one.browser()
	b.login(secret)
	b.at = two.at // cookies do not know ports
	if p := b.get("/console/topics"); p.status != http.StatusOK {
		t.Errorf("at another process: %d, %q", p.status, p.location)
	}
	if _, err := two.keys.Revoke(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	if p := b.get("/console/topics"); p.status != http.StatusSeeOther {
		t.Errorf("after the key was revoked: %d", p.status)
	}
}

func TestADeadLetterIsEditedAndRedriven(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	letters := s.letters()
	if len(letters) != 2 {
		t.Fatalf("there are %d dead letters", len(letters))
	}
	if p := b.get("/console/queues/mails/dead/one?letter=" + letters[1]); p.status != http.StatusOK || !strings.Contains(p.text, "user1@example.org") {
		t.Fatalf("the letter: %d", p.status)
	}
	if p := b.post("/console/queues/mails/edit", "letter", letters[1], "key", "k1", "value", `{"to": "new@example.org"}`); p.status != http.StatusSeeOther {
		t.Fatalf("edit: %d %s", p.status, p.text)
	}
	if left := s.letters(); len(left) != 1 || left[0] != letters[0] {
		t.Errorf("afterwards the dead letters are %v", left)
	}
	if p := b.get("/console/queues/mails/messages?state=ready"); !strings.Contains(p.text, "new@example.org") || strings.Contains(p.text, "user1@example.org") {
		t.Error("the edited message is not in the queue")
	}
	if p := b.post("/console/queues/mails/edit", "letter", letters[1], "value", "again"); p.status != http.StatusNotFound {
		t.Errorf("a second edit of the same letter: %d", p.status)
	}
	if p := b.post("/console/queues/mails/redrive", "letter", letters[0]); p.status != http.StatusSeeOther || len(s.letters()) != 0 {
		t.Errorf("redrive: %d, and %d letters are left", p.status, len(s.letters()))
	}
}

func TestAnEditedMessageKeepsItsPriority(t *testing.T) {
	s := serve(t)
	s.api("POST", "/v1/queues", `{"name": "mails", "partitions": 1, "settings": {"attempts": 1, "priorities": 3}}`)
	s.api("POST", "/v1/queues/mails/batch", `{"messages": [{"value": "urgent", "priority": 2}]}`)
	claim := func() string { return s.api("POST", "/v1/queues/mails/claim", `{"max": 1, "worker": "w1"}`) }
	receipt := regexp.MustCompile(`"receipt":"([^"]+)"`).FindStringSubmatch(claim())
	if receipt == nil {
		t.Fatal("nothing can be claimed")
	}
	s.api("POST", "/v1/queues/mails/nack", `{"receipts": ["`+receipt[1]+`"], "error": "no"}`)
	letters := s.letters()
	if len(letters) != 1 {
		t.Fatalf("there are %d dead letters", len(letters))
	}
	if p := s.browser().post("/console/queues/mails/edit", "letter", letters[0], "value", "edited"); p.status != http.StatusSeeOther {
		t.Fatalf("edit: %d %s", p.status, p.text)
	}
	if got := claim(); !strings.Contains(got, "edited") || !strings.Contains(got, `"weir.queue.priority","value":"2"`) {
		t.Errorf("the edited message has not the priority 2: %s", got)
	}
}

// overtaken is a store that lets something happen once an edited message is stored, before its dead
// letter is looked for again.
type overtaken struct {
	eventlog.Store
	edited []byte // the edited value
	stored atomic.Bool
	then   atomic.Pointer[func()]
}

func (s *overtaken) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	out, err := s.Store.Commit(ctx, flush)
	for _, e := range flush {
		for _, b := range e.Batches {
			if bytes.Contains(b.Bytes, s.edited) {
				s.stored.Store(true)
			}
		}
	}
	return out, err
}

func (s *overtaken) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if len(keys) > 0 && strings.HasPrefix(keys[0], "queue/dead/") && s.stored.Swap(false) {
		(*s.then.Load())()
	}
	return s.Store.Get(ctx, keys, maxBytes)
}

func TestAnEditSaysThatItsLetterWasRedrivenMeanwhile(t *testing.T) {
	store := &overtaken{Store: memory.New(), edited: []byte("new@example.org")}
	s := serveOn(t, store)
	s.fill()
	b := s.browser()
	letter := s.letters()[1]
	redrive := func() { s.api("POST", "/v1/queues/mails/dead/redrive", `{"letters": ["`+letter+`"]}`) }
	store.then.Store(&redrive)
	if p := b.post("/console/queues/mails/edit", "letter", letter, "value", "to: new@example.org"); p.status != http.StatusConflict || !strings.Contains(p.text, "had been redriven or discarded before") {
		t.Errorf("edit of a letter that was redriven meanwhile: %d, to %q", p.status, p.location)
	}
	p := b.get("/console/queues/mails/messages?state=ready")
	if !strings.Contains(p.text, "new@example.org") || !strings.Contains(p.text, "user1@example.org") {
		t.Error("the queue has not both messages")
	}
}

func TestAResetDoesWhatItsPreviewShowed(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	for _, reset := range []struct{ to, at, then string }{
		{"start", "", "0:0"}, {"end", "", "0:120"}, {"offset", "50", "0:50"}, {"time", "1700000030000", "0:30"}, {"time", "2023-11-14T22:13:50", "0:30"}, {"time", "2040-01-01", "0:120"},
	} {
		p := b.post("/console/groups/billing/reset", "topic", "orders", "to", reset.to, "at", reset.at)
		if p.status != http.StatusOK || !strings.Contains(p.text, `name="offset" value="`+reset.then+`"`) {
			t.Errorf("the preview of %v: %d, lacks %s", reset, p.status, reset.then)
			continue
		}
		if p := b.post("/console/groups/billing/reset", "topic", "orders", "confirm", "yes", "offset", reset.then); p.status != http.StatusSeeOther {
			t.Errorf("reset %v: %d %s", reset, p.status, p.text)
		}
		_, offset, _ := strings.Cut(reset.then, ":")
		if got := s.api("GET", "/v1/groups/billing/offsets", ""); !strings.Contains(got, `"partition":0,"offset":`+offset+",") {
			t.Errorf("after %v: %s", reset, got)
		}
	}
}

func TestMessagesAreFoundByKeyHeaderAndText(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	for query, found := range map[string]string{"key=c3": "found 17", "text=%22order%22:+77": "found 1", "header=trace:t5": "found 11", "header=trace": "found 50", "text=nowhere": "found 0", "key=c3&from=100": "found 3"} {
		if p := b.get("/console/topics/orders/messages?" + query); p.status != http.StatusOK || !strings.Contains(p.text, found+" ·") {
			t.Errorf("%s: %d, lacks %q", query, p.status, found)
		}
	}
	if p := b.get("/console/topics/orders/messages?time=1700000100000"); !strings.Contains(p.text, `id="o100"`) || strings.Contains(p.text, `id="o99"`) {
		t.Error("a time leads to another event than the first one since then")
	}
	if p := b.get("/console/topics/orders/download?partition=0&from=118"); strings.Count(p.text, "\n") != 2 || !strings.HasPrefix(p.text, "{") {
		t.Errorf("a download has %q", p.text)
	}
}

func TestValuesAreShownAndNotRun(t *testing.T) {
	s := serve(t)
	s.api("POST", "/v1/topics", `{"name": "t"}`)
	s.api("POST", "/v1/topics/t/batch", `{"events": [{"key": "<script>alert(1)</script>", "value": "<img src=x onerror=alert(1)>"}, {"value_b64": "AAECAw=="}, {"value": null}]}`)
	p := s.browser().get("/console/topics/t/messages")
	if strings.Contains(p.text, "<script>alert") || strings.Contains(p.text, "<img src=x") {
		t.Error("a value is a part of the page's markup")
	}
	for _, has := range []string{"00 01 02 03", "tombstone", "&lt;img src=x"} {
		if !strings.Contains(p.text, has) {
			t.Errorf("the page lacks %q", has)
		}
	}
}

func TestANameOfDotsIsNoOtherPath(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	s.api("POST", "/v1/categories/accounts/streams/%2e%2e/events", `{"events": [{"type": "Opened"}]}`)
	if p := b.get("/console/streams/accounts/%2e%2e"); p.status != http.StatusOK || !strings.Contains(p.text, "Opened") {
		t.Errorf("the stream ..: %d", p.status)
	}
	for _, name := range []string{".", "..", "/", "~", "~~", "~.", "a;b", "a/b"} {
		s.api("POST", "/v1/categories/accounts/streams/"+strings.ReplaceAll(url.PathEscape(name), ".", "%2E")+"/events", `{"events": [{"type": "Opened"}]}`)
		link := regexp.MustCompile(`href="(/console/streams/accounts/[^"]+)">` + regexp.QuoteMeta(name) + `</a>`).FindStringSubmatch(b.get("/console/streams/accounts").text)
		if link == nil {
			t.Errorf("no link leads to stream %q", name)
			continue
		}
		at, err := url.Parse(link[1])
		if err != nil || at.ResolveReference(&url.URL{}).EscapedPath() != link[1] || regexp.MustCompile(`(?i)/(\.|%2e)+(/|$)`).MatchString(link[1]) {
			t.Errorf("a browser does not follow %s to stream %q", link[1], name)
		}
		if p := b.get(link[1]); p.status != http.StatusOK || !strings.Contains(p.text, "Opened") {
			t.Errorf("stream %q at %s: %d", name, link[1], p.status)
		}
		if p := b.post(link[1], "do", "archive"); p.status != http.StatusSeeOther || p.location != link[1] {
			t.Errorf("archive of stream %q: %d, to %s", name, p.status, p.location)
		}
	}
	p := b.post("/console/queues/mails/unschedule", "schedule", "..")
	if p.status == http.StatusSeeOther {
		t.Error("the page says that a schedule was deleted, and none was")
	}
	if p := b.get("/console/topics/orders/download?partition=../../../../v1/groups"); p.status < http.StatusBadRequest {
		t.Errorf("a download of a partition that is a path: %d, to %s", p.status, p.location)
	}
}

func TestAnEditLosesNothingThatTheFormCannotShow(t *testing.T) {
	s := serve(t)
	s.fill()
	for _, m := range []string{`{"value_b64": "AAH/"}`, `{"key_b64": "/w==", "value": "v"}`, `{"value": null}`,
		`{"value": "v", "headers": {"lines": "a\nb"}}`, `{"value": "v", "headers": {"spaces": " a"}}`} {
		s.api("POST", "/v1/queues/mails/batch", `{"messages": [`+m+`]}`)
	}
	claimed := s.api("POST", "/v1/queues/mails/claim", `{"max": 9, "worker": "w1"}`)
	for _, m := range regexp.MustCompile(`"receipt":"([^"]+)"`).FindAllStringSubmatch(claimed, -1) {
		s.api("POST", "/v1/queues/mails/nack", `{"receipts": ["`+m[1]+`"], "error": "no"}`)
	}
	letters := s.letters()
	if len(letters) != 9 {
		t.Fatalf("there are %d dead letters", len(letters))
	}
	b := s.browser()
	for _, id := range letters[4:] {
		if p := b.get("/console/queues/mails/dead/one?letter=" + id); p.status != http.StatusOK || strings.Contains(p.text, "/edit") {
			t.Errorf("letter %s: %d, or it has a form to edit it", id, p.status)
		}
		if p := b.post("/console/queues/mails/edit", "letter", id, "value", ""); p.status != http.StatusConflict {
			t.Errorf("edit of letter %s: %d", id, p.status)
		}
	}
	if left := s.letters(); len(left) != len(letters) {
		t.Errorf("%d dead letters are left", len(left))
	}
}

func TestLinesOfAFieldEndAsTheyWereTyped(t *testing.T) {
	s := serve(t)
	s.fill()
	if p := s.browser().post("/console/topics/orders/publish", "partition", "1", "value", "one\r\ntwo"); p.status != http.StatusSeeOther {
		t.Fatalf("publish: %d", p.status)
	}
	if got := s.api("GET", "/v1/topics/orders/partitions/1/events?offset=0", ""); !strings.Contains(got, `"one\ntwo"`) {
		t.Errorf("the event is %s", got)
	}
}

func TestADeadLetterIsOpenedFromTheOneBeforeIt(t *testing.T) {
	s := serve(t)
	s.fill()
	letters := s.letters()
	for _, page := range []string{"", "?after=" + letters[0], "?search=user1"} {
		p := s.browser().get("/console/queues/mails/dead" + page)
		if want := "letter=" + letters[1] + "&amp;after=" + letters[0]; !strings.Contains(p.text, want) {
			t.Errorf("the page %q lacks %q: the letter is looked for from another one", page, want)
		}
	}
}

func TestANumberThatIsNotKnownIsNotShownAsZero(t *testing.T) {
	s := serve(t) // without a metric of lag
	s.fill()
	if p := s.browser().get("/console/groups"); !strings.Contains(p.text, `billing</a>`) || !strings.Contains(p.text, `<td class="n">–`) {
		t.Errorf("the lag is shown as a number: %s", p.text)
	}
}
