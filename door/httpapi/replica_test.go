package httpapi_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
)

// A process that only reads refuses every request that could change something, before it looks at
// it; and answers all others.
func TestAReplicaReadsAndRefusesAllElse(t *testing.T) {
	store := memory.New()
	writer := openOn(t, store, httpapi.Config{})
	writer.topic("t", 1)
	writer.do("POST", "/v1/topics/t/events", "one").want(http.StatusOK, `{"partition":0,"offset":0}`)
	writer.asJSON("POST", "/v1/queues", `{"name":"q"}`)
	writer.do("POST", "/v1/queues/q/messages", "work")
	writer.asJSON("POST", "/v1/categories", `{"name":"s"}`)
	writer.asJSON("POST", "/v1/categories/s/streams/1/events", `{"events":[{"type":"opened"}]}`)
	refused := &everystore.Replica{Store: store}
	replica := openOn(t, refused, httpapi.Config{})
	replica.get("/v1/topics/t/partitions/0/events?offset=0&wait_ms=5000").has("one")
	names := strings.NewReplacer("{topic}", "t", "{partition}", "0", "{queue}", "q", "{category}", "s", "{stream}", "1", "{group}", "g", "{member}", "m", "{schedule}", "x", "{message}", "0-0", "{projection}", "p")
	changes := 0
	for _, pattern := range httpapi.Routes() {
		method, path, _ := strings.Cut(pattern, " ")
		if path, _, _ = strings.Cut(path, "?"); method == http.MethodGet {
			continue
		}
		changes++
		replica.do(method, names.Replace(path), "").refused(http.StatusForbidden, "read_only", "Nothing happened", "without --read-only")
	}
	if changes < 30 {
		t.Errorf("%d routes change something: the test tests little", changes)
	}
	for path, has := range map[string]string{
		"/v1/topics": `"name":"t"`, "/v1/topics/t": `"partitions"`, "/v1/groups": `"groups"`, "/v1/projections": `"projections"`,
		"/v1/queues": `"name":"q"`, "/v1/queues/q": `"ready":1`, "/v1/queues/q/messages": `"id"`, "/v1/queues/q/schedules": `"schedules"`, "/v1/queues/q/dead": `"letters"`,
		"/v1/categories": `"categories":["s"]`, "/v1/categories/s": `"partitions"`, "/v1/categories/s/streams": `"stream":"1"`, "/v1/categories/s/streams/1/events": `"opened"`,
	} {
		replica.get(path).has(has)
	}
	if n := refused.Tried.Load(); n != 0 {
		t.Errorf("%d commits and trims were tried", n)
	}
	if said := replica.said.String(); strings.Contains(said, "level=WARN") || strings.Contains(said, "level=ERROR") {
		t.Errorf("it complains: %s", said)
	}
}

// The first use of a queue makes a key for the store's clock. A replica does without.
func TestAReplicaShowsAQueueThatNobodyHasUsed(t *testing.T) {
	store := memory.New()
	openOn(t, store, httpapi.Config{}).asJSON("POST", "/v1/queues", `{"name":"q"}`).ok()
	replica := openOn(t, &everystore.Replica{Store: store}, httpapi.Config{})
	replica.get("/v1/queues/q").has(`"name":"q"`)
	replica.get("/v1/queues/q/messages").has(`"messages":[]`)
}

// What falls due while only a replica runs waits for a process that writes: the replica neither
// does it nor complains.
func TestAReplicaLeavesWhatIsDueToTheWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		at := newPipes()
		writer := openAt(t, store, httpapi.Config{}, at, at.dial)
		writer.topic("t", 1)
		writer.do("POST", "/v1/topics/t/events", "once", "Idempotency-Key: key-1")
		writer.asJSON("POST", "/v1/queues", `{"name":"q"}`)
		writer.do("POST", "/v1/queues/q/messages?delay_ms=60000", "later")
		writer.asJSON("PUT", "/v1/queues/q/schedules/s", `{"cron":"* * * * *","message":{"value":"tick"}}`).ok()
		writer.asJSON("POST", "/v1/categories", `{"name":"s"}`)
		writer.asJSON("POST", "/v1/categories/s/streams/1/events", `{"events":[{"type":"opened"}]}`)
		writer.do("DELETE", "/v1/categories/s/streams/1", "").ok()
		writer.asJSON("PUT", "/v1/groups/g/offsets", `{"topics":{"t":{"to":"end"}}}`)
		writer.stop()
		_, before, err := store.Changes(t.Context(), eventlog.Mark{})
		if err != nil {
			t.Fatal(err)
		}
		refused := &everystore.Replica{Store: store}
		at = newPipes()
		replica := openAt(t, refused, httpapi.Config{}, at, at.dial)
		defer replica.stop()
		replica.get("/v1/queues/q").has(`"name":"q"`)
		time.Sleep(65 * time.Minute)
		synctest.Wait()
		if said := replica.said.String(); strings.Contains(said, "level=WARN") || strings.Contains(said, "level=ERROR") {
			t.Errorf("it complains: %s", said)
		}
		if moved, _, err := store.Changes(t.Context(), before); err != nil || len(moved) > 0 || refused.Tried.Load() > 0 {
			t.Errorf("something changed: %v, %v; %d changes were tried", moved, err, refused.Tried.Load())
		}
	})
}

// ok sees that the answer is no error.
func (a answer) ok() {
	a.t.Helper()
	if a.status/100 != 2 {
		a.t.Errorf("%d %s", a.status, a.body)
	}
}

// A follower is ready, and tells how old what it serves may be.
func TestAReplicaIsReadyAndTellsHowFarItIsBehind(t *testing.T) {
	replica := openOn(t, &everystore.Replica{Store: memory.New()}, httpapi.Config{})
	if a := replica.get("/readyz"); a.status != http.StatusOK || !regexp.MustCompile(`^ready: .*read-only.* up to 1\.5s ago\n$`).MatchString(a.body) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// has sees that the answer is 200 and has a text.
func (a answer) has(text string) {
	a.t.Helper()
	if a.status != http.StatusOK || !strings.Contains(strings.ReplaceAll(a.body, " ", ""), text) {
		a.t.Errorf("%d %s\nwant 200 with %s", a.status, a.body, text)
	}
}
