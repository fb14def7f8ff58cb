package main

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weir-log/weir/internal/proctest"
)

// broker is a `weir serve`. Its addresses stay the same over restarts.
type broker struct {
	process
	kafka, http string
	client      *http.Client

	kafkaClient func() (*kgo.Client, error) // for people's requests, made when first asked for
}

// clientPatience is how long a client waits for an answer. Nothing that is done to a process lasts
// as long.
const clientPatience = 40 * time.Second

func newBroker(w *world, name string) (*broker, error) {
	addresses, err := proctest.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	b := &broker{kafka: addresses[0], http: addresses[1]}
	b.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50, DisableCompression: true}}
	b.process = process{
		name: name, w: w,
		command: func() *exec.Cmd {
			return exec.Command(w.weir, "serve", "--store", b.url, "--kafka", b.kafka, "--http", b.http, "--no-auto-create")
		},
		prepare: func(cmd *exec.Cmd) (func(), error) { return w.saysTo(cmd, name) },
		ready:   b.isReady,
	}
	b.kafkaClient = sync.OnceValues(func() (*kgo.Client, error) { return w.kafkaClient([]*broker{b}) })
	return b, w.connect(&b.process)
}

func (b *broker) admin() (*kadm.Client, error) {
	client, err := b.kafkaClient()
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(client), nil
}

// kafkaClient makes a client of some brokers. It is closed when the world rests. By default
// franz-go never fails a record that may have been stored, although its topic is deleted for good
// (bumpRepeatedLoadErr in sink.go, v1.22.2): the client that sent it would wait for ever. With
// cancellation its outcome is unknown, and it is not sent again.
func (w *world) kafkaClient(brokers []*broker, opts ...kgo.Opt) (*kgo.Client, error) {
	var seeds []string
	for _, b := range brokers {
		seeds = append(seeds, b.kafka)
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(200 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second),
		kgo.RetryTimeout(clientPatience), kgo.DialTimeout(5 * time.Second), kgo.AllowIdempotentProduceCancellation(),
	}, opts...)...)
	if err == nil {
		w.mu.Lock()
		w.clients = append(w.clients, client)
		w.mu.Unlock()
	}
	return client, err
}

func (b *broker) isReady(ctx context.Context) error {
	for {
		resp, err := b.client.Get("http://" + b.http + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("/readyz says %s", resp.Status)
		}
		select {
		case <-ctx.Done():
			return err
		case <-b.exited:
			return fmt.Errorf("it ended: %w", err)
		case <-time.After(30 * time.Millisecond):
		}
	}
}
