package sqlfn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/use/publish"
)

// http serves the HTTP door and returns its address.
func (r *reader) http() string {
	r.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	publisher := publish.New(r.log, publish.Config{})
	var running sync.WaitGroup
	for _, run := range []func() error{
		func() error { return publisher.Run(ctx) },
		func() error {
			return httpapi.New(httpapi.Config{Log: r.log, Groups: r.groups, Publisher: publisher}).Serve(ctx, listener)
		},
	} {
		running.Go(func() {
			if err := run(); err != nil {
				r.t.Error(err)
			}
		})
	}
	r.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return "http://" + listener.Addr().String()
}

// ask makes a request that must succeed.
func (r *reader) ask(method, url string, body any) []byte {
	r.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(r.limit(), method, url, bytes.NewReader(raw))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s %s: %s, %v: %s", method, url, resp.Status, err, answer)
	}
	return answer
}

// Reliability L8, through three doors: what Kafka wrote is read with HTTP, and so published once
// more; SQL and Kafka show both alike.
func TestWhatGoesThroughEveryDoorStaysTheSame(t *testing.T) {
	r := startReader(t)
	r.topic("kafka", 1, nil)
	r.topic("http", 1, nil)
	producer := r.client(kgo.DefaultProduceTopic("kafka"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	records := odd()
	for _, rec := range records { // names of headers that are no text only Kafka lets in
		rec.Headers = slices.DeleteFunc(rec.Headers, func(h kgo.RecordHeader) bool { return !utf8.ValidString(h.Key) })
	}
	if err := producer.ProduceSync(r.limit(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	address := r.http()
	var page struct {
		Events []map[string]any `json:"events"`
	}
	if err := json.Unmarshal(r.ask("GET", address+"/v1/topics/kafka/partitions/0/events?max=100", nil), &page); err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		delete(e, "offset")
	}
	r.ask("POST", address+"/v1/topics/http/batch", page)
	want := r.events("weir.events('kafka')")
	if len(want) != len(records) {
		t.Fatalf("%d events, want %d", len(want), len(records))
	}
	sameRows(t, r.events("weir.events('http')"), want)
	sameRows(t, r.fetched(r.client(kgo.ConsumeTopics("http"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), len(want)), want)
}
