package httpapi

import (
	"context"
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

// Every route that names a category, and every one to come, is for keys that reach its topic.
func TestStreamsAreForTheirKeys(t *testing.T) {
	door := lock(t, Config{})
	_, root := door.key(t, apikey.Spec{Access: admins})
	for _, name := range []string{"shop.eu", "shop.us"} {
		if w := door.bearer(root, "POST", "/v1/categories", fmt.Sprintf(`{"name":%q,"partitions":1}`, name)); w.Code != 201 {
			t.Fatalf("create: %d %s", w.Code, w.Body)
		}
	}
	type step struct {
		pattern, path, body string
		access              apikey.Access
		want                int // of a key in its rights
	}
	const append = `{"events":[{"type":"t","value":"secret","tags":["a"]}]}`
	steps := []step{
		{"GET /v1/categories/{category}", "", "", apikey.Read, 200},
		{"POST /v1/categories/{category}/streams/{stream}/events", "/streams/s/events", append, apikey.Write, 201},
		{"GET /v1/categories/{category}/streams", "/streams", "", apikey.Read, 200},
		{"GET /v1/categories/{category}/streams/{stream}/events", "/streams/s/events", "", apikey.Read, 200},
		{"PUT /v1/categories/{category}/streams/{stream}/snapshot", "/streams/s/snapshot", `{"version":1,"value":"x"}`, apikey.Write, 204},
		{"GET /v1/categories/{category}/streams/{stream}/snapshot", "/streams/s/snapshot", "", apikey.Read, 200},
		{"PATCH /v1/categories/{category}", "", `{"retention":{"events":100}}`, apikey.Admin, 200},
		{"PUT /v1/categories/{category}/streams/{stream}/retention", "/streams/s/retention", `{"events":100}`, apikey.Admin, 204},
		{"DELETE /v1/categories/{category}/streams/{stream}/retention", "/streams/s/retention", "", apikey.Admin, 204},
		{"GET /v1/categories/{category}/events", "/events?tag=a", "", apikey.Read, 200},
		{"POST /v1/categories/{category}/subjects/forget", "/subjects/forget", `{"subject":"ann"}`, apikey.Admin, 204},
		{"POST /v1/categories/{category}/streams/{stream}/archive", "/streams/s/archive", "", apikey.Admin, 204},
		{"POST /v1/categories/{category}/streams/{stream}/unarchive", "/streams/s/unarchive", "", apikey.Admin, 204},
		{"DELETE /v1/categories/{category}/streams/{stream}", "/streams/s", "", apikey.Admin, 204}, // and begun anew below
	}
	for _, rt := range api {
		pattern, _, _ := strings.Cut(rt.pattern, "?")
		if strings.Contains(pattern, "{category}") && !slices.ContainsFunc(steps, func(s step) bool { return s.pattern == pattern && s.access == rt.needs.access }) {
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
		{"a reader of the category", apikey.Spec{Access: reads, Topics: []string{"shop.eu"}}, true},
		{"a writer of the category", apikey.Spec{Access: writes, Topics: []string{"users", "shop.e"}}, true},
		{"an admin of the category", apikey.Spec{Access: admins, Topics: []string{"shop.eu"}}, true},
		{"an admin of another category", apikey.Spec{Access: admins, Topics: []string{"shop.us"}}, false},
		{"an admin of a longer name", apikey.Spec{Access: admins, Topics: []string{"shop.eu."}}, false},
		{"a queue of the name", apikey.Spec{Access: admins, Queues: []string{"shop.eu"}}, false},
	} {
		_, secret := door.key(t, c.spec)
		door.bearer(root, "POST", "/v1/categories/shop.eu/streams/s/events", append)
		door.bearer(root, "PUT", "/v1/categories/shop.eu/streams/s/snapshot", `{"version":1,"value":"secret"}`)
		for _, step := range steps {
			method, _, _ := strings.Cut(step.pattern, " ")
			want := step.want
			if !c.in || !slices.Contains(c.spec.Access, step.access) && !slices.Contains(c.spec.Access, apikey.Admin) {
				want = 403
			}
			_, above, _ := strings.Cut(step.pattern, " ")
			above, _, _ = strings.Cut(above, "{category}")
			w := door.bearer(secret, method, above+"shop.eu"+step.path, step.body)
			if step.pattern == "PUT /v1/categories/{category}/streams/{stream}/snapshot" && w.Code == 400 {
				want = 400 // the stream was deleted before, and its versions went on
			}
			if step.pattern == "GET /v1/categories/{category}/streams/{stream}/snapshot" && w.Code == 404 {
				want = 404
			}
			if w.Code != want || want == 403 && strings.Contains(w.Body.String(), "secret") {
				t.Errorf("a key for %s, %s: %d %s, want %d", c.name, step.pattern, w.Code, w.Body, want)
			}
			// Nor does a key learn whether there is such a category.
			if want == 403 {
				elsewhere := door.bearer(secret, method, above+"shop.eo"+step.path, step.body)
				if !slices.Contains(c.spec.Topics, "shop.e") && elsewhere.Code != 403 {
					t.Errorf("a key for %s, %s of a category that is not there: %d %s", c.name, step.pattern, elsewhere.Code, elsewhere.Body)
				}
			}
		}
		var list struct{ Categories []string }
		if w := door.bearer(secret, "GET", "/v1/categories", ""); w.Code == 200 {
			if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
		}
		if want := c.in && c.spec.Access[0] != apikey.Write; want != slices.Contains(list.Categories, "shop.eu") {
			t.Errorf("a key for %s lists %v", c.name, list.Categories)
		}
	}
	// A key makes the categories that it reaches.
	_, narrow := door.key(t, apikey.Spec{Access: admins, Topics: []string{"shop.eu"}})
	for name, want := range map[string]int{"shop.eu2": 201, "shop.us2": 403, "shop.us": 403, "users": 403} {
		if w := door.bearer(narrow, "POST", "/v1/categories", fmt.Sprintf(`{"name":%q}`, name)); w.Code != want {
			t.Errorf("create %s: %d %s, want %d", name, w.Code, w.Body, want)
		}
	}
}

// An append to several streams is for keys that may write to all their categories. Nothing is
// appended otherwise.
func TestSeveralStreamsAreForKeysOfAllTheirCategories(t *testing.T) {
	door := lock(t, Config{})
	_, root := door.key(t, apikey.Spec{Access: admins})
	for _, name := range []string{"shop.eu", "shop.us"} {
		if w := door.bearer(root, "POST", "/v1/categories", fmt.Sprintf(`{"name":%q,"partitions":1}`, name)); w.Code != 201 {
			t.Fatalf("create: %d %s", w.Code, w.Body)
		}
	}
	body := func(categories ...string) string {
		var parts []string
		for i, name := range categories {
			parts = append(parts, fmt.Sprintf(`{"category":%q,"stream":"s%d","events":[{"type":"t"}]}`, name, i))
		}
		return `{"streams":[` + strings.Join(parts, ",") + `]}`
	}
	writes := []apikey.Access{apikey.Write}
	for name, c := range map[string]struct {
		spec      apikey.Spec
		one, both int
	}{
		"an admin of all":                       {apikey.Spec{Access: admins}, 201, 201},
		"a writer of all":                       {apikey.Spec{Access: writes}, 201, 201},
		"a reader of all":                       {apikey.Spec{Access: reads}, 403, 403},
		"a writer of both":                      {apikey.Spec{Access: writes, Topics: []string{"shop."}}, 201, 201},
		"a writer of one":                       {apikey.Spec{Access: writes, Topics: []string{"shop.eu"}}, 201, 403},
		"an admin of the other":                 {apikey.Spec{Access: admins, Topics: []string{"shop.us"}}, 403, 403},
		"an admin of queues with the name":      {apikey.Spec{Access: admins, Queues: []string{"shop."}}, 403, 403},
		"a writer of one, and admin of a queue": {apikey.Spec{Access: admins, Topics: []string{"shop.eu"}, Queues: []string{"shop.us"}}, 201, 403},
	} {
		_, secret := door.key(t, c.spec)
		for _, try := range []struct {
			categories []string
			want       int
		}{
			{[]string{"shop.eu"}, c.one}, {[]string{"shop.eu", "shop.us"}, c.both}, {[]string{"shop.us", "shop.eu"}, c.both},
		} {
			before := door.bearer(root, "GET", "/v1/categories/shop.eu/streams", "").Body.String()
			w := door.bearer(secret, "POST", "/v1/categories/append", body(try.categories...))
			if w.Code != try.want {
				t.Errorf("%s appends to %v: %d %s, want %d", name, try.categories, w.Code, w.Body, try.want)
			}
			if after := door.bearer(root, "GET", "/v1/categories/shop.eu/streams", "").Body.String(); (before == after) != (try.want == 403) {
				t.Errorf("%s appends to %v: %d, and the category was %s and is %s", name, try.categories, w.Code, before, after)
			}
		}
		// Nor does a key learn whether there is such a category.
		if w := door.bearer(secret, "POST", "/v1/categories/append", body("users.x", "bank")); w.Code != 403 && len(c.spec.Topics)+len(c.spec.Queues) > 0 {
			t.Errorf("%s appends to categories that are not there: %d %s", name, w.Code, w.Body)
		}
	}
}

// What comes after the key was revoked does not reach a client that follows a stream of a category,
// whether it waits or not.
func TestRevokedKeyEndsWhatItFollows(t *testing.T) {
	for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
		for _, silent := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				door := lock(t, Config{})
				_, root := door.key(t, apikey.Spec{Access: admins})
				id, secret := door.key(t, apikey.Spec{Access: reads})
				door.bearer(root, "POST", "/v1/categories", `{"name":"shop","partitions":1}`)
				appended := func(value string) {
					t.Helper()
					if w := door.bearer(root, "POST", "/v1/categories/shop/streams/s/events", `{"events":[{"type":"t","value":"`+value+`"}]}`); w.Code != 201 {
						t.Fatalf("append: %d %s", w.Code, w.Body)
					}
					time.Sleep(time.Second) // of the bubble
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				r := httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:8080/v1/categories/shop/streams/s/events", nil)
				r.Header.Set("Accept", "text/event-stream")
				r.Header.Set("Authorization", "Bearer "+secret)
				r.Header.Set("Accept", accept)
				w, ended := httptest.NewRecorder(), make(chan struct{})
				go func() {
					defer close(ended)
					door.ServeHTTP(w, r)
				}()
				synctest.Wait()
				appended("before")
				if _, err := door.keys.Revoke(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				if silent {
					time.Sleep(10 * time.Second)
				} else {
					appended("after")
				}
				select {
				case <-ended:
				default:
					t.Errorf("as %s, silent %v: the answer goes on", accept, silent)
					leave()
					<-ended
				}
				if body := w.Body.String(); !strings.Contains(body, "before") || strings.Contains(body, "after") {
					t.Errorf("as %s, silent %v: the client got %s", accept, silent, body)
				}
			})
		}
	}
}

// Whatever a stream is called, its path is not that of another route or category.
func TestAStreamsNameDoesNotLeadElsewhere(t *testing.T) {
	door := lock(t, Config{})
	_, root := door.key(t, apikey.Spec{Access: admins})
	_, narrow := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read, apikey.Write}, Topics: []string{"shop"}})
	for _, name := range []string{"shop", "bank"} {
		door.bearer(root, "POST", "/v1/categories", fmt.Sprintf(`{"name":%q}`, name))
	}
	door.bearer(root, "POST", "/v1/categories/bank/streams/s/events", `{"events":[{"type":"t","value":"secret"}]}`)
	for _, name := range []string{"a%2Fsnapshot", "snapshot", "archive", "a%2Farchive", "%2E%2E%2Fbank%2Fs", "%2E%2E", "..%2F..%2Ftopics%2Fusers"} {
		at := "/v1/categories/shop/streams/" + name + "/events"
		if w := door.bearer(narrow, "POST", at, `{"events":[{"type":"t","value":"mine"}]}`); w.Code != 201 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if w := door.bearer(narrow, "GET", at, ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"version":1,"first":0`) || !strings.Contains(w.Body.String(), "mine") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/v1/categories/shop/../bank/streams/s/events", "/v1/categories/shop%2F..%2Fbank/streams/s/events", "/v1/categories/shop/%2E%2E/bank/streams/s/events", "/v1/categories/shop/streams/%2E%2E/%2E%2E/bank/streams/s/events"} {
		if w := door.bearer(narrow, "GET", path, ""); w.Code < 300 || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
