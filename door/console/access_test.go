package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weir-log/weir/internal/browsertest"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/quota"
)

var shownSecret = regexp.MustCompile(`id="secret">(weir_[a-z0-9]+_[a-z0-9]+)<`)

// secretOf returns the secret that a page shows, and fails the test unless there is none elsewhere.
func secretOf(t *testing.T, p page) string {
	t.Helper()
	m := shownSecret.FindStringSubmatch(p.text)
	if p.status != http.StatusCreated || m == nil || p.location != "" {
		t.Fatalf("a new key: %d, to %q, %s", p.status, p.location, p.text)
	}
	for _, cookie := range p.header["Set-Cookie"] {
		if strings.Contains(cookie, "weir_said") {
			t.Errorf("a secret's page sets the cookie %s", cookie)
		}
	}
	if p.header.Get("Cache-Control") != "no-store" {
		t.Errorf("a secret's page may be kept: %q", p.header.Get("Cache-Control"))
	}
	return m[1]
}

func TestKeysAreCreatedRotatedAndRevokedOnTheirPage(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	root := secretOf(t, b.post("/console/access/keys", "name", "root", "access", "admin", "all_topics", "1", "all_groups", "1"))
	if p := b.get("/console/access"); p.status != http.StatusSeeOther || !strings.HasPrefix(p.location, "/console/login") {
		t.Errorf("once there is a key nobody needs to log in: %d, to %q", p.status, p.location)
	}
	b.login(root)
	made := secretOf(t, b.post("/console/access/keys", "name", "<b>shop", "access", "read", "access", "write", "topics", "orders\r\n\r\ninvoices.\r\n", "groups", "billing", "days", "0.5"))
	one := secretOf(t, b.post("/console/access/keys", "name", "one", "access", "read", "topic_names", "orders\r\n", "queues", "mail", "queue_names", "mails"))
	scrapes := secretOf(t, b.post("/console/access/keys", "name", "scrapes", "access", "metrics"))
	id, _ := apikey.IDOf(made)
	list := b.get("/console/access")
	for _, has := range []string{"&lt;b&gt;shop", "topics invoices.* orders*, groups billing*, queues invoices.* orders*", "all topics, all groups, all queues", "topics orders, groups orders, queues mails mail*", "metrics", "good"} {
		if !strings.Contains(list.text, has) {
			t.Errorf("the list lacks %q: %s", has, list.text)
		}
	}
	if strings.Contains(list.text, made) || strings.Contains(list.text, root) || strings.Contains(list.text, one) || strings.Contains(list.text, scrapes) {
		t.Error("the list shows a secret")
	}
	shop := s.browser()
	shop.login(made)
	if p := shop.get("/console/topics/orders/messages"); p.status != http.StatusOK || strings.Contains(p.text, "/console/access") {
		t.Errorf("with the new key: %d, or its reader is led to the keys", p.status)
	}
	if p := shop.get("/console/access"); p.status != http.StatusForbidden {
		t.Errorf("who is no administrator sees the keys: %d", p.status)
	}
	rotated := secretOf(t, b.post("/console/access/keys/"+id+"/rotate"))
	if p := b.post("/console/access/keys/" + id + "/revoke"); p.status != http.StatusSeeOther || p.location != "/console/access" {
		t.Errorf("revoke: %d, to %q", p.status, p.location)
	}
	if p := shop.get("/console/topics"); p.status != http.StatusSeeOther {
		t.Errorf("with the revoked key: %d", p.status)
	}
	shop.login(rotated)
	if p := shop.get("/console/topics/orders"); p.status != http.StatusOK {
		t.Errorf("with the key that replaces it: %d", p.status)
	}
	if list := b.get("/console/access?prefix=%3Cb"); !strings.Contains(list.text, "revoked") || strings.Contains(list.text, "all topics, all groups") || strings.Contains(list.text, "/keys/"+id+"/") {
		t.Errorf("the list of those that begin so: %s", list.text)
	}
	for _, bad := range [][]string{{"name", "a", "access", "read", "days", "-1"}, {"name", "a", "access", "read"}, {"name", "a", "all_topics", "1", "all_groups", "1"}} {
		if p := b.post("/console/access/keys", bad...); p.status != http.StatusBadRequest {
			t.Errorf("%q: %d", bad, p.status)
		}
	}
}

func TestUsersRulesAndQuotasAreManagedOnTheirPages(t *testing.T) {
	s := serve(t)
	_, secret := s.key(apikey.Admin)
	b := s.browser()
	b.login(secret)
	step := func(path string, pairs ...string) {
		t.Helper()
		if p := b.post(path, pairs...); p.status != http.StatusSeeOther {
			t.Fatalf("%s %q: %d %s", path, pairs, p.status, p.text)
		}
	}
	shows := func(path string, words ...string) string {
		t.Helper()
		p := b.get(path)
		for _, has := range words {
			if p.status != http.StatusOK || !strings.Contains(p.text, has) {
				t.Errorf("%s: %d, lacks %q: %s", path, p.status, has, p.text)
			}
		}
		return p.text
	}
	const name, escaped = "a/<b>", "a%2F%3Cb%3E"
	step("/console/access/users", "name", name, "password", "correct horse")
	shows("/console/access/users", "a/&lt;b&gt;", "SCRAM-SHA-256", "/console/access/users/"+escaped+"/password")
	step("/console/access/users/"+escaped+"/password", "password", "battery staple")
	for _, c := range []struct {
		password string
		want     int
	}{{"correct horse", http.StatusUnauthorized}, {"battery staple", http.StatusSeeOther}} {
		if p := s.browser().post("/console/login", "name", name, "password", c.password); p.status != c.want || strings.Contains(p.text, c.password) {
			t.Errorf("a login with %q: %d", c.password, p.status)
		}
	}
	step("/console/access/rules", "user", name, "effect", "allow", "operation", "read", "kind", "topic", "name", "orders", "prefixed", "1")
	step("/console/access/rules", "user", name, "effect", "deny", "operation", "read", "kind", "topic", "name", "orders", "host", "10.0.0.1")
	step("/console/access/rules", "user", "ops", "effect", "allow", "operation", "describe", "kind", "cluster")
	shows("/console/access/rules?prefix=a/", "orders<b>*</b>", "10.0.0.1")
	step("/console/access/rules/delete", "principal", "User:"+name, "host", "*", "effect", "allow", "operation", "read", "kind", "topic", "name", "orders", "prefixed", "true")
	if text := shows("/console/access/rules", "10.0.0.1", "User:ops", "<code>"); strings.Contains(text, "orders<b>*</b>") {
		t.Error("the deleted rule is there")
	}
	for _, lacks := range []string{"principal", "host", "effect", "operation", "kind", "name"} {
		form := []string{}
		for field, value := range map[string]string{"principal": "User:" + name, "host": "10.0.0.1", "effect": "deny", "operation": "read", "kind": "topic", "name": "orders"} {
			if field != lacks {
				form = append(form, field, value)
			}
		}
		if p := b.post("/console/access/rules/delete", form...); p.status != http.StatusBadRequest {
			t.Errorf("a rule is deleted without its %s: %d", lacks, p.status)
		}
	}
	if left, err := acl.New(everystore.Direct(s.store), s.logger).List(t.Context(), acl.Filter{Kind: acl.Any, Pattern: acl.Match, Operation: acl.Any, Effect: acl.Any}); err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
	step("/console/access/quotas", "user", name, "producer_byte_rate", "1000", "request_percentage", "12.5")
	step("/console/access/quotas", "user", name, "producer_byte_rate", "2000")
	step("/console/access/quotas", "default_ip", "1", "connection_creation_rate", "20")
	shows("/console/access/quotas", "2000", "12.5", "every other")
	step("/console/access/quotas/delete", "user", name)
	if left, err := quota.New(everystore.Direct(s.store), s.logger).List(t.Context(), quota.All); err != nil || len(left) != 1 || !left[0].Entity.IP.Default {
		t.Errorf("left are %v, %v", left, err)
	}
	step("/console/access/users/" + escaped + "/delete")
	shows("/console/access/users", "No users")
	for _, no := range []string{"much", "NaN", "Inf", "-inf", "1e400"} {
		if p := b.post("/console/access/quotas", "user", name, "producer_byte_rate", no); p.status != http.StatusBadRequest {
			t.Errorf("a limit that is no number, %s: %d", no, p.status)
		}
		if p := b.post("/console/access/keys", "name", "k", "access", "read", "topics", "t", "days", no); p.status != http.StatusBadRequest || !strings.Contains(p.text, "number of days") {
			t.Errorf("a key for %s days: %d %s", no, p.status, p.text)
		}
	}
}

func TestADelayThatIsNoNumberIsRefused(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	b.get("/")
	for _, no := range []string{"soon", "NaN", "Inf", "-1"} {
		p := b.post("/console/queues/mails/enqueue", "value", "1", "delay", no)
		if p.status != http.StatusBadRequest || !strings.Contains(p.text, "no number of seconds") {
			t.Errorf("a delay of %s: %d %s", no, p.status, p.text)
		}
	}
}

// The first key is made, used, rotated and revoked with nothing but the browser.
func TestChromiumManagesKeys(t *testing.T) {
	s := serve(t)
	s.fill()
	tab := browsertest.Chromium(t)
	tab.Do(t, chromedp.Navigate(s.at+"/console/access"), chromedp.SetValue(`input[name="name"]`, "root"), chromedp.Click(`input[name="access"][value="admin"]`),
		chromedp.Click(`input[name="all_topics"]`), chromedp.Click(`input[name="all_groups"]`), chromedp.Click(`form[action="/console/access/keys"] button`), chromedp.WaitVisible(`#secret`))
	root := browsertest.See(t, tab, chromedp.Text(`#secret`))
	tab.Do(t, chromedp.Click(`main a[href="/console/access"]`), chromedp.WaitVisible(`input[name="key"]`), chromedp.SetValue(`input[name="key"]`, root),
		chromedp.Click(`form.card:first-child button`), chromedp.WaitVisible(`form[action="/console/access/keys"]`))
	tab.Do(t, chromedp.SetValue(`input[name="name"]`, "shop"), chromedp.Click(`input[name="access"][value="write"]`), chromedp.SetValue(`textarea[name="topics"]`, "orders"),
		chromedp.SetValue(`input[name="days"]`, "90"), chromedp.Click(`form[action="/console/access/keys"] button`), chromedp.WaitVisible(`#secret`))
	shop := browsertest.See(t, tab, chromedp.Text(`#secret`))
	screenshot(t, tab, "keys-secret")
	id, ok := apikey.IDOf(shop)
	if !ok {
		t.Fatalf("the page shows the secret %q", shop)
	}
	at := `form[action="/console/access/keys/` + id
	tab.Do(t, chromedp.Click(`main a[href="/console/access"]`), chromedp.Click(at+`/rotate"] button`), chromedp.WaitVisible(`#secret`))
	if second := browsertest.See(t, tab, chromedp.Text(`#secret`)); second == shop || !apikey.Looks(second) {
		t.Errorf("a rotation shows %q", second)
	}
	tab.Do(t, chromedp.Click(`main a[href="/console/access"]`), chromedp.Click(`summary[aria-label="Revoke key `+id+`"]`), chromedp.Click(at+`/revoke"] button`), chromedp.WaitVisible(`.flash`))
	if said := browsertest.See(t, tab, chromedp.Text(`.flash`)); !strings.Contains(said, id) {
		t.Errorf("the page says %q", said)
	}
	screenshot(t, tab, "keys")
	keys, err := s.keys.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	for _, k := range keys {
		states[k.State()]++
	}
	if len(keys) != 3 || states["good"] != 2 || states["revoked"] != 1 {
		t.Errorf("the keys are %v", states)
	}
	tab.Do(t, chromedp.Navigate(s.at+"/console/access/rules"), chromedp.SetValue(`input[name="user"]`, "alice"), chromedp.SetValue(`input[name="name"]`, "orders."),
		chromedp.Click(`input[name="prefixed"]`), chromedp.Click(`form[action="/console/access/rules"] button`), chromedp.WaitVisible(`.flash`))
	tab.Do(t, chromedp.Navigate(s.at+"/console/access/users"), chromedp.SetValue(`form[action="/console/access/users"] input[name="name"]`, "alice"),
		chromedp.SetValue(`form[action="/console/access/users"] input[name="password"]`, "a long password"), chromedp.Click(`form[action="/console/access/users"] button`), chromedp.WaitVisible(`.flash`))
	screenshot(t, tab, "users")
	tab.Do(t, chromedp.Navigate(s.at+"/console/access/quotas"), chromedp.SetValue(`input[name="user"]`, "alice"), chromedp.SetValue(`input[name="consumer_byte_rate"]`, "1048576"),
		chromedp.Click(`form[action="/console/access/quotas"] button`), chromedp.WaitVisible(`.flash`))
	screenshot(t, tab, "quotas")
	tab.Do(t, chromedp.Navigate(s.at+"/console/access/rules"), chromedp.WaitVisible(`form[action="/console/access/rules/delete"]`))
	screenshot(t, tab, "rules")
	for _, width := range []int64{400, 2560} {
		tab.Do(t, chromedp.EmulateViewport(width, 900))
		for _, page := range []string{"", "/users", "/rules", "/quotas"} {
			tab.Do(t, chromedp.Navigate(s.at+"/console/access"+page), chromedp.WaitReady("footer"))
			if browsertest.See(t, tab, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > window.innerWidth`)) {
				t.Errorf("%s with data is wider than a window of %d pixels", page, width)
			}
			usable(t, tab, "/console/access"+page)
		}
	}
	withoutComplaint(t, tab)
}
