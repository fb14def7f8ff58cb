package console_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/audit"
)

var earlier = regexp.MustCompile(`href="(\?before=[^"]*)"`)

func TestTheAuditIsShownPageByPage(t *testing.T) {
	s := serve(t)
	b := s.browser()
	const made = 250
	for n := range made {
		s.api("POST", "/v1/topics", fmt.Sprintf(`{"name":"t-%03d"}`, n))
	}
	s.api("DELETE", "/v1/topics/t-007", "")
	s.recordLate(0, "t-249")
	s.recordLate(1, "t-248")
	for !strings.Contains(strings.Join(strings.Fields(s.api("GET", "/v1/topics/"+audit.Topic, "")), ""), `"partition":1,"first_offset":0,"end_offset":1`) {
		continue // the server learns with its next poll what another process did
	}
	seen := make(map[string]int)
	pages := 0
	for query := ""; ; pages++ {
		p := b.get("/console/access/audit" + query)
		if p.status != http.StatusOK {
			t.Fatal(p.status, p.text)
		}
		for _, row := range regexp.MustCompile(`<td>(topic\.\w+)<td class="key">(t-\d+)`).FindAllStringSubmatch(p.text, -1) {
			seen[row[1]+" "+row[2]]++
		}
		if pages == 0 && !strings.Contains(p.text, "anonymous") {
			t.Error("it does not say who")
		}
		more := earlier.FindStringSubmatch(p.text)
		if more == nil {
			break
		}
		query = strings.ReplaceAll(more[1], "&amp;", "&")
	}
	if pages != 2 || len(seen) != made+3 || seen["topic.delete t-249"] != 1 || seen["topic.delete t-248"] != 1 || seen["topic.delete t-007"] != 1 {
		t.Errorf("%d further pages have %d events, the deletion %d times", pages, len(seen), seen["topic.delete t-007"])
	}
	for event, times := range seen {
		if times != 1 {
			t.Errorf("%s is shown %d times", event, times)
		}
	}
	found := b.get("/console/access/audit?verb=topic.delete&object=t-0&who=anonymous")
	if strings.Count(found.text, "<td>topic.") != 1 || !strings.Contains(found.text, "<td>topic.delete<td class=\"key\">t-007") || !strings.Contains(found.text, "There is none") {
		t.Errorf("the deletion alone: %s", found.text)
	}
	if none := b.get("/console/access/audit?who=nobody"); !strings.Contains(none.text, "No change among them") {
		t.Errorf("of nobody: %s", none.text)
	}
	if bad := b.get("/console/access/audit?before=x"); bad.status != http.StatusBadRequest {
		t.Errorf("a cursor that is none: %d", bad.status)
	}
}

// recordLate records a change in one of two partitions, by a process whose clock is an hour behind.
func (s *server) recordLate(partition int, topic string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	log, err := eventlog.Open(ctx, s.store, eventlog.Config{Logger: s.logger})
	if err != nil {
		s.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { log.Run(ctx) })
	defer running.Wait()
	defer cancel()
	told, err := log.Topic(ctx, audit.Topic)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(told.Partitions) == 1 {
		if told, err = log.ChangeTopic(ctx, audit.Topic, eventlog.TopicChange{ID: told.ID, Partitions: 2}); err != nil {
			s.t.Fatal(err)
		}
	}
	at := time.Now().Add(-time.Hour)
	value := fmt.Sprintf(`{"time":%q,"who":{"type":"anonymous","door":"http"},"verb":"topic.delete","object":%q,"before":null,"after":null}`, at.UTC().Format(time.RFC3339Nano), topic)
	sealed, err := told.Seal(told.Partitions[partition], []batch.Record{{Timestamp: at.UnixMilli(), Key: []byte("topic/" + topic), Value: []byte(value)}})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := log.Append(ctx, eventlog.Entry{Batches: []eventlog.Batch{sealed}}); err != nil {
		s.t.Fatal(err)
	}
}

// Who reads all topics is no administrator, and is not told who changed what.
func TestTheAuditIsForAdministrators(t *testing.T) {
	s := serve(t)
	s.fill()
	_, root := s.key(apikey.Admin)
	_, reader := s.key(apikey.Read, apikey.Write)
	for secret, may := range map[string]bool{root: true, reader: false} {
		b, want := s.browser(), http.StatusForbidden
		if may {
			want = http.StatusOK
		}
		b.login(secret)
		for _, path := range []string{"/console/access/audit", "/console/topics/" + audit.Topic, "/console/topics/" + audit.Topic + "/messages?from=0"} {
			if p := b.get(path); p.status != want {
				t.Errorf("%s, of an administrator: %v: %d, want %d", path, may, p.status, want)
			}
		}
		if p := b.get("/console/topics"); p.status != http.StatusOK || strings.Contains(p.text, audit.Topic) != may || !strings.Contains(p.text, "orders") {
			t.Errorf("the topics, of an administrator: %v: %d %s", may, p.status, p.text)
		}
	}
}
