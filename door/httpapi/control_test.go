package httpapi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// marker appends a control batch as Kafka's brokers write it: it ends a transaction.
func (d *door) marker(topic string) {
	d.t.Helper()
	raw, err := batch.Seal([]batch.Record{{Key: []byte{0, 0, 0, 1}, Value: make([]byte, 6)}}, batch.None)
	if err != nil {
		d.t.Fatal(err)
	}
	raw[22] |= 1<<5 | 1<<4        // control, transactional
	batch.StampAppendTime(raw, 1) // which makes the checksum anew
	of, err := d.log.Topic(d.t.Context(), topic)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.log.Append(d.t.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: of.Partitions[0], Records: 1, MaxTime: 1, Bytes: raw}}}); err != nil {
		d.t.Fatal(err)
	}
}

func TestControlBatchesAreNoEvents(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	d.marker("orders")
	d.publish("orders", 1, "a", "b") // 1, 2
	d.marker("orders")
	d.marker("orders")
	d.publish("orders", 1, "c") // 5
	d.marker("orders")

	const page = "/v1/topics/orders/partitions/0/events"
	if got := d.get(page); strings.Count(got.body, `"value"`) != 3 || !strings.Contains(got.body, `"next_offset":7,"first_offset":0,"end_offset":7}`) {
		t.Errorf("a page: %d %s", got.status, got.body)
	}
	if got := d.get(page + "?offset=3&max=1"); !strings.Contains(got.body, `"value":"c"`) {
		t.Errorf("a page that begins at a control batch: %d %s", got.status, got.body)
	}
	if got := d.get(page + "?offset=6"); !strings.Contains(got.body, `{"events":[],"next_offset":7,`) {
		t.Errorf("a page with nothing but a control batch: %d %s", got.status, got.body)
	}
	l := d.listen("/v1/topics/orders/events?from=earliest")
	if got := l.values(3); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("a stream has %q", got)
	}
	d.marker("orders")
	d.publish("orders", 1, "d")
	if got := l.values(1); got[0] != "d" {
		t.Errorf("a stream goes on with %q", got)
	}

	d.asJSON("POST", "/v1/queues", `{"name":"mail","topic":"orders"}`)
	var claimed struct {
		Messages []struct{ Value, Receipt string }
	}
	d.asJSON("POST", "/v1/queues/mail/claim", `{"max":10}`).into(200, &claimed)
	var values []string
	for _, m := range claimed.Messages {
		values = append(values, m.Value)
		d.asJSON("POST", "/v1/queues/mail/ack", `{"receipts":["`+m.Receipt+`"]}`)
	}
	if !slices.Equal(values, []string{"a", "b", "c", "d"}) {
		t.Errorf("a worker gets %q", values)
	}
}
