package httpapi_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
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

	l := d.listen("/v1/topics/orders/events?from=earliest&partition=0")
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

// rotten is a store that gives one batch of each partition back with a byte changed.
type rotten struct {
	eventlog.Store
	base eventlog.Offset
}

func (r rotten) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	got, err := r.Store.Read(ctx, spans, maxBytes)
	for _, s := range got {
		for _, b := range s.Batches {
			if b.Base == r.base {
				b.Bytes[len(b.Bytes)-2]++ // of the value
			}
		}
	}
	return got, err
}

// A changed byte is never another amount, whoever reads: a page, a stream, a member.
func TestABatchThatChangedInTheStoreIsAGap(t *testing.T) {
	store := memory.New()
	writer := openOn(t, store, httpapi.Config{})
	writer.topic("orders", 2)
	writer.publish("orders", 2, "amount 10", "elsewhere", "amount 20", "elsewhere too", "amount 30")
	writer.stop()

	d := openOn(t, rotten{store, 1}, httpapi.Config{}) // which has nothing in memory
	const page, gap = "/v1/topics/orders/partitions/0/events", `"gap":{"from":1,"to":2}`
	if got := d.get(page + "?offset=1"); got.status != 200 || !strings.Contains(got.body, `"events":[],"next_offset":2,`) || !strings.Contains(got.body, gap) {
		t.Errorf("at the damage: %d %s", got.status, got.body)
	}
	if got := d.get(page + "?offset=2"); !strings.Contains(got.body, `"value":"amount 30"`) {
		t.Errorf("behind the damage: %d %s", got.status, got.body)
	}
	l := d.listen("/v1/topics/orders/events?from=earliest&partition=0")
	if got := l.values(1); got[0] != "amount 10" {
		t.Errorf("the stream begins with %q", got)
	}
	if kind, data, _ := l.message(); kind != "gap" || data != `{"partition":0,`+gap+`}` {
		t.Errorf("the stream says %s %s, want the gap", kind, data)
	}
	if got := l.values(1); got[0] != "amount 30" {
		t.Errorf("behind the gap comes %q", got)
	}
	c := d.join("g", `{"topics":["orders"]}`)
	var came []string
	for range 5 {
		got := d.get(c.path + "/events?wait_ms=1000")
		if strings.Contains(got.body, "amount 2") && !strings.Contains(got.body, "amount 20") {
			t.Errorf("the member gets another amount: %s", got.body)
		}
		came = append(came, got.body)
		c.commit(`{"next":"`+got.header.Get("Weir-Next")+`"}`).want(204, "")
		if strings.Contains(got.body, "amount 30") {
			break
		}
	}
	all := strings.Join(came, "\n")
	for _, want := range []string{`"value":"amount 10"`, `"value":"amount 30"`, `"value":"elsewhere"`, `{"topic":"orders","partition":0,"from":1,"to":2}`} {
		if !strings.Contains(all, want) {
			t.Errorf("the member did not get %s: %s", want, all)
		}
	}

	// Where the record that a time leads to is in the damaged batch, a group is set there, and its
	// readers are told.
	d = openOn(t, rotten{store, 0}, httpapi.Config{})
	if got := d.asJSON("PUT", "/v1/groups/other/offsets", `{"offsets":[{"topic":"orders","partition":0,"timestamp":1577836800000}]}`); got.status != 200 || !strings.Contains(got.body, `"offset":0`) {
		t.Errorf("a reset to a time: %d %s", got.status, got.body)
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
