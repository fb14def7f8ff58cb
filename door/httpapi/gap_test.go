package httpapi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// damaged puts two events into a partition that nobody can read.
func (d *door) damaged(topic string, partition int) {
	d.t.Helper()
	raw, err := batch.Seal([]batch.Record{{Value: []byte("a")}, {Value: []byte("b")}}, batch.Gzip)
	if err != nil {
		d.t.Fatal(err)
	}
	clear(raw[len(raw)-20:])
	of, err := d.log.Topic(d.t.Context(), topic)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.log.Append(d.t.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: of.Partitions[partition], Records: 2, MaxTime: 1, Bytes: raw}}}); err != nil {
		d.t.Fatal(err)
	}
}

func TestDamagedEventsAreAGapAndNothingElseIsWithheld(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 2)
	d.publish("orders", 1, "before")
	d.damaged("orders", 0)
	d.publish("orders", 2, "behind", "elsewhere")
	const page, gap = "/v1/topics/orders/partitions/0/events", `"gap":{"from":1,"to":3}`
	if got := d.get(page); !strings.Contains(got.body, `"value":"before"`) || !strings.Contains(got.body, `"next_offset":3,"first_offset":0,"end_offset":4,`+gap) {
		t.Errorf("the first page: %d %s", got.status, got.body)
	}
	if got := d.get(page + "?max=1"); !strings.Contains(got.body, `"next_offset":1,"first_offset":0,"end_offset":4}`) {
		t.Errorf("a page that ends before them: %d %s", got.status, got.body)
	}
	if got := d.get(page+"?offset=2", "Accept: application/x-ndjson"); got.body != `{"partition":0,"gap":{"from":2,"to":3}}`+"\n" || got.header.Get("Weir-Next-Offset") != "3" {
		t.Errorf("in lines: %d %v %s", got.status, got.header, got.body)
	}
	if got := d.get(page + "?offset=3"); !strings.Contains(got.body, `"value":"behind"`) {
		t.Errorf("the last page: %d %s", got.status, got.body)
	}

	l := d.listen("/v1/topics/orders/stream?from=earliest&partition=0")
	if got := l.values(1); got[0] != "before" {
		t.Errorf("the stream begins with %q", got)
	}
	if kind, data, _ := l.message(); kind != "gap" || data != `{"partition":0,`+gap+`}` {
		t.Errorf("%s %s", kind, data)
	}
	if got := l.values(1); got[0] != "behind" {
		t.Errorf("behind the gap comes %q", got)
	}

	c := d.join("g", `{"topics":["orders"]}`)
	first := d.get(c.path + "/events?wait_ms=10000")
	if !strings.Contains(first.body, `"gaps":[{"topic":"orders","partition":0,"from":1,"to":3}]`) || !strings.Contains(first.body, `"value":"before"`) || !strings.Contains(first.body, `"value":"elsewhere"`) {
		t.Errorf("the member gets %d %s", first.status, first.body)
	}
	c.commit(`{"next":"`+first.header.Get("Weir-Next")+`"}`).want(204, "")
	if got, _ := c.events(""); !slices.Equal(got, []string{"behind"}) {
		t.Errorf("then the member gets %q", got)
	}
	if !strings.Contains(d.said.String(), "events cannot be read") {
		t.Error("the log does not say so")
	}
}

func TestCommitBehindTheEndIsRefused(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 2)
	d.publish("orders", 2, "a", "b")
	c := d.join("g", `{"topics":["orders"]}`)
	for _, body := range []string{`{"offsets":[{"topic":"orders","partition":0,"offset":1},{"topic":"orders","partition":1,"offset":999999}]}`} {
		c.commit(body).refused(416, "offset_out_of_range", "topic orders, partition 1", "999999", `"first_offset":0`, `"end_offset":1`)
	}
	if got, _ := c.events(""); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the member gets %q", got)
	}
}

func TestPositionBehindTheEndWithholdsNoOtherPartition(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 2)
	d.publish("orders", 2, "a", "b")
	c := d.join("g", `{"topics":["orders"]}`)
	beyond := c.path + "/events?after=" + forged("orders", 0, 1, 199)
	got := d.get(beyond)
	if got.status != 200 || !strings.Contains(got.body, `"value":"b"`) || !strings.Contains(got.body, `"problems":[{"type":"urn:weir:problem:offset_out_of_range"`) || !strings.Contains(got.body, "topic orders, partition 0") {
		t.Errorf("%d %s", got.status, got.body)
	}
	c.commit(`{"offsets":[{"topic":"orders","partition":1,"offset":1}]}`).want(204, "")
	d.get(beyond).refused(416, "offset_out_of_range", "topic orders, partition 0", `"end_offset":1`)
}
