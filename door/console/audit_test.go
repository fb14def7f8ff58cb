package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var earlier = regexp.MustCompile(`href="(\?before=[^"]*)"`)

func TestTheAuditIsShownPageByPage(t *testing.T) {
	s := serve(t)
	b := s.browser()
	const made = 130
	for n := range made {
		s.api("POST", "/v1/topics", fmt.Sprintf(`{"name":"t-%03d"}`, n))
	}
	s.api("DELETE", "/v1/topics/t-007", "")
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
	if pages != 1 || len(seen) != made+1 || seen["topic.delete t-007"] != 1 {
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
