package httpapi_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
)

type topicPage struct {
	Events []struct {
		Partition int32
		Offset    int64
		Value     string
	}
	Next string
	Gaps []struct {
		Partition int32
		From, To  int64
	}
}

// A topic is read page by page: next is where the next page begins, in all partitions.
func TestATopicIsReadPageByPage(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 3)
	var want []string
	for i := range 30 {
		d.do("POST", fmt.Sprintf("/v1/topics/orders/events?partition=%d", i%3), fmt.Sprint(i)).want(200, fmt.Sprintf(`{"partition":%d,"offset":%d}`, i%3, i/3))
		want = append(want, fmt.Sprint(i))
	}
	read := func(query string) (values []string, next string) {
		t.Helper()
		var p topicPage
		d.get("/v1/topics/orders/events"+query).into(200, &p)
		at := map[int32]int64{}
		for _, e := range p.Events {
			if last, there := at[e.Partition]; there && e.Offset != last+1 {
				t.Errorf("partition %d: offset %d follows %d", e.Partition, e.Offset, last)
			}
			at[e.Partition] = e.Offset
			values = append(values, e.Value)
		}
		return values, p.Next
	}
	var got []string
	for from := ""; ; {
		values, next := read("?max=7" + from)
		if len(values) > 7 {
			t.Errorf("%d events, want 7 at most", len(values))
		}
		if len(values) == 0 {
			break
		}
		got, from = append(got, values...), "&from="+url.QueryEscape(next)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	if values, _ := read("?partition=1"); len(values) != 10 || values[0] != "1" {
		t.Errorf("partition 1 has %v", values)
	}
	if values, _ := read("?from=0:10,1:9,2:10"); !slices.Equal(values, []string{"28"}) {
		t.Errorf("after positions of a client: %v", values)
	}
	if values, next := read("?from=latest"); len(values) != 0 || next == "" {
		t.Errorf("from the latest: %v, %s", values, next)
	}
	if err := d.log.Trim(t.Context(), 1, 4); err != nil {
		t.Fatal(err)
	}
	var p topicPage
	d.get("/v1/topics/orders/events?from=0:2&partition=0").into(200, &p)
	if len(p.Gaps) != 1 || p.Gaps[0].From != 2 || p.Gaps[0].To != 4 {
		t.Errorf("what retention removed: %+v", p.Gaps)
	}
	d.get("/v1/topics/orders/events?from=0:11").refused(416, "offset_out_of_range", `"end_offset":10`)
	d.get("/v1/topics/none/events").refused(404, "unknown_topic")
	for _, query := range []string{"?partition=3", "?partition=x", "?max=0", "?wait_ms=-1", "?from=yesterday", "?to=3"} {
		if got := d.get("/v1/topics/orders/events" + query); got.status != 400 && got.status != 404 {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
}

func TestAPageOfATopicWaitsForItsFirstEvent(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 2)
		woken := make(chan answer)
		began := time.Now()
		go func() { woken <- d.get("/v1/topics/orders/events?wait_ms=60000") }()
		synctest.Wait()
		d.do("POST", "/v1/topics/orders/events?partition=1", "a").want(200, `{"partition":1,"offset":0}`)
		if got := <-woken; got.status != 200 || !strings.Contains(got.body, `"value":"a"`) || time.Since(began) > time.Second {
			t.Errorf("after %v: %d %s", time.Since(began), got.status, got.body)
		}
	})
}

// What makes sense for a page only is refused where events come as they are published.
func TestAClientThatFollowsIsToldWhatIsOfPages(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	d.category("order")
	for _, path := range []string{"/v1/topics/orders/events?max=3", "/v1/topics/orders/events?wait_ms=3", "/v1/categories/order/streams/s/events?to=3", "/v1/categories/order/streams/s/events?backward=true"} {
		for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
			d.get(path, "Accept: "+accept).refused(400, "invalid_request", "of a page")
		}
	}
}

// A path of an earlier version leads to its new name, with what stood in it.
func TestRenamedPathsLeadToTheirNewNames(t *testing.T) {
	d := open(t, httpapi.Config{})
	names := strings.NewReplacer("{topic}", "t", "{category}", "c", "{stream}", "a%2Fb")
	if len(httpapi.Renamed) < 10 {
		t.Fatal("there are no renamed paths")
	}
	for from, to := range httpapi.Renamed {
		method, path, _ := strings.Cut(from, " ")
		if !slices.ContainsFunc(httpapi.Routes(), func(r string) bool { now, _, _ := strings.Cut(r, "?"); return now == method+" "+to }) {
			t.Errorf("%s leads to %s, which is no route", from, to)
		}
		got := d.do(method, names.Replace(path)+"?from=3&x=%2F", "").refused(308, "renamed", to)
		if at := got.header.Get("Location"); at != names.Replace(to)+"?from=3&x=%2F" {
			t.Errorf("%s leads to %s", from, at)
		}
	}
	for _, name := range []string{"%2F", "%2E%2E", "%2E"} {
		if at := d.get("/v1/streams/c/" + name).header.Get("Location"); at != "/v1/categories/c/streams/"+name+"/events" {
			t.Errorf("stream %s leads to %s", name, at)
		}
	}
}
