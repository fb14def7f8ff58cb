package httpapi_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/internal/pgtest"
)

// withKafka opens a Kafka door beside the HTTP one, and returns a client of it.
func (d *door) withKafka(opts ...kgo.Opt) *kgo.Client {
	d.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- kafka.New(d.log, d.groups, kafka.Config{Logger: slog.New(slog.DiscardHandler)}).Serve(ctx, kafka.Listener{Listener: l})
	}()
	d.t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			d.t.Error(err)
		}
	})
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(l.Addr().String()))...)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(client.Close)
	return client
}

// record is what a record is made of, null told apart from empty.
type record struct {
	Key, Value string
	Headers    []string
	Time       int64
}

func bytesOf(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}

func recordOf(r *kgo.Record) record {
	out := record{bytesOf(r.Key), bytesOf(r.Value), nil, r.Timestamp.UnixMilli()}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, h.Key+"="+bytesOf(h.Value))
	}
	return out
}

// What was published over HTTP is, byte for byte, what a Kafka client gets, at the offsets that
// were answered.
func TestKafkaClientsGetWhatWasPublished(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	binary := "\x00\xff\r\n\"\\"
	b64 := base64.StdEncoding.EncodeToString([]byte(binary))
	d.do("POST", "/v1/topics/orders/events?timestamp=1", binary, "Weir-Key: k", "Weir-Header: a=1", "Weir-Header: a=2").want(200, `{"partition":0,"offset":0}`)
	d.asJSON("POST", "/v1/topics/orders/batch", `{"events":[
		{"key_b64":"`+b64+`","value":"é","timestamp":2,"headers":[{"name":"x","value_b64":"`+b64+`"},{"name":"x","value":null},{"name":"","value":""}]},
		{"key":"","value":null,"timestamp":3},{"value":"","timestamp":4}]}`)
	client := d.withKafka(kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var got []record
	for len(got) < 4 {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != int64(len(got)) {
				t.Errorf("offset %d after %d records", r.Offset, len(got))
			}
			got = append(got, recordOf(r))
		})
	}
	want := []record{
		{`"k"`, bytesOf([]byte(binary)), []string{`a="1"`, `a="2"`}, 1},
		{bytesOf([]byte(binary)), `"é"`, []string{"x=" + bytesOf([]byte(binary)), "x=null", `=""`}, 2},
		{`""`, "null", nil, 3},
		{"null", `""`, nil, 4},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The other way round, compressed by the client.
func TestWhatKafkaClientsPublishIsRead(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	client := d.withKafka(kgo.DefaultProduceTopic("orders"), kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i, value := range [][]byte{[]byte("text"), {0xff}, nil, {}} {
		r := &kgo.Record{Key: []byte{byte(i)}, Value: value, Headers: []kgo.RecordHeader{{Key: "h", Value: value}}}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var page struct {
		Events []struct {
			Offset    int64
			Key       string
			Value     *string
			ValueB64  string `json:"value_b64"`
			Timestamp int64
		}
	}
	d.get("/v1/topics/orders/partitions/0/events").decode(&page)
	if e := page.Events; len(e) != 4 || *e[0].Value != "text" || e[0].Key != "\x00" || e[1].ValueB64 != "/w==" || e[2].Value != nil || e[3].Value == nil || *e[3].Value != "" || e[3].Offset != 3 {
		t.Errorf("%+v", e)
	}
	d.get("/v1/topics/orders/partitions/0/events?offset=2&max=1&wait_ms=0", "Accept: application/x-ndjson").want(200,
		fmt.Sprintf(`{"partition":0,"offset":2,"timestamp":%d,"key":"\u0002","value":null,"headers":[{"name":"h","value":null}]}`+"\n", page.Events[2].Timestamp))
}

// Two servers on one database, each with a log of its own: what is published at one is streamed,
// and polled for, at the other.
func TestTwoServersOnOneDatabase(t *testing.T) {
	url := pgtest.URL(t)
	one := openOn(t, openPostgres(t, url), httpapi.Config{})
	other := openOn(t, openPostgres(t, url), httpapi.Config{})
	one.asJSON("POST", "/v1/topics", `{"name":"orders","partitions":2}`)
	l := other.listen("/v1/topics/orders/events") // the topic, too, was made at the other one
	polled := make(chan answer)
	go func() { polled <- other.get("/v1/topics/orders/partitions/1/events?wait_ms=60000&max=1") }()
	var want []string
	for i := range 50 {
		value := fmt.Sprint(i)
		want = append(want, value)
		one.do("POST", "/v1/topics/orders/events?partition=1&timestamp=1", value)
	}
	if diff := cmp.Diff(want, l.values(50)); diff != "" {
		t.Error(diff)
	}
	var page struct{ Events []struct{ Value string } }
	if (<-polled).decode(&page); len(page.Events) != 1 || page.Events[0].Value != "0" {
		t.Errorf("%+v", page)
	}
	// A repetition is known at the other server, too.
	first := one.do("POST", "/v1/topics/orders/events", "x", "Idempotency-Key: k")
	if again := other.do("POST", "/v1/topics/orders/events", "x", "Idempotency-Key: k").want(200, first.body); again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%v", again.header)
	}
	// So is a group: a member here takes over what one there has committed.
	m := one.join("g", `{"topics":["orders"]}`)
	_, next := m.events("?max=1000")
	m.commit(`{"next":"`+next+`"}`).want(204, "")
	one.do("DELETE", m.path, "").want(204, "")
	n := other.join("g", `{"topics":["orders"]}`)
	if got, _ := n.events(""); len(got) != 0 {
		t.Errorf("the member at the other server gets again %q", got)
	}
}
