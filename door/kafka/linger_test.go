package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// On one connection answers come in the order of the requests. So a request that is not a produce
// request does not wait until records linger no longer, nor does what follows it, and a connection
// that has no place for more requests is not read later for it.
func TestOtherRequestsEndTheWaitOfTheirConnection(t *testing.T) {
	for name, c := range map[string]struct {
		acks   int16
		lazy   int // produce requests to the topic that lingers
		others []kmsg.Request
	}{
		"metadata":      {-1, 1, []kmsg.Request{kmsg.NewPtrMetadataRequest()}},
		"many requests": {0, 100, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, kafka.Config{})
			for topic, ms := range map[string]string{"lazy": "3000", "prompt": "0"} {
				if _, err := b.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: topic, Partitions: 1, Config: map[string]string{"weir.linger.ms": ms}}); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			w := b.dial()
			var awaited []kmsg.Request
			for range c.lazy {
				req := produceRequest("lazy", 0, sealed(t, batch.None, value("v")))
				req.Acks = c.acks
				w.send(frame(req, 7))
				if c.acks != 0 {
					awaited = append(awaited, req)
				}
			}
			for _, req := range append(c.others, produceRequest("prompt", 0, sealed(t, batch.None, value("v")))) {
				w.send(frame(req, 7))
				awaited = append(awaited, req)
			}
			for _, req := range awaited {
				w.receive(req, 7)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
