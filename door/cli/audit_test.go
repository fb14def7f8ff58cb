package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/use/audit"
)

// Whoever changes something, through whatever door, is told by one event: who, from where, what.
func TestTheAuditTellsWhoChangedWhatThroughEachDoor(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	s := serve(t, "--store", url)
	at := []string{"--store", url}
	ask := func(method, path, key, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.http+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	weir(t, "", "topic", "create", "orders", "--partitions", "2").want(t, exitOK)
	weir(t, "", "topic", "alter", "orders", "--partitions", "3").want(t, exitOK)
	if code, text := ask("POST", "/v1/topics", "", `{"name":"mails"}`); code != 201 {
		t.Fatal(code, text)
	}
	weir(t, "one", "produce", "orders").want(t, exitOK)
	if code, text := ask("PUT", "/v1/groups/billing/offsets", "", `{"offsets":[{"topic":"orders","partition":0,"offset":"earliest"}]}`); code != 200 {
		t.Fatal(code, text)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(s.kafka))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var all kadm.Offsets
	all.AddOffset("orders", 0, -1, -1) // all records
	all.AddOffset("orders", 1, -1, -1)
	all.AddOffset("orders", 2, -1, -1)
	deleted, err := kadm.NewClient(client).DeleteRecords(t.Context(), all)
	if err = errors.Join(err, deleted.Error()); err != nil {
		t.Fatal(err)
	}
	made := weir(t, "", append([]string{"key", "create", "ops", "--access", "admin", "--all-topics", "--all-groups", "--output", "json"}, at...)...)
	var key struct{ ID, Secret string }
	if err := json.Unmarshal([]byte(made.out), &key); err != nil {
		t.Fatal(made, err)
	}
	weir(t, "marked password\n", append([]string{"user", "create", "alice"}, at...)...).want(t, exitOK)
	for code := 0; code != 204 && code != 200; { // until the server knows the key
		code, _ = ask("DELETE", "/v1/topics/mails", key.Secret, "")
	}
	weir(t, "", "topic", "delete", "orders", "--yes").want(t, exitOK)

	me := audit.AtTheCommandLine()
	type told struct{ who, door, verb, object string }
	want := []told{
		{"anonymous ", "kafka", "topic.create", "orders"}, {"anonymous ", "kafka", "topic.alter", "orders"}, {"anonymous ", "http", "topic.create", "mails"},
		{"anonymous ", "http", "group.reset", "billing"}, {"anonymous ", "kafka", "records.delete", "orders"},
		{"os_user " + me.Name, "cli", "key.create", key.ID}, {"os_user " + me.Name, "cli", "user.create", "alice"},
		{"key ops", "http", "topic.delete", "mails"}, {"anonymous ", "kafka", "topic.delete", "orders"},
	}
	var got []told
	out := weir(t, "", "audit", "--output", "json")
	out.want(t, exitOK)
	for line := range strings.Lines(out.out) {
		e, err := audit.Parse([]byte(line))
		if err != nil || e.Who.Address == "" {
			t.Fatal(line, err)
		}
		got = append(got, told{e.Who.Type + " " + e.Who.Name, e.Who.Door, string(e.Verb), e.Object})
	}
	if !slices.Equal(got, want) {
		t.Errorf("the events are\n%v, want\n%v", got, want)
	}
	for _, secret := range []string{"marked", key.Secret, key.Secret[len(key.Secret)-10:]} {
		if strings.Contains(out.out, secret) {
			t.Errorf("an event has %s: %s", secret, out.out)
		}
	}
	if listed := weir(t, "", "audit", "--who", "ops"); strings.Count(listed.out, "\n") != 1 || !strings.Contains(listed.out, "key ops  http") || !strings.Contains(listed.out, "topic.delete  mails") {
		t.Errorf("of one key: %+v", listed)
	}
	if listed := weir(t, "", "audit", "--object", "topic/orders"); strings.Count(listed.out, "\n") != 3 {
		t.Errorf("of one topic: %+v", listed)
	}
	weir(t, "forged", "produce", audit.Topic).want(t, exitFailed, "may not append to this topic")
	if code, text := ask("POST", "/v1/topics/"+audit.Topic+"/events", key.Secret, "forged"); code != 400 && code != 422 || !strings.Contains(text, "only changes of configuration and rights append") {
		t.Error(code, text)
	}
	if code, text := ask("DELETE", "/v1/topics/"+audit.Topic, key.Secret, ""); code < 400 || !strings.Contains(text, "cannot be deleted") {
		t.Error(code, text)
	}
}

func TestAServerWithoutAnAuditHasNone(t *testing.T) {
	serve(t, "--store", "memory:", "--audit", "off")
	weir(t, "", "topic", "create", "orders").want(t, exitOK)
	weir(t, "", "audit").want(t, exitFailed, audit.Topic)
}
